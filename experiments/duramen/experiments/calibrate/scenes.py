"""The calls that a calibration sends: what is cached before each, what is new, how many at once.

A scene begins with an idle engine. Its calls are sent at once; `late` is one more, sent when all of
them decode. Three kinds of scenes tell three things apart: how long prompts take, how long a step
takes that only decodes, and what a prompt adds to the steps of those that decode.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest

from duramen.layout.errors import DuramenError
from duramen.serving.kv.batching.rules import Rules

NUM_DECODED = 16  # tokens of a call whose decoding is timed
NUM_BEFORE_LATE = 4  # tokens of each call before the late one is sent
NUM_AFTER_LATE = 8  # steps that a call goes on for when the late one has its first token
SMALL = 32  # new tokens of a call whose prefill is not what is timed


@dataclass(frozen=True)
class Shape:
    """Of one call. `cached_tokens` is a multiple of the match unit."""

    cached_tokens: int
    new_tokens: int
    num_outputs: int = 1

    @property
    def prompt_tokens(self) -> int:
        return self.cached_tokens + self.new_tokens

    @property
    def num_tokens(self) -> int:
        return self.prompt_tokens + self.num_outputs


@dataclass(frozen=True)
class Scene:
    calls: tuple[Shape, ...]
    late: Shape | None = None

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """In the order of sending. The n-th begins with the n-th shared prefix."""
        return self.calls if self.late is None else (*self.calls, self.late)

    @property
    def at_once(self) -> int:
        return len(self.shapes)

    @property
    def num_tokens(self) -> int:
        return sum(shape.num_tokens for shape in self.shapes)


@dataclass(frozen=True)
class Design:
    """`held_out`: at numbers of calls at once, and mostly of sizes, that `fitted` lacks."""

    fitted: tuple[Scene, ...]
    held_out: tuple[Scene, ...]

    @property
    def scenes(self) -> tuple[Scene, ...]:
        return self.fitted + self.held_out

    @property
    def prefix_tokens(self) -> list[int]:
        """Of each shared prefix, as much as any scene has cached."""
        cached = [[shape.cached_tokens for shape in scene.shapes] for scene in self.scenes]
        return [max(column) for column in zip_longest(*cached, fillvalue=0)]

    @property
    def num_tokens(self) -> int:
        """That the cache must hold: all prefixes beside the largest scene."""
        return sum(self.prefix_tokens) + max(scene.num_tokens for scene in self.scenes)

    @property
    def max_tokens(self) -> int:
        """Of the longest call."""
        return max(shape.num_tokens for shape in chain.from_iterable(map(_shapes, self.scenes)))


def _shapes(scene: Scene) -> tuple[Shape, ...]:
    return scene.shapes


def design(top_tokens: int, rules: Rules, unit: int) -> Design:
    """Scenes with prompts of up to `top_tokens`, and some more. `unit`: match unit, tokens.

    Raises DuramenError where the engine takes fewer than 3 calls at once.
    """
    sizes = _Sizes(top_tokens, unit, rules.max_num_batched_tokens)
    made = Design(
        tuple(_only(rules.max_num_seqs, [*sizes.prompts(), *sizes.decodes(), *sizes.mixed()])),
        tuple(_only(rules.max_num_seqs, sizes.held_out())),
    )
    if not made.held_out:
        raise DuramenError(
            f"max_num_seqs {rules.max_num_seqs} leaves no calls to check the fit with: start the "
            "server with 3 at least"
        )
    return made


def _only(most_at_once: int, scenes: Iterable[Scene]) -> Iterator[Scene]:
    return (scene for scene in scenes if scene.at_once <= most_at_once)


@dataclass(frozen=True)
class _Sizes:
    """Shares of the top, in sixteenths."""

    top_tokens: int
    unit: int
    max_step_tokens: int

    def prompts(self) -> Iterator[Scene]:
        """One token each. Alone cold, alone behind a cached prefix, and several together."""
        for new in (1, 4, 8, 16):
            yield Scene((self._call(0, new),))
        for cached, new in ((8, 1), (4, 4), (8, 8)):
            yield Scene((self._call(cached, new),))
        yield Scene((self._small(16),))
        yield Scene((self._call(4, 4),) * 2)
        yield Scene((self._call(0, 2),) * 4)

    def decodes(self) -> Iterator[Scene]:
        for at_once, cached in ((1, 0), (1, 16), (2, 8), (4, 4), (8, 0), (8, 4)):
            yield Scene((self._small(cached, 1 + NUM_DECODED),) * at_once)

    def mixed(self) -> Iterator[Scene]:
        yield self._beside(1, 2, self._call(0, 8))
        yield self._beside(3, 4, self._call(4, 4))
        yield self._beside(7, 1, self._call(0, 4))

    def held_out(self) -> Iterator[Scene]:
        three = self._call(0, 6, 12), self._call(6, 2, 16), self._call(2, 3, 14)
        yield Scene(three)
        yield self._beside(2, 6, self._call(0, 6))
        yield Scene((*three, self._call(3, 1, 12), self._call(0, 3, 16), self._small(5, 14)))
        yield self._beside(5, 2, self._call(3, 5))

    def _beside(self, num_calls: int, cached: int, late: Shape) -> Scene:
        """`num_calls` that decode for as long as `late` takes."""
        num_steps = -(-late.new_tokens // max(self.max_step_tokens - num_calls, 1))
        num_outputs = NUM_BEFORE_LATE + num_steps + NUM_AFTER_LATE
        return Scene((self._small(cached, num_outputs),) * num_calls, late)

    def _call(self, cached: int, new: int, num_outputs: int = 1) -> Shape:
        return Shape(self._cached(cached), self.top_tokens * new // 16, num_outputs)

    def _small(self, cached: int, num_outputs: int = 1) -> Shape:
        return Shape(self._cached(cached), SMALL, num_outputs)

    def _cached(self, sixteenths: int) -> int:
        return self.top_tokens * sixteenths // 16 // self.unit * self.unit
