"""The certificates of many chat templates as one page, in Markdown."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from duramen.layout.certify.certified import Certified
from duramen.layout.certify.options import Option
from duramen.layout.certify.transitions import TRANSITIONS
from duramen.layout.certify.verdicts import Verdict

SIGNS: Mapping[Verdict, str] = {
    "kept": "✓",
    "broken": "**✗**",
    "refused": "r",
    "ignores-tools": "i",
}
PAGE = """# Which chat templates keep a prompt's prefix

An engine reuses a prompt that it has seen only up to the first token that differs. A chat \
template writes the whole conversation anew for every call, and many write its past otherwise \
than it was sent: they leave out old thinking, move the tools, or open a reply with text that they \
do not repeat once the reply is history. From that character on everything is computed again.

This page is made by `duramen certify --all DIR --markdown FILE`, here of {num} templates. For a \
step of a conversation two prompts are rendered: the one that was sent, with the generation prompt \
at its end, and the next one, with the reply and what is new. The step is *kept* if the first is a \
prefix of the second, as text. Messages go to the template as transformers' `apply_chat_template` \
gives them, with a system message in front unless the template refuses one.

## The steps

{steps}

{summary}

A server may choose the form of content itself: vLLM looks whether a template reads content part \
by part, and gives it parts if so and else one text, whichever of the two a client sent. Where \
that keeps parts-vs-string, the reasons below say so; `duramen why` then shows no difference, \
since it renders as vLLM does.

## The templates

*history*: what the gateway does with the past of a conversation. `verbatim` keeps the ids that \
were sent and sampled; `template` writes the past as the template now has it, because that does \
not keep every step. *local*: a message's text depends on its neighbours and the first message \
alone, so that new messages can be rendered without the rest. *seams*: places at which text can be \
cut and its pieces encoded alone, with the ids of the whole.

✓ kept, **✗** broken, r refused (the template raises), i ignores tools (the next prompt shows none \
of the results, or not the new tool). The last column says how many steps a mend keeps in addition.

{table}

## What is lost, and how to keep it

A mend is found by general rules and offered only where it is proven: every step that was kept is \
kept, at least one more is, the first turn is written as before, character for character, whatever \
the options, and nothing that was shown of a message is left out or shown twice. The model then \
reads a past that it would not have read, mostly with its own thinking in it; whether it answers \
better or worse is not known from this. `duramen certify --chat-template FILE --out DIR` writes \
the mended template, with a comment in front that says what was changed. Use it with `vllm serve \
MODEL --chat-template FILE`, or with `duramen serve MODEL --chat-template FILE`. A mend that keeps \
old thinking can keep only what is there: clients have to send it back (`reasoning_content`) with \
each reply. Lines count from 1, in the template with the mends before it. A new tool is written in \
front of the conversation by every template that breaks step {added}; that is said here once and \
cannot be mended there: send every tool in every call.

{details}
"""


def told(one: Certified) -> Iterator[str]:
    """What follows from a certificate, a line each."""
    if one.refused is not None:
        return
    if one.history_why is not None:
        yield f"history: {one.history}, since {one.history_why}"
    else:
        yield f"history: {one.history}"
    if one.not_local_because is None:
        yield "local: new messages are rendered in a short window"
    else:
        yield f"not local: {one.not_local_because}"
    yield from _bos(one)
    if one.has_tokenizer:
        yield f"seams inside ordinary text: {one.seam_family or 'none'} proven"
    if not one.takes_system:
        yield "system messages are refused"
    yield from _options(one.options)
    if one.mend is not None:
        for change in one.mend.changes:
            yield f"mend, line {change.line}: {change.rule}"
            if change.is_fill:
                yield f"written there: {change.written}"
        yield f"the mend keeps, proven: {', '.join(one.mend.gained)}"


def _bos(one: Certified) -> Iterator[str]:
    if one.bos is None:
        return
    if one.bos.is_doubled:
        yield "BOS twice: the template writes it and the tokenizer adds one; encode without"
    elif one.bos.template and one.bos.tokenizer is None:
        yield "BOS is written by the template: encode without special tokens"


def _options(options: Sequence[Option]) -> Iterator[str]:
    for moves, where in (
        ("head", "move the head of the prompt"),
        ("generation-prompt", "change the generation prompt"),
        ("history", "change only how the past is written"),
    ):
        named = [f"{o.name}={_shown(o.value)} (character {o.char})" for o in options
                 if o.moves == moves]  # fmt: skip
        if named:
            yield f"options that {where}: {', '.join(named)}"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def gallery(found: Mapping[str, Certified]) -> str:
    """The page: the steps, a table, and for each template what it loses and how it is mended."""
    return PAGE.format(
        num=len(found),
        added=[t.name for t in TRANSITIONS].index("tools-added") + 1,
        steps="\n".join(_steps(found)),
        summary=_summary(found),
        table="\n".join(_table(found)),
        details="\n\n".join("\n".join(_details(name, one)) for name, one in found.items()),
    )


def _steps(found: Mapping[str, Certified]) -> Iterator[str]:
    yield "| | step | what happens | kept | broken | refused | ignores tools |"
    yield "|---:|---|---|---:|---:|---:|---:|"
    for number, transition in enumerate(TRANSITIONS, 1):
        counts = Counter(one.outcomes[transition.name].verdict for one in found.values())
        cells = " | ".join(str(counts[verdict]) for verdict in SIGNS)
        yield f"| {number} | {transition.name} | {transition.what} | {cells} |"


def _summary(found: Mapping[str, Certified]) -> str:
    def broken_of(name: str) -> str:
        verdicts = [one.outcomes[name].verdict for one in found.values()]
        judged = sum(verdict in ("kept", "broken") for verdict in verdicts)
        return f"{verdicts.count('broken')} of {judged}"

    mends = [one.mend for one in found.values() if one.mend is not None]
    more = sum(set(mend.gained) != {"parts-vs-string"} for mend in mends)
    return (
        f"{broken_of('user-turn')} templates that take it break a plain second question, "
        f"{broken_of('thinking-then-user')} when the reply had been thought about, and "
        f"{broken_of('thinking-tool-then-user')} when a user speaks after tool calls with "
        f"thinking. {len(mends)} of {len(found)} have a small proven mend, {more} of them for more "
        "than content that is sent as parts."
    )


def _table(found: Mapping[str, Certified]) -> Iterator[str]:
    numbers = range(1, len(TRANSITIONS) + 1)
    yield "| template | " + " | ".join(map(str, numbers)) + " | history | mend |"
    yield "|---|" + ":-:|" * len(numbers) + "---|---:|"
    for name, one in found.items():
        signs = " | ".join(SIGNS[one.outcomes[t.name].verdict] for t in TRANSITIONS)
        gained = f"+{len(one.mend.gained)}" if one.mend else ""
        title = _plain(name.removesuffix(".jinja"))
        yield f"| {title} | {signs} | {one.history or '-'} | {gained} |"


def _details(name: str, one: Certified) -> Iterator[str]:
    yield f"### {_plain(name.removesuffix('.jinja'))}\n"
    steps: dict[str, list[str]] = {}
    for step, outcome in one.outcomes.items():
        if outcome.verdict != "kept" and outcome.cause != "tool-set-changed":
            verdict = "" if outcome.verdict == "broken" else f"{outcome.verdict}: "
            steps.setdefault(f"{verdict}{outcome.why}", []).append(step)
    for why, named in steps.items():
        yield f"- {', '.join(named)}: {_plain(why)}"
    for line in told(one):
        yield f"- {_plain(line)}"


def _plain(text: str) -> str:
    """As Markdown shows it letter by letter."""
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", text)
