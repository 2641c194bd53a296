"""What a call does to what is known: it reads or writes.

Reads give artifacts; writes supersede what they may have touched. In doubt a call writes, and a
write whose target cannot be told touches all that calls have shown: a prompt that was encoded again
costs less than one that is wrong. So a tool or program that nobody knows is such a write, a test
run or a script, too, though most of them leave the sources alone. Neither a read nor a write is
only what surely shows and changes nothing: to think, to answer, to calculate, to tell the time.

What this cannot see: what changes without a call, by a program left running or by other people.
"""

from dataclasses import dataclass
from enum import Enum

from duramen.experiments.layouts.places import Place, may_touch


class State(Enum):
    """What calls change that is no place."""

    PLAN = "plan"  # the agent's own list of steps
    WINDOW = "window"  # what a call that names no place shows: a page, the lines around a cursor
    FOLDER = "folder"  # where a shell stands


@dataclass(frozen=True)
class Read:
    """`key` names the artifact: the place and what was shown of it. `places`: a write to any of
    them makes it stale; None: every write to a place does. `is_whole`: all of one file is shown."""

    key: str
    places: tuple[Place, ...] | None
    is_whole: bool = False
    shows: frozenset[State] = frozenset()
    changes: frozenset[State] = frozenset()
    folder: Place | None = None


@dataclass(frozen=True)
class Write:
    """`places` is None where the target cannot be told. `folder`: where the shell stands after it,
    if that is sure. `is_atomic`: if it says that it failed, nothing was done."""

    places: tuple[Place, ...] | None
    changes: frozenset[State] = frozenset()
    folder: Place | None = None
    is_atomic: bool = False


@dataclass(frozen=True)
class Plan:
    """The plan was handed over: `text`, with `items` in it."""

    key: str
    text: str
    items: tuple[str, ...] = ()


Action = Read | Write | Plan | None


def supersedes(write: Write, read: Read) -> bool:
    """Whether what was read may be another after the write."""
    if write.changes & depends_on(read):
        return True
    if not write.places and write.places is not None:
        return False
    if read.places == ():
        return State.PLAN not in read.shows
    if write.places is None or read.places is None:
        return True
    return any(may_touch(w, r) for w in write.places for r in read.places)


def depends_on(read: Read) -> frozenset[State]:
    states = set(read.shows)
    if read.places is None:
        states.add(State.WINDOW)
    elif any(each.is_open for each in read.places):
        states.add(State.FOLDER)
    return frozenset(states)
