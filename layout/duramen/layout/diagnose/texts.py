"""Why a text changed: the cause of the first place where two versions of it part."""

import re
import unicodedata

from duramen.layout.delta import common_text
from duramen.layout.diagnose import json_text
from duramen.layout.diagnose.change import Change, became, quoted
from duramen.layout.diagnose.place import Place
from duramen.layout.diagnose.thinking import has_thinking, split_thinking
from duramen.layout.diagnose.values import value_change
from duramen.layout.diff import Difference, differences

COMMON_CHARS = 2_048  # of the common text that is looked at
BEHIND_CHARS = 2**15
_MAX_FORM_CHARS = 2**13
_LONG_CHARS = 200
_BLANKS = re.compile(r"[\s\u200b-\u200d\u2060\ufeff]+")
OMITTED = re.compile(
    r"omitt|truncat|elided|cleared|pruned|removed|hidden|collapsed|compacted|redacted|trimmed"
    r"|shortened|stripped|deleted|dropped|skipped|discard|evicted|expired|no longer|not shown"
    r"|see above|old (?:tool |output|result)|previous (?:tool |output|result)|output too"
    r"|clipped|snipped|abridged|left out|cut (?:off|out|here|short|to|at)|suppressed|folded"
    r"|gekürzt|entfernt|ausgelassen|abgeschnitten|omis|omitid|tronqu|supprim|recortad|eliminad|cortad|troncat"
    r"|обрезан|удален|сокращ|省略|截断|截斷|已删除|已清除|削除|切り詰め|생략|잘림|<snip|\[snip",
    re.I,
)
_LEFT_OUT = re.compile(
    r"output|result|observation|content|message|context|history|text|data|file|image|ausgabe", re.I
)
_DOTS = re.compile(r"\.\.\.|…")

SUMMARY = re.compile(
    r"summar|so far|condensed|compact|recap|previous (?:conversation|context|messages|session)"
    r"|earlier (?:conversation|messages|steps|turns|work)|previously|prior (?:conversation|messages"
    r"|turns|context|work)|memory of|checkpoint|carried over|story so far|conversation history"
    r"|continued from|context was"
    r"|key points|handoff|hand-off|progress notes|zusammenfass|bisher|résum|resum|riassun|摘要"
    r"|总结|要約|要点|요약|итог|кратк",
    re.I,
)


def text_change(old: str, new: str, place: Place) -> Change | None:
    """Why `new` stands where `old` stood; None where they are equal. Linear in the texts, apart
    from a diff of a window around the place where they part."""
    if old == new:
        return None
    first = common_text(old, new)
    return (
        _only_blanks(old, new, 1.0)
        or _only_form(old, new, 1.0)
        or _thought(old, new)
        or _labelled_thought(old, new)
        or _taken_out(old, new, place)
        or _respelled_json(old, new, first)
        or _first_region(old, new, first, place)
    )


def without_blanks(text: str) -> str:
    return _BLANKS.sub("", text)


def _only_blanks(old: str, new: str, confidence: float) -> Change | None:
    if without_blanks(old) != without_blanks(new):
        return None
    return Change("whitespace", confidence, f"only blanks differ: {became(old, new)}")


def _only_form(old: str, new: str, confidence: float) -> Change | None:
    form = same_form(old, new)
    if form is None:
        return None
    forms = [_form(text) for text in (old, new)]
    shown = f"{_shown(old, new)} ({forms[0]} became {forms[1]})"
    return Change("unicode-normalisation", confidence, f"equal in {form}: {shown}")


def same_form(old: str, new: str) -> str | None:
    """The Unicode form in which two texts are equal, None if there is none or they are long: to
    normalise a run of combining marks takes time that is quadratic in it."""
    if max(len(old), len(new)) > _MAX_FORM_CHARS:
        return None
    for form in ("NFC", "NFKC"):
        if unicodedata.normalize(form, old) == unicodedata.normalize(form, new):
            return form
    return None


def _form(text: str) -> str:
    known = ("NFC", "NFD", "NFKC", "NFKD")
    return next((form for form in known if unicodedata.is_normalized(form, text)), "mixed forms")  # type: ignore[arg-type]


def _shown(old: str, new: str) -> str:
    first = max(common_text(old, new) - 8, 0)
    was, now = (ascii(str.__getitem__(text, slice(first, first + 24))) for text in (old, new))
    return f"{was} became {now}"


_LABELLED = re.compile(
    r"\s*[*_#\[ ]{0,4}(?:thoughts?|thinking|reasoning|reflection|analysis|rationale|gedanke\w*)"
    r"[*_\] ]{0,4}[:：]",
    re.I,
)


def _labelled_thought(old: str, new: str) -> Change | None:
    """A head of the text that calls itself a thought is in one version only."""
    longer, shorter = (old, new) if len(old) > len(new) else (new, old)
    rest = shorter.strip()
    if not rest or not longer.rstrip().endswith(rest) or not _LABELLED.match(longer):
        return None
    head = longer.rstrip()[: -len(rest)]
    way = "is gone" if longer is old else "has come"
    return Change("thinking-stripped", 0.9, f"{quoted(head.strip())} {way}")


