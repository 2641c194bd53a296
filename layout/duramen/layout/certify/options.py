"""Which arguments of a template, and which clock, change what it writes, and from where on."""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from jinja2 import meta, nodes

from duramen.layout.certify.rendering import NOW, Rendering, data_end
from duramen.layout.certify.transitions import FIRST, READ, TRANSITIONS, Tool
from duramen.layout.delta import common_text
from duramen.layout.errors import TemplateError
from duramen.layout.jinja import TrackedEnvironment
from duramen.layout.template import Message
from duramen.layout.tokenizer_files import SPECIAL_KEYS
from duramen.layout.tracked import Tracked

Moves = Literal["head", "generation-prompt", "history"]

# What every renderer gives a template: no options.
_GIVEN = {"messages", "tools", "documents", "add_generation_prompt", "strftime_now", *SPECIAL_KEYS}
_GIVEN |= {"raise_exception", "image_token", "audio_token", "chat_template"}
LATER = datetime.datetime(2027, 10, 13, 14, 15, 16, tzinfo=datetime.UTC)  # differs in every field
NUM_VALUES = 8  # of one option


@dataclass(frozen=True)
class Option:
    """`value` instead of nothing changes the text from character `char` on.

    `moves`: "head", in front of the end of the first user message: a session that changes it loses
    everything; "generation-prompt", what opens the reply; "history", only how replies are written.
    """

    name: str
    value: Any
    moves: Moves
    char: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def options(rendering: Rendering) -> list[Option]:
    """Every option and value that changes something, the tools and the date among them."""
    found = []
    for name, value, change in _changes(rendering.template.source):
        moved = _moved(rendering, change)
        if moved is not None:
            found.append(Option(name, value, *moved))
    return found


def candidates(source: str) -> list[tuple[str, Any]]:
    """Names that a template reads before it sets them, with values to try: true, false, and the
    strings that they are compared with. Sorted by name."""
    environment = TrackedEnvironment()
    names = meta.find_undeclared_variables(environment.parse(source))  # and changes the tree
    names -= _GIVEN | set(environment.globals)
    tree = environment.parse(source)
    return [(name, value) for name in sorted(names) for value in _values(tree, name)]


def _values(tree: nodes.Template, name: str) -> list[Any]:
    values: list[Any] = [True, False]
    for compared in tree.find_all(nodes.Compare):
        if all(used.name != name for used in compared.find_all(nodes.Name)):
            continue
        for constant in compared.find_all(nodes.Const):
            if isinstance(constant.value, str) and constant.value not in values:
                values.append(constant.value)
    return values[:NUM_VALUES]


@dataclass(frozen=True)
class _Change:
    """What one option adds to a call."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Tool] = ()
    now: datetime.datetime = NOW

    def prompt(
        self, rendering: Rendering, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> Tracked:
        return rendering.prompt(messages, [*tools, *self.tools], self.arguments, now=self.now)


def _changes(source: str) -> Iterator[tuple[str, Any, _Change]]:
    yield "tools", "given", _Change(tools=[READ])
    yield "date", LATER.date().isoformat(), _Change(now=LATER)
    for name, value in candidates(source):
        yield name, value, _Change({name: value})


def _moved(rendering: Rendering, change: _Change) -> tuple[Moves, int] | None:
    """What it moves first; None if nothing, or if the template refuses it."""
    first = FIRST if rendering.takes_system else FIRST[1:]
    histories = [rendering.fitted(t) for t in TRANSITIONS if t.name.startswith("thinking-")]
    probes = [(first, []), (first, [READ]), *((t.next, t.tools) for t in histories)]
    for messages, tools in probes:
        if change.tools and tools:
            continue
        try:
            before = _Change().prompt(rendering, messages, tools)
            after = change.prompt(rendering, messages, tools)
        except TemplateError:
            continue
        char = common_text(before, after)
        if char == len(before) == len(after):
            continue
        if messages is not first:
            return "history", char
        return ("head" if char < data_end(before) else "generation-prompt"), char
    return None
