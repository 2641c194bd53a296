"""A model's tokenizer from its files alone, with control tokens out of the reach of data.

`tokenizers` encodes the ordinary text; the control tokens are taken out of it and matched here,
only in text that the template wrote. Everywhere else their spelling is plain text. The ids equal
those of transformers and vLLM as long as data spells no control token; where it does, ours differ
on purpose and `Encoded.plain` says which spelling stayed plain.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import tokenizers

from duramen.layout.errors import TokenizerError
from duramen.layout.segment_cache import SegmentCache
from duramen.layout.tokenizer_files import (
    CLASS_NORMALIZERS,
    AddedToken,
    added_tokens,
    build,
    drop_first_prefix,
    is_control,
    read_json,
    special_strings,
    without_control,
)
from duramen.layout.tracked import TEMPLATE, Tracked

_LEAD_CHARS = 200  # before a reply, that are encoded with it


@dataclass(frozen=True)
class Section:
    """Ids of one stretch between control tokens (or of one control token), and its characters."""

    start: int
    end: int
    token_ids: Sequence[int]
    control: bool


@dataclass(frozen=True)
class Encoded:
    """`sections` cover the text in order; `plain` are control spellings in data kept as text."""

    sections: tuple[Section, ...]
    plain: tuple[str, ...] = ()

    @property
    def token_ids(self) -> list[int]:
        return [token_id for section in self.sections for token_id in section.token_ids]


@dataclass
class Tokenizer:
    """Encodes rendered text. `template`: source of the chat template, which spells control tokens.

    `spec`: parsed tokenizer.json; `config`: parsed tokenizer_config.json.
    """

    spec: dict[str, Any]
    config: dict[str, Any]
    template: str = ""
    cache: SegmentCache = field(default_factory=SegmentCache)

    @classmethod
    def load(cls, directory: Path, template: str = "") -> "Tokenizer":
        """Read tokenizer.json and tokenizer_config.json. Raises TokenizerError, naming the file."""
        config = read_json(directory / "tokenizer_config.json", required=False)
        return cls(read_json(directory / "tokenizer.json"), config, template)

    def __post_init__(self) -> None:
        model = self.spec.get("model")
        if not isinstance(model, dict):
            raise TokenizerError("tokenizer.json describes no model")
        if self.spec.get("normalizer") is None:
            normalizer = CLASS_NORMALIZERS.get(str(self.config.get("tokenizer_class")))
            self.spec = {**self.spec, "normalizer": normalizer}
        if model.get("dropout"):
            raise TokenizerError("tokenizer.json sets BPE dropout: its ids are random, not exact")
        self.special_strings = special_strings(self.config)
        self.added = added_tokens(self.spec, self.config)
        values = list(self.special_strings.values())
        self.control = {t.content: t for t in self.added if is_control(t, self.template, values)}
        self.control_ids = frozenset(t.id for t in self.control.values())
        self.ordinary = [t for t in self.added if t.content not in self.control]
        self._any_control = _longest_first(self.control)
        unknown = model.get("unk_token")
        self._forbidden = self.control_ids - {t.id for t in self.added if t.content == unknown}

    @cached_property
    def full(self) -> tokenizers.Tokenizer:
        """The tokenizer as published, control tokens included; for decoding."""
        return build(self.spec)

    @cached_property
    def _plain(self) -> tokenizers.Tokenizer:
        return build(without_control(self.spec, self.control))

    @cached_property
    def _plain_inner(self) -> tokenizers.Tokenizer:
        """As `_plain`, for text that does not stand at the start of the prompt."""
        inner = without_control(self.spec, self.control)
        return build(inner) if drop_first_prefix(inner.get("pre_tokenizer")) else self._plain

    @property
    def eos_ids(self) -> frozenset[int]:
        eos = self.special_strings.get("eos_token")
        return frozenset(t.id for t in self.added if t.content == eos)

    def decode(self, token_ids: Sequence[int]) -> str:
        """What the ids spell behind other text (at the very start SentencePiece drops a blank)."""
        anchor = [next(iter(sorted(self.control_ids)))] if self._strips_start else []
        spelled = self.full.decode([*anchor, *token_ids], skip_special_tokens=False)
        return spelled[len(self.full.decode(anchor, skip_special_tokens=False)) :]

    @cached_property
    def _strips_start(self) -> bool:
        decoder = msgspec.json.encode(self.spec.get("decoder"))
        return bool(self.control_ids) and (b'"Strip"' in decoder or b'"Metaspace"' in decoder)

    def split_closer(
        self, token_ids: Sequence[int], turn_end_ids: frozenset[int] = frozenset()
    ) -> tuple[list[int], str | None]:
        """Sampled ids without the control token that ends them, and that token's text if any.

        `turn_end_ids`: the engine's EOS ids, beside the tokenizer's control tokens.
        """
        if token_ids and token_ids[-1] in self.control_ids | turn_end_ids:
            return list(token_ids[:-1]), self.token_text(token_ids[-1])
        return list(token_ids), None

    def token_prefix(self, token_ids: list[int], text: str) -> list[int]:
        """The longest head of `token_ids` that spells a beginning of `text`."""
        low, high = 0, len(token_ids)
        while low < high:  # a head that ends within a character decodes to a replacement sign
            middle = (low + high + 1) // 2
            if text.startswith(self.decode(token_ids[:middle]).rstrip("\ufffd")):
                low = middle
            else:
                high = middle - 1
        while low and not text.startswith(self.decode(token_ids[:low])):
            low -= 1
        return token_ids[:low]

    def token_text(self, token_id: int) -> str:
        """The token as its vocabulary spells it, for messages."""
        return self.full.id_to_token(token_id) or f"<unknown id {token_id}>"

    def encode_text(self, text: str, *, at_start: bool = False) -> Sequence[int]:
        """Ids of ordinary text that stands between control tokens; never a control id.

        `at_start`: the text is the first of the prompt (SentencePiece prefixes a space there).
        """
        if not text:
            return ()
        return self.cache.get(text, at_start, self._encode_plain)

    def token_starts(self, text: str, *, at_start: bool = False) -> list[int]:
        """Character at which each token of encode_text(text) starts."""
        encoder = self._plain if at_start else self._plain_inner
        return [start for start, _ in encoder.encode(text, add_special_tokens=False).offsets]

    def _encode_plain(self, text: str, at_start: bool) -> list[int]:
        encoder = self._plain if at_start else self._plain_inner
        try:
            # of all the ways to encode, the one that does not compute offsets
            [encoding] = encoder.encode_batch_fast([text], add_special_tokens=False)
        except TypeError:  # the one way in which a str cannot be UTF-8
            raise TokenizerError("text holds a lone surrogate: it is not valid Unicode") from None
        token_ids: list[int] = encoding.ids
        if self._forbidden.isdisjoint(token_ids):
            return token_ids
        offsets = encoder.encode(text, add_special_tokens=False).offsets
        for token_id, (start, end) in zip(token_ids, offsets, strict=True):
            if token_id in self._forbidden and end - start > 1:
                # The model's own vocabulary spells it (Unigram does): break it in two.
                middle = start + (end - start) // 2
                head = self._encode_plain(text[:middle], at_start)
                return head + self._encode_plain(text[middle:], False)
        return token_ids

    def encode(self, text: Tracked, *, at_start: bool = True) -> Encoded:
        """Encode rendered text; control tokens count only where the template wrote them."""
        sections: list[Section] = []
        plain: list[str] = []
        position = 0
        for start, end, token in self.controls(text, plain):
            if start > position:
                sections.append(self._section(text, position, start, at_start))
            sections.append(Section(start, end, (token.id,), True))
            position = end
        if position < len(text):
            sections.append(self._section(text, position, len(text), at_start))
        return Encoded(tuple(sections), tuple(plain))

    def reply_ids(self, text: Tracked, start: int) -> list[int]:
        """Ids of `text[start:]`, up to its last control token, as they are sampled behind what
        stands before; as encoded alone where a token would cross the seam."""
        low = max(start - _LEAD_CHARS, 0)
        near = text[low:]
        opened = max((end for _, end, _ in self.controls(near) if end <= start - low), default=0)
        near, num_lead = near[opened:], start - low - opened
        sections = list(self.encode(near, at_start=low + opened == 0).sections)
        if num_lead and sections:
            sections[0] = self._behind(near, num_lead, sections[0], at_start=low + opened == 0)
        last = max((i for i, section in enumerate(sections) if section.control), default=None)
        ended = sections if last is None else sections[: last + 1]
        return [token_id for section in ended for token_id in section.token_ids]

    def _behind(self, text: Tracked, start: int, whole: Section, *, at_start: bool) -> Section:
        """The section without what stands before `start`."""
        lead = self.encode_text(str.__getitem__(text, slice(start)), at_start=at_start)
        token_ids = whole.token_ids[len(lead) :]
        if list(whole.token_ids[: len(lead)]) != list(lead):
            token_ids = self.encode_text(str.__getitem__(text, slice(start, whole.end)))
        return Section(start, whole.end, token_ids, control=False)

    def _section(self, text: Tracked, start: int, end: int, at_start: bool) -> Section:
        ids = self.encode_text(
            str.__getitem__(text, slice(start, end)), at_start=at_start and start == 0
        )
        return Section(start, end, ids, False)

    def controls(
        self, text: Tracked, plain: list[str] | None = None
    ) -> list[tuple[int, int, AddedToken]]:
        """[start, end) of each control token in rendered text, blanks that it swallows included.

        Spellings that are (partly) data are appended to `plain`.
        """
        if self._any_control is None:
            return []
        own = template_intervals(text)
        found: list[tuple[int, int, AddedToken]] = []
        interval = position = 0
        while match := self._any_control.search(text, position):
            start, end = match.span()
            while interval < len(own) and own[interval][1] < end:
                interval += 1
            inside = interval < len(own) and own[interval][0] <= start
            token = self.control[str(match[0])]
            if inside and _stands_alone(token, text, start, end):
                floor = found[-1][1] if found else 0
                while token.lstrip and start > floor and _is_blank(text[start - 1]):
                    start -= 1
                while token.rstrip and end < len(text) and _is_blank(text[end]):
                    end += 1
                found.append((start, end, token))
                position = end
                continue
            if not inside and plain is not None:
                plain.append(token.content)
            position = start + 1
        return found


def template_intervals(text: Tracked) -> list[tuple[int, int]]:
    """[start, end) of each stretch that the template wrote, in order."""
    intervals = []
    position = 0
    for length, origin in text.runs:
        if origin == TEMPLATE:
            intervals.append((position, position + length))
        position += length
    return intervals


def _is_blank(character: str) -> bool:
    """As `tokenizers` sees it: Python's blanks without the four ASCII separators."""
    return character.isspace() and not "\x1c" <= character <= "\x1f"


def _longest_first(contents: Iterable[str]) -> re.Pattern[str] | None:
    alternatives = sorted((c for c in contents if c), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, alternatives))) if alternatives else None


def _stands_alone(token: AddedToken, text: str, start: int, end: int) -> bool:
    if not token.single_word:
        return True
    before, after = text[start - 1 : start], text[end : end + 1]
    return not re.match(r"\w", before) and not re.match(r"\w", after)