def _thought(old: str, new: str) -> Change | None:
    """Thinking that stands in the text of a message, and is in one version only."""
    if not (has_thinking(old) or has_thinking(new)):
        return None
    (was, said), (now, says) = split_thinking(old), split_thinking(new)
    if without_blanks(said) != without_blanks(says):
        return None
    if was == now and (was or has_thinking(old) == has_thinking(new)):
        return None
    if not was and not now:
        return Change("empty-thinking", 1.0, f"an empty thinking block: {became(old, new)}")
    if was and now:
        return None
    kept = was or now
    gone = "is gone" if was else "has come"
    return Change("thinking-stripped", 1.0 if was else 0.9, f"thinking {quoted(kept)} {gone}")


def _taken_out(old: str, new: str, place: Place) -> Change | None:
    """A long text of which only a head, a tail, or a line that says so is left."""
    if _stands_in(old, new, place):
        return Change("history-pruned", 0.9, f"{quoted(new)} stands for {quoted(old)}")
    kept = new.rstrip(" .…")
    if _DOTS.search(new[len(kept) :]) and 8 <= len(kept) <= len(old) - 8 and old.startswith(kept):
        return Change("history-pruned", 0.9, f"only the beginning is left: {quoted(new[-40:])}")
    if len(new) * 2 > len(old) and not (place.is_tool_output and len(new) < len(old)):
        return None
    bare = new.strip()
    lost = f"{len(old):,} characters became {len(new):,}"
    if not bare:
        return Change("history-pruned", 0.95, f"the text is gone: {lost}")
    head = common_text(old, bare)
    tail = common_text(old[::-1], bare[::-1])
    inner = bare[head : max(len(bare) - tail, head)]
    is_long = len(old) >= _LONG_CHARS or place.is_tool_output
    end = inner or bare[-40:]
    told = OMITTED.search(end) is not None or (is_long and _DOTS.search(end) is not None)
    if len(old) >= 40 and len(inner) <= _LONG_CHARS and told:
        return Change(
            "history-pruned", 0.95, f"{lost}: {quoted(inner or bare)} stands for the rest"
        )
    much = len(old) - len(new) >= max(20, len(old) // 10)
    if place.is_tool_output and much and head + tail >= len(bare):
        return Change("history-pruned", 0.9, f"{lost}: only a part is left, {quoted(bare)}")
    if place.is_tool_output and len(bare) * 4 < len(old) and len(bare) <= _LONG_CHARS:
        return Change("history-pruned", 0.8, f"{lost}: {quoted(bare)} stands for it")
    return None


def _stands_in(old: str, new: str, place: Place) -> bool:
    """Whether a short text says that another was left out."""
    told = len(new) <= _LONG_CHARS and OMITTED.search(new) and not OMITTED.search(old)
    if not told or not old.strip() or common_text(old, new) >= 4:
        return False
    sure = place.is_tool_output or new.strip()[:1] in "[<({…"
    return sure or _LEFT_OUT.search(new) is not None


def _respelled_json(old: str, new: str, first: int) -> Change | None:
    whole = json_text.spelling(old, new) if len(old) < json_text.MAX_CHARS else "other"
    pairs = [json_text.Pair(old, new)] if whole != "other" else json_text.enclosing(old, new, first)
    for pair in pairs:
        how = json_text.spelling(pair.old, pair.new)
        if how == "order":
            return Change("json-key-order", 0.98, f"the same JSON: {became(*pair)}")
        if how == "respelled":
            return Change("re-serialised-arguments", 0.95, f"the same JSON: {became(*pair)}")
    return None


def _first_region(old: str, new: str, first: int, place: Place) -> Change:
    start = max(first - COMMON_CHARS, 0)
    was, now = (str.__getitem__(text, slice(start, first + BEHIND_CHARS)) for text in (old, new))
    return region_change(was, now, differences(was, now)[0], place)


def region_change(old: str, new: str, region: Difference, place: Place) -> Change:
    """By the first of `differences(old, new)` alone; history-edited where it is no known kind."""
    cut, put = old[region.old_start : region.old_end], new[region.start : region.end]
    if not without_blanks(cut) and not without_blanks(put):
        return Change("whitespace", 0.9, f"blanks differ first: {became(old, new)}")
    was = _word(old, region.old_start, region.old_end)
    now = _word(new, region.start, region.end)
    return (
        _only_form(was, now, 0.9)
        or value_change(old, new, region, place)
        or Change("history-edited", _edit_confidence(old, new), became(old, new), mend=_mend(place))
    )


def _mend(place: Place) -> str:
    """What a program writes anew into a root belongs elsewhere; else what the cause asks for."""
    return "move what changes into the newest message" if place.is_root else ""


def _word(text: str, start: int, end: int) -> str:
    low, high = max(start - 40, 0), min(end + 40, len(text))
    while start > low and not text[start - 1].isspace():
        start -= 1
    while end < high and not text[end].isspace():
        end += 1
    return text[start:end]


def _edit_confidence(old: str, new: str) -> float:
    """Higher where most of the text is still there."""
    kept = sum(a.old_start - b.old_end for a, b in _gaps(old, new))
    return 0.9 if kept * 2 > max(len(old), len(new)) else 0.7


def _gaps(old: str, new: str) -> list[tuple[Difference, Difference]]:
    found = differences(old, new)
    whole = [Difference(0, 0, 0, 0), *found]
    ends = [*found, Difference(len(old), len(old), len(new), len(new))]
    return list(zip(ends, whole, strict=True))
