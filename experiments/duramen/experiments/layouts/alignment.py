"""Ends the zones of a conversation at boundaries of the match unit, where that is expected to pay.

What is expected is what was measured so far. Padding in the trunk saves until what stands before it
changes or artifacts are appended behind it; if that happened in c of n calls, it saves in (n - c) /
c later calls. Padding behind the root saves its rest whenever the first
artifact changes; it goes in at such a call only, when the trunk is encoded again anyway.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from duramen.experiments.layouts.artifacts import Version
from duramen.experiments.layouts.frames import padding_message
from duramen.experiments.layouts.sending import Zones, end_of_trunk, message_starts
from duramen.experiments.trajectory import Message
from duramen.layout.align import Alignment, align, padding_tokens
from duramen.layout.zones import Prompt, Zone

MAX_TRIES = 8  # to hit a boundary exactly

Send = Callable[[Zones], Prompt]


@dataclass(frozen=True)
class Placed:
    """A decision, with the call that it was made for."""

    call: int
    zone: Zone
    alignment: Alignment


@dataclass
class Aligner:
    """`decisions`: those that moved or padded. A decision holds while the trunk is the same, and
    padding stays where it is until something before it changes."""

    unit: int
    decisions: list[Placed] = field(default_factory=list)
    _trunk: list[Version] = field(default_factory=list)
    _num_calls: int = 0
    _changes: list[int] = field(default_factory=list)  # per change, the first artifact that did
    _num_appended: int = 0  # changes that came behind all that stood there
    _paddings: list[tuple[int, Message]] = field(default_factory=list)  # (artifacts before it, it)
    _num_moved: int = 0

    def aligned(self, zones: Zones, trunk: Sequence[Version], send: Send, call: int) -> Zones:
        """`zones` with padding put in and its trunk's last messages moved; `trunk` are the
        artifacts of its messages, `send` renders."""
        self._num_calls += 1
        if list(trunk) != self._trunk:
            same = num_common(self._trunk, trunk)
            if same == len(self._trunk):
                self._num_appended += 1
            else:
                self._changes.append(same)
            self._trunk, self._num_moved = list(trunk), 0
            self._paddings = [each for each in self._paddings if each[0] <= same]
            if same == 0:
                self._decide_root(zones, send, call)
            self._decide_trunk(self._with(zones), send, call)
        return self._with(zones)

    def _with(self, zones: Zones) -> Zones:
        artifacts = zones.trunk
        trunk: list[Message] = []
        done = 0
        for num_before, padding in self._paddings:
            trunk += [*artifacts[done:num_before], padding]
            done = num_before
        num_kept = len(artifacts) - self._num_moved
        kept, moved = artifacts[done:num_kept], artifacts[num_kept:]
        return replace(zones, trunk=(*trunk, *kept), leaf=(*moved, *zones.leaf))

    def _decide_root(self, zones: Zones, send: Send, call: int) -> None:
        num_changes = self._changes.count(0)
        if self._paddings or not num_changes:
            return
        alone = replace(zones, trunk=())
        end = end_of_trunk(send(alone))
        smallest = _smallest(alone, send, end)
        made = align(end, self.unit, (), (num_changes,), smallest)
        self._pad(alone, 0, (send, end, smallest), Placed(call, Zone.ROOT, made))

    def _decide_trunk(self, zones: Zones, send: Send, call: int) -> None:
        """`zones` holds the paddings that stay; only what stands behind them can move."""
        prompt = send(zones)
        end = end_of_trunk(prompt)
        num_movable = len(self._trunk) - (self._paddings[-1][0] if self._paddings else 0)
        last = len(zones.root) + len(zones.trunk)
        starts = message_starts(prompt)
        marks = [starts.get(i, end) for i in range(last - num_movable, last)]
        sizes = [b - a for a, b in pairwise([*marks, end])]
        smallest = _smallest(zones, send, end)
        expected = self._expectations()[: num_movable + 1]
        made = align(end, self.unit, sizes[::-1], expected, smallest)
        num_kept = len(zones.trunk) - made.num_moved
        kept = replace(zones, trunk=zones.trunk[:num_kept])
        end -= sum(sizes[len(sizes) - made.num_moved :])
        num_before = len(self._trunk) - made.num_moved
        if self._pad(kept, num_before, (send, end, smallest), Placed(call, Zone.TRUNK, made)):
            self._num_moved = made.num_moved

    def _expectations(self) -> list[float]:
        """Later calls for which padding behind all but the last n artifacts works, n from 0 on."""
        expected = []
        for num_kept in range(len(self._trunk), -1, -1):
            num_changes = sum(position < num_kept for position in self._changes)
            num_changes += self._num_appended
            expected.append((self._num_calls - num_changes) / max(num_changes, 1))
        return expected

    def _pad(
        self, zones: Zones, num_before: int, measure: tuple[Send, int, int], placed: Placed
    ) -> bool:
        """Padding behind the trunk of `zones`, up to the boundary exactly. False where the decision
        wants none or no number of words does it. `measure`: what renders, the token at which that
        trunk ends, and the tokens of padding without a word."""
        send, end, smallest = measure
        if not placed.alignment.num_padding:
            return False
        target = end + padding_tokens(end, self.unit, smallest)
        num_words = target - end - smallest
        for _ in range(MAX_TRIES):
            message = padding_message(num_words)
            reached = end_of_trunk(send(replace(zones, trunk=(*zones.trunk, message))))
            if reached == target:
                self._paddings.append((num_before, message))
                self.decisions.append(placed)
                return True
            num_words += target - reached
            if num_words < 0:
                break
        return False


def num_common(old: Sequence[Version], new: Sequence[Version]) -> int:
    """How many artifacts both begin with."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(old), len(new)))


def _smallest(zones: Zones, send: Send, end: int) -> int:
    """Tokens of padding without a word."""
    padded = replace(zones, trunk=(*zones.trunk, padding_message(0)))
    return max(end_of_trunk(send(padded)) - end, 1)
