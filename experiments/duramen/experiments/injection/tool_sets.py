"""Tools in another order, and other tools."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from duramen.experiments.injection.cases import START_S, Case, Make, Scene, parted, session_of
from duramen.experiments.injection.edits import copied, with_system
from duramen.experiments.injection.lab import Lab
from duramen.experiments.injection.values import other_task
from duramen.layout.diagnose.causes import Cause

Change = Callable[[list[Any], Random], list[Any]]


def changed_tools(
    cause: Cause,
    change: Change,
    *,
    more: tuple[Any, ...] = (),
    across: bool = False,
    also: tuple[Cause, ...] = (),
    undone: bool = False,
) -> Make:
    """`more`: tools that stand behind the scene's own in both calls, so that there are some.
    `across`: two sessions. `undone`: the earlier call has the changed tools."""

    def make(scene: Scene, rng: Random, lab: Lab) -> Case | None:
        given = [*copied(scene.tools), *copied(more)]
        tools = change(copied(given), rng)
        if tools == given:
            return None
        first, later = (tools, given) if undone else (given, tools)
        causes: frozenset[Cause | None] = frozenset([cause, *also])
        before = with_system(scene.before) if across else scene.before
        before = replace(before, tools=tuple(first))
        after = replace(other_task(scene, rng) if across else scene.after, tools=tuple(later))
        if not across:
            return parted(scene, before, after, causes)
        sessions = (session_of((before,), (), "a"), session_of((after,), (), "b", START_S + 900))
        return Case(causes, sessions, ("b", 0))

    return make


def tool(name: str, description: str, **parameters: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}
