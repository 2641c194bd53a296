"""What the injection bench is made of: real calls, what is done to them, and what must be said.

A scene is two real calls of which the second only appends to the first. A variant makes a case of
it: sessions in which the prefix is lost at one known call for one known cause.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from duramen.experiments.injection.lab import Lab
from duramen.experiments.trajectory import Call, Session, Tool, Usage
from duramen.layout.diagnose.causes import Cause

START_S = 1_770_000_000.0  # Unix time of every made session, unless a variant says otherwise


@dataclass(frozen=True)
class Scene:
    """`after` begins with `before`'s messages, then quotes its reply. Neither bears times, usage or
    ids. `root`: a short name of where it is from."""

    root: str
    before: Call
    after: Call
    tools: tuple[Tool, ...] = ()

    @property
    def calls(self) -> tuple[Call, Call]:
        return self.before, self.after


@dataclass(frozen=True)
class Case:
    """`causes`: the right answers, more than one only where a fair reader could give either; None
    among them is "no break". `at`: session id and index of the call that is asked about.
    `settings`: what differs from explain.Settings' own defaults. `parts`: whether the prompt itself
    differs, so that there is a first token to name."""

    causes: frozenset[Cause | None]
    sessions: tuple[Session, ...]
    at: tuple[str, int]
    model: str = "chatml"
    settings: Mapping[str, Any] = field(default_factory=dict)
    parts: bool = True


Make = Callable[[Scene, Random, Lab], Case | None]  # None: this scene has not what it takes


@dataclass(frozen=True)
class Variant:
    """`published`: needs templates or tokenizers that are not part of the repository."""

    cause: Cause | None
    name: str
    make: Make
    published: bool = False


def variants_of(
    cause: Cause | None, makes: Mapping[str, Make], published: Mapping[str, Make] | None = None
) -> list[Variant]:
    """By name. `published`: those that need what Variant.published says."""
    return [
        *(Variant(cause, name, make) for name, make in makes.items()),
        *(Variant(cause, name, make, published=True) for name, make in (published or {}).items()),
    ]


def session_of(
    calls: tuple[Call, ...], tools: tuple[Tool, ...] = (), name: str = "s", start_s: float = START_S
) -> Session:
    return Session(name, calls, tools, start_time_s=start_s)


def parted(
    scene: Scene,
    before: Call,
    after: Call,
    causes: Cause | frozenset[Cause | None] | None,
    model: str = "chatml",
) -> Case:
    """One session of the two calls; the second is asked about."""
    causes = causes if isinstance(causes, frozenset) else frozenset([causes])
    return Case(causes, (session_of((before, after), scene.tools),), ("s", 1), model)


def bare(call: Call) -> Call:
    """The call as text alone: no time, usage or facts of how it was sent."""
    return Call(call.messages, call.reply, usage=Usage(), tools=call.tools)
