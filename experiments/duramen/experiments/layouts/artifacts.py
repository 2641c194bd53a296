"""The working set of a conversation: the current version of everything that was read.

A pure fold over the messages, turn by turn (an assistant message with what follows it), so equal
messages give equal working sets, in whatever steps they came. An artifact is the text that a read
gave (see actions.py); its version counts the different texts that its key has had. A write that may
have touched it supersedes it until it is read again; so does another text of what may be the same
file under another name. Reads that failed (see outcomes.py), and results that are not text alone,
are no artifacts. A write whose answer is not there yet counts. The agent's plan is an artifact,
too: its own tools alone change it.

Order: new ones at the end. With `rewrite`, what changed or was superseded leaves its place, and
from the first such place on the rest is ordered by changes per turn since first seen, slowest
first. With `tombstone`, what stands there stays, and a new version goes to the end.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from duramen.experiments.layouts.actions import Plan, Read, State, Write, supersedes
from duramen.experiments.layouts.catalogue import Change
from duramen.experiments.layouts.observations import Use, message_text, uses
from duramen.experiments.layouts.outcomes import action_of
from duramen.experiments.layouts.places import Place, may_be_one
from duramen.experiments.trajectory import Message
from duramen.layout.planner import plan
from duramen.layout.zones import Segment, Zone


@dataclass(frozen=True)
class Version:
    """A text of an artifact."""

    key: str
    number: int
    text: str


@dataclass(frozen=True)
class _Known:
    """What is known of a key. `latest` is not what it would give now if it is superseded."""

    latest: Version
    read: Read
    first_turn: int
    num_changes: int = 0
    is_superseded: bool = False


@dataclass
class WorkingSet:
    """`trunk`: what stands there, in order. `results`: the message that gave a version, by its
    index; `num_turns`: assistant messages so far."""

    change: Change
    trunk: list[Version] = field(default_factory=list)
    results: dict[int, Version] = field(default_factory=dict)
    num_turns: int = 0
    num_messages: int = 0
    _known: dict[str, _Known] = field(default_factory=dict)
    _folder: Place | None = None  # where the last command that went elsewhere left the shell

    def advance(self, messages: Sequence[Message], root: int) -> None:
        """Take in what follows the messages that were seen; those before `root` hold no reads."""
        start = max(self.num_messages, root)
        begins = [i for i in range(start, len(messages)) if messages[i].get("role") == "assistant"]
        turns: dict[int, list[Use]] = {i: [] for i in begins}
        for use in uses(messages, self._first_open(messages, start)):
            if use.caller in turns or (use.result or 0) >= start:
                turns.setdefault(use.caller, []).append(use)
        for caller, found in sorted(turns.items()):
            self.num_turns += caller >= start
            self._take(found, messages)
        self.num_messages = len(messages)

    def is_current(self, version: Version) -> bool:
        known = self._known[version.key]
        return known.latest == version and not known.is_superseded

    def current(self, key: str) -> Version | None:
        """The version of `key` that holds; None while it is superseded."""
        known = self._known[key]
        return None if known.is_superseded else known.latest

    def _first_open(self, messages: Sequence[Message], start: int) -> int:
        """The assistant message whose answers may still come in."""
        before = [i for i in range(start) if messages[i].get("role") == "assistant"]
        return before[-1] if before and start < len(messages) else start

    def _take(self, found: Sequence[Use], messages: Sequence[Message]) -> None:
        for use in found:
            text = None if use.result is None else message_text(messages[use.result])
            action = action_of(use, text)
            if isinstance(action, Plan):
                self._plan(action, text, use.result)
            elif isinstance(action, Write):
                self._write(action)
            elif isinstance(action, Read):
                self._write(Write((), action.changes, action.folder))
                if text is not None and use.result is not None:
                    self._read(action, text, use.result)
        self._order()

    def _write(self, write: Write) -> None:
        if State.FOLDER in write.changes:
            if write.folder is not None and write.folder == self._folder:
                write = replace(write, changes=write.changes - {State.FOLDER})
            else:
                self._folder = write.folder
        for key, known in self._known.items():
            if supersedes(write, known.read):
                self._supersede(key)

    def _plan(self, plan: Plan, text: str | None, result: int | None) -> None:
        """A plan's text is the answer if that holds it, else the arguments that it was given in."""
        states = frozenset({State.PLAN})
        self._write(Write((), states))
        read = Read(plan.key, (), shows=states)
        if text is not None and plan.items and all(item in text for item in plan.items):
            self._read(read, text, result)
        elif text is not None:
            self._read(read, plan.text, None)

    def _supersede(self, key: str) -> None:
        known = self._known[key]
        if not known.is_superseded:
            self._known[key] = replace(known, is_superseded=True, num_changes=known.num_changes + 1)

    def _read(self, read: Read, text: str, result: int | None) -> None:
        for key, other in self._known.items():
            if key != read.key and other.latest.text != text and _may_show_one(read, other.read):
                self._supersede(key)
        known = self._known.get(read.key)
        if known is None:
            known = _Known(Version(read.key, 1, text), read, self.num_turns)
        elif known.latest.text != text:
            version = Version(read.key, known.latest.number + 1, text)
            changes = known.num_changes + (not known.is_superseded)
            known = replace(known, latest=version, num_changes=changes)
        self._known[read.key] = replace(known, read=read, is_superseded=False)
        if result is not None:
            self.results[result] = known.latest

    def _order(self) -> None:
        standing = set(self.trunk)
        current = [k.latest for k in self._known.values() if not k.is_superseded]
        new = [version for version in current if version not in standing]
        if self.change is Change.TOMBSTONE:
            self.trunk += new
            return
        first = next(
            (i for i, v in enumerate(self.trunk) if not self.is_current(v)), len(self.trunk)
        )
        if first == len(self.trunk):
            self.trunk += new
            return
        keys = dict.fromkeys(version.key for version in [*self.trunk[first:], *new])
        holding = [version for key in keys if (version := self.current(key)) is not None]
        self.trunk[first:] = self._slowest_first(holding)

    def _slowest_first(self, versions: Sequence[Version]) -> list[Version]:
        by_key = {version.key: version for version in versions}
        segments = [
            Segment(v.text, Zone.TRUNK, v.key, str(v.number), self._rate(v.key)) for v in versions
        ]
        planned = plan(segments, sys.maxsize, len).segments
        return [by_key[segment.source] for segment in planned]

    def _rate(self, key: str) -> float:
        known = self._known[key]
        return known.num_changes / max(self.num_turns - known.first_turn, 1)


def _may_show_one(a: Read, b: Read) -> bool:
    """Whether both show all of what may be one file, under two names."""
    shown = [*(a.places or ()), *(b.places or ())]
    return a.is_whole and b.is_whole and len(shown) == 2 and may_be_one(*shown)
