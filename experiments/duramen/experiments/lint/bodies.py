"""Rules on one request body of any of the three APIs: chat completions, Anthropic, Responses."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from duramen.experiments.importers.anthropic_body import is_anthropic_body
from duramen.experiments.importers.bodies import read_body
from duramen.experiments.importers.body import Body
from duramen.experiments.importers.responses_body import is_responses_body
from duramen.experiments.lint.cache_marks import seen_in_marks
from duramen.experiments.lint.finding import Finding, Source
from duramen.experiments.lint.json_places import Path, Placed
from duramen.experiments.lint.rules import RULES
from duramen.experiments.lint.texts import Seen, seen_in_system, seen_in_tool
from duramen.experiments.lint.turns import seen_in_messages

SYSTEM_ROLES = ("system", "developer")
_TEXTS = ("text", "input_text")
_DESCRIBED_DEPTH = 24


@dataclass(frozen=True)
class GivenBody:
    """A body as it stands in its file: `body` at `path` of the file's JSON, and what it means."""

    source: Source
    placed: Placed
    path: Path
    body: Mapping[str, Any]
    read: Body

    def finding(self, rule: str, path: Path, message: str, part: tuple[int, int] | None) -> Finding:
        """`part`: characters of the string at `path`; None for all of the value."""
        path = (*self.path, *path)
        place = self.placed.places[path] if part is None else self.placed.inside(path, *part)
        where = _dotted(path)
        return Finding(
            rule, self.source.path, self.source.span(*place), message, RULES[rule].mend, where
        )


def given_body(source: Source, placed: Placed) -> GivenBody:
    """Raises TrajectoryError at what is no body."""
    value, path = placed.value, Path()
    if isinstance(value, dict) and isinstance(value.get("body"), dict) and "messages" not in value:
        value, path = value["body"], ("body",)  # of a batch file, or a logged HTTP request
    return GivenBody(source, placed, path, value, read_body(value, str(source.path)))


def check_body(given: GivenBody) -> Iterator[Finding]:
    for path, text in system_texts(given.body):
        yield from _in_text(given, path, seen_in_system(text))
    for path, text in tool_texts(given.body):
        yield from _in_text(given, path, seen_in_tool(text))
    for rule, path, message in seen_in_messages(given.body):
        yield given.finding(rule, path, message, None)
    for rule, path, message in seen_in_marks(given.body, given.read.sending):
        yield given.finding(rule, path, message, None)
    yield from _keys(given)
    for path, start, end in given.placed.repeated:
        span = given.source.span(start, end)
        what = f"the key {path[-1]!r} comes twice"
        twice = RULES["duplicate-key"]
        yield Finding(twice.name, given.source.path, span, what, twice.mend, _dotted(path))


def _in_text(given: GivenBody, path: Path, seen: Iterator[Seen]) -> Iterator[Finding]:
    for each in seen:
        yield given.finding(each.rule, path, each.message, (each.start, each.end))


def system_texts(body: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """The system texts at the head of the prompt, by their paths."""
    if is_responses_body(body):
        yield from _texts(("instructions",), body.get("instructions"))
        yield from _leading(("input",), body.get("input"))
        return
    if is_anthropic_body(body):
        yield from _texts(("system",), body.get("system"))
    yield from _leading(("messages",), body.get("messages"))


def _leading(path: Path, messages: Any) -> Iterator[tuple[Path, str]]:
    for index, message in enumerate(messages if isinstance(messages, list) else []):
        if not isinstance(message, dict) or message.get("role") not in SYSTEM_ROLES:
            return
        yield from _texts((*path, index, "content"), message.get("content"))


def _texts(path: Path, content: Any) -> Iterator[tuple[Path, str]]:
    if isinstance(content, str):
        yield path, content
    for index, part in enumerate(content if isinstance(content, list) else []):
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield (*path, index, "text"), part["text"]


def tool_texts(body: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Every description of a tool and its parameters."""
    yield from _descriptions(("tools",), body.get("tools"), 0)


def _descriptions(path: Path, value: Any, depth: int) -> Iterator[tuple[Path, str]]:
    if depth > _DESCRIBED_DEPTH:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "description" and isinstance(item, str):
                yield (*path, key), item
            else:
                yield from _descriptions((*path, key), item, depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _descriptions((*path, index), item, depth + 1)


def _keys(given: GivenBody) -> Iterator[Finding]:
    keys = list(given.body)
    if is_anthropic_body(given.body):  # its API puts tools first whatever the order
        return
    for key in ("input", "messages"):
        if given.body.get("tools") and key in keys and keys.index(key) < keys.index("tools"):
            what = f"{key} stands before tools"
            yield given.finding("tools-last", (key,), what, None)


def _dotted(path: Path) -> str:
    names = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return names.removeprefix(".")
