"""Token ids that only grow, with the spans that cover them.

The *open stretch* is the last control token and the ordinary text behind it: text that is appended
may change its ids. A proven seam says that it does not; otherwise the stretch is encoded again.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from duramen.layout.encode import EncodedText, Encoder, num_differing
from duramen.layout.segment_cache import text_digest
from duramen.layout.spans import Cut
from duramen.layout.tracked import Tracked, concat
from duramen.layout.zones import Prompt, Span, Zone

_NO_TEXT = Tracked("", ())


@dataclass(frozen=True)
class Sampled:
    """A reply that the model gave: tokens [start, end) stand for message number `message`."""

    message: int
    start: int
    end: int


@dataclass(frozen=True)
class _OpenStretch:
    """`text` has its ids from token `start` on; `spans`: (character, index) of the spans that
    start inside it."""

    text: Tracked
    start: int
    spans: tuple[tuple[int, int], ...] = ()


@dataclass
class TokenStream:
    """`num_deviating`: ids that are not the canonical ones, from independent seams."""

    encoder: Encoder
    token_ids: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    num_deviating: int = 0
    _open: _OpenStretch = _OpenStretch(_NO_TEXT, 0)

    def append(
        self, text: Tracked, cuts: Sequence[Cut], num_root: int = 0, num_trunk: int = 0
    ) -> None:
        """Encode `text` behind what is there. `cuts` ascend from 0 and cover it; spans of the first
        `num_root` messages are root, of the next `num_trunk` trunk, of the others leaf."""
        if not text:
            return
        starts = [cut.start for cut in cuts]
        first = len(self.spans)
        self._add_spans(text, cuts, num_root, num_root + num_trunk)
        at_start = not self.token_ids
        if self._seam_holds(text):
            self._place(first, text, starts, at_start)
            return
        stretch = self._open
        dropped = self.token_ids[stretch.start :]
        del self.token_ids[stretch.start :]
        starts = [start + len(stretch.text) for start in starts]
        inner = [character for character, _ in stretch.spans]
        first -= len(inner)
        self._place(first, concat((stretch.text, text)), [*inner, *starts], stretch.start == 0)
        changed = num_differing(dropped, self.token_ids[stretch.start :][: len(dropped)])
        self.notes.append(
            f"unproven seam: {len(dropped)} tokens from token {stretch.start} were encoded again, "
            f"{changed} of them changed"
        )

    def append_sampled(self, token_ids: Sequence[int], text: str, source: str) -> None:
        """Ids that the model gave, verbatim. `text` is what they spell, for their digest."""
        start = len(self.token_ids)
        self.token_ids += token_ids
        end = len(self.token_ids)
        self.spans.append(Span(start, end, Zone.LEAF, source, text_digest(text), sampled=True))
        self._open = _OpenStretch(_NO_TEXT, end)

    def restore(self, token_ids: Sequence[int], num_root: int, replies: Sequence[Sampled]) -> None:
        """Ids of a prompt that was sent before, in a stream that is empty. The first `num_root` are
        root, the others history, with the ascending `replies` in it."""
        self.token_ids += token_ids
        places = [(0, num_root, Zone.ROOT, "root", False)]
        position = num_root
        for reply in replies:
            source = f"message {reply.message} (assistant) text"
            places.append((position, reply.start, Zone.TRUNK, "history", False))
            places.append((max(position, reply.start), reply.end, Zone.TRUNK, source, True))
            position = max(position, reply.end)
        places.append((position, len(token_ids), Zone.TRUNK, "history", False))
        self.spans += [
            Span(start, end, zone, source, _ids_digest(token_ids[start:end]), sampled)
            for start, end, zone, source, sampled in places
            if start < end
        ]
        self._open = _OpenStretch(_NO_TEXT, len(self.token_ids))

    def rewind(self, num_tokens: int) -> None:
        """Forget what is behind the first `num_tokens`, which end with a control token or are 0."""
        del self.token_ids[num_tokens:]
        self.spans = [span for span in self.spans if span.start < num_tokens]
        if self.spans and self.spans[-1].end > num_tokens:
            cut = self.spans[-1]
            digest = _ids_digest(self.token_ids[cut.start :])
            self.spans[-1] = replace(cut, end=num_tokens, digest=digest)
        self._open = _OpenStretch(_NO_TEXT, num_tokens)

    def freeze(self) -> None:
        """What was leaf is trunk from now on."""
        for i in range(len(self.spans) - 1, -1, -1):
            if self.spans[i].zone is not Zone.LEAF:
                break
            self.spans[i] = replace(self.spans[i], zone=Zone.TRUNK)

    def prompt(self) -> Prompt:
        """All of it, with what was noted since the last prompt."""
        notes, self.notes = tuple(self.notes), []
        return Prompt(list(self.token_ids), tuple(self.spans), notes)

    def _seam_holds(self, text: Tracked) -> bool:
        """Whether `text` can follow without changing the ids of the open stretch."""
        if not self._open.text:
            return True
        tokenizer = self.encoder.prover.tokenizer
        opener = next(iter(tokenizer.controls(self._open.text)), None)
        closer = next(iter(tokenizer.controls(text)), None)
        before = str.__getitem__(self._open.text, slice(opener[1] if opener else 0, None))
        after = str.__getitem__(text, slice(0, closer[0] if closer else None))
        if opener and opener[2].rstrip and not before and text[0].isspace():
            return False  # the control token swallows the blanks that come now
        if closer and closer[2].lstrip and not after and before[-1:].isspace():
            return False
        if self.encoder.prover.is_proven(before, after):
            return True
        if self.encoder.independent:
            at_start = self._open.start == 0 and opener is None
            whole = tokenizer.encode_text(before + after, at_start=at_start)
            alone = tokenizer.encode_text(before, at_start=at_start)
            self.num_deviating += num_differing([*alone, *tokenizer.encode_text(after)], whole)
        return self.encoder.independent

    def _add_spans(self, text: Tracked, cuts: Sequence[Cut], root_end: int, trunk_end: int) -> None:
        """Spans of no tokens yet; `_place` says where they start and end."""
        ends = [*(cut.start for cut in cuts[1:]), len(text)]
        for cut, end in zip(cuts, ends, strict=True):
            zone = Zone.LEAF
            if cut.message is not None and cut.message < trunk_end:
                zone = Zone.ROOT if cut.message < root_end else Zone.TRUNK
            digest = text_digest(str.__getitem__(text, slice(cut.start, end)))
            self.spans.append(Span(0, 0, zone, cut.source, digest))

    def _place(self, first: int, text: Tracked, starts: list[int], at_start: bool) -> None:
        """Encode `text` at the end; span first + i starts at character starts[i]."""
        base = len(self.token_ids)
        encoded = self.encoder.encode(text, starts, at_start=at_start)
        self.token_ids += encoded.token_ids
        self.num_deviating += encoded.num_deviating
        self.notes += [f"{spelling!r} in data stays plain text" for spelling in encoded.plain]
        marks = [base + mark for mark in encoded.marks]
        if first and marks:
            self.spans[first - 1] = replace(self.spans[first - 1], end=marks[0])
        ends = [*marks[1:], len(self.token_ids)]
        for i, (start, end) in enumerate(zip(marks, ends, strict=True)):
            self.spans[first + i] = replace(self.spans[first + i], start=start, end=end)
        self._open_stretch(text, encoded, base, [(s, first + i) for i, s in enumerate(starts)])

    def _open_stretch(
        self, text: Tracked, encoded: EncodedText, base: int, spans: list[tuple[int, int]]
    ) -> None:
        """Remember what `text` leaves open behind it."""
        if encoded.last_control is None:
            shift = len(self._open.text) if self._open.start < base else 0
            whole = concat((self._open.text, text)) if shift else text
            moved = [(character + shift, index) for character, index in spans]
            before = self._open.spans if shift else ()
            self._open = _OpenStretch(whole, self._open.start if shift else base, (*before, *moved))
            return
        begin, _, _ = self.encoder.prover.tokenizer.controls(text)[-1]
        inside = [(character - begin, index) for character, index in spans if character > begin]
        self._open = _OpenStretch(text[begin:], base + encoded.last_control, tuple(inside))


def _ids_digest(token_ids: Sequence[int]) -> bytes:
    """16 bytes that identify these ids, for spans of which the text is not at hand."""
    return blake2b(array("I", token_ids), digest_size=16, person=b"token ids").digest()
