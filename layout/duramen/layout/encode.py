"""Rendered text to token ids, cut at given places, with what each cut cost.

A cut inside ordinary text is encoded piece by piece only where the seam is proven. Where it is not,
the whole stretch between control tokens is encoded at once (fails closed) and the cut only says to
which side a token belongs: to the side of its first character. `independent` encodes every piece
alone on purpose; how many ids differ from the canonical ones is counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise

from duramen.layout.blocks import common_prefix
from duramen.layout.seams import SeamProver
from duramen.layout.tokenizer import Section
from duramen.layout.tracked import Tracked


@dataclass
class EncodedText:
    """`marks[i]` is the index of the first token at or behind cut i; `last_control` that of the
    last control token, None if there is none.

    `num_deviating` ids are not canonical (only with independent seams); `plain` are control
    spellings in data that stayed plain text.
    """

    token_ids: list[int] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    last_control: int | None = None
    num_deviating: int = 0
    plain: tuple[str, ...] = ()


@dataclass(frozen=True)
class Encoder:
    prover: SeamProver
    independent: bool = False

    def encode(self, text: Tracked, cuts: Sequence[int], *, at_start: bool = True) -> EncodedText:
        """`cuts` are ascending character positions in `text`."""
        encoded = self.prover.tokenizer.encode(text, at_start=at_start)
        result = EncodedText(plain=encoded.plain)
        num_done = 0
        for section in encoded.sections:
            inner = []
            while num_done < len(cuts) and cuts[num_done] < section.end:
                if cuts[num_done] <= section.start:
                    result.marks.append(len(result.token_ids))
                else:
                    inner.append(cuts[num_done])
                num_done += 1
            if section.control:
                result.last_control = len(result.token_ids)
            if section.control or not inner:
                result.token_ids += section.token_ids
                result.marks += [len(result.token_ids)] * len(inner)
            else:
                self._cut_section(result, text, section, inner, at_start and section.start == 0)
        result.marks += [len(result.token_ids)] * (len(cuts) - num_done)
        return result

    def _cut_section(
        self,
        result: EncodedText,
        text: Tracked,
        section: Section,
        cuts: list[int],
        at_start: bool,
    ) -> None:
        bounds = [section.start, *cuts, section.end]
        pieces = [str.__getitem__(text, slice(a, b)) for a, b in pairwise(bounds)]
        whole = "".join(pieces)
        unproven = sum(
            not self.prover.is_proven(whole[: cut - section.start], whole[cut - section.start :])
            for cut in cuts
        )
        base = len(result.token_ids)
        token_ids = section.token_ids
        encode = self.prover.tokenizer.encode_text
        if unproven and not self.independent:
            starts = self.prover.tokenizer.token_starts(whole, at_start=at_start)
            result.marks += [
                base + sum(start < cut - section.start for start in starts) for cut in cuts
            ]
        else:
            alone = pieces if unproven else pieces[:-1]  # proven: the whole has the same ids
            encoded = [encode(p, at_start=at_start and i == 0) for i, p in enumerate(alone)]
            result.marks += [base + n for n in accumulate(map(len, encoded))][: len(cuts)]
            if unproven:
                token_ids = list(chain.from_iterable(encoded))
                result.num_deviating += num_differing(token_ids, section.token_ids)
        result.token_ids += token_ids


def num_differing(token_ids: Sequence[int], canonical: Sequence[int]) -> int:
    """Ids of `token_ids` between the common head and the common tail with `canonical`."""
    head = common_prefix(token_ids, canonical)
    a, b = list(token_ids[head:]), list(canonical[head:])
    return len(a) - common_prefix(a[::-1], b[::-1])
