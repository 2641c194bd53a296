"""Recorded calls: every break that `duramen why` names, and the text rules on what sessions begin
with, where the calls themselves do not show the opposite.

The place of a finding is the first line of the file that bears the newest message of the call.
"""

import json
import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from duramen.experiments.importers.read import read_sessions
from duramen.experiments.layouts.model import Model
from duramen.experiments.lint.bodies import system_texts, tool_texts
from duramen.experiments.lint.finding import Finding, Span
from duramen.experiments.lint.rules import NOT_RULES, RULES
from duramen.experiments.lint.texts import Seen, seen_in_text, seen_in_tool
from duramen.experiments.trajectory import Call, Message, Session
from duramen.experiments.why.explain import explain
from duramen.experiments.why.explained import ExplainedBreak
from duramen.experiments.why.log import Settings
from duramen.layout.diagnose.causes import Cause

SNIPPET_CHARS = 60
SHOWN_BY: dict[str, Cause] = {
    "clock-in-root": "clock",
    "id-in-root": "uuid-or-hash",
    "counter-in-root": "counter",
    "volatile-in-tools": "tool-set-changed",
}
_GUESSED = frozenset(SHOWN_BY)
Skipped = Callable[[str], None]


@dataclass
class _Broken:
    """All breaks of one cause in one session."""

    first: ExplainedBreak
    call: int
    newest: Message | None
    num: int = 0
    lost_tokens: int = 0


@dataclass
class _Head:
    """A text that sessions begin with, and what is seen in it."""

    seen: Seen
    text: str
    num_sessions: int = 1


@dataclass
class _Read:
    """What is kept of the sessions while they stream by. `notes`: theirs, each once."""

    notes: list[str]
    paths: dict[str, Path] = field(default_factory=dict)
    newest: dict[str, list[Message | None]] = field(default_factory=dict)
    heads: dict[tuple[Path, str, str], list[_Head]] = field(default_factory=dict)

    def sessions(
        self, paths: Sequence[Path], skipping: Callable[[Path], Skipped | None]
    ) -> Iterator[Session]:
        for path in paths:
            for session in read_sessions([path], skipping(path)):
                yield self._kept(session, path)

    def _kept(self, session: Session, path: Path) -> Session:
        self.notes += [note for note in session.notes if note not in self.notes]
        name = session.session_id
        if name in self.paths:
            name = f"{path}/{name}"
        self.paths[name] = path
        self.newest[name] = [call.messages[-1] if call.messages else None for call in session.calls]
        if session.calls:
            self._see(session, session.calls[0], path)
        return replace(session, session_id=name)

    def _see(self, session: Session, call: Call, path: Path) -> None:
        body = {"messages": list(call.messages), "tools": list(session.tools_of(call))}
        kinds = (("system", system_texts, seen_in_text), ("tools", tool_texts, seen_in_tool))
        for kind, texts, seen_in in kinds:
            for text in dict.fromkeys(text for _, text in texts(body)):
                heads = self.heads.get((path, kind, text))
                if heads is None:
                    self.heads[path, kind, text] = [_Head(s, text) for s in seen_in(text)]
                for head in heads or ():
                    head.num_sessions += 1


def check_logs(
    paths: Sequence[Path],
    model: Model,
    settings: Settings,
    skipping: Callable[[Path], Skipped | None],
    notes: list[str],
) -> Iterator[Finding]:
    """Raises TrajectoryError like read_sessions; where `skipping` gives a path something to tell
    the reason to, such a file is left out. `notes` gets those of the sessions."""
    read = _Read(notes)
    broken: dict[tuple[str, Cause], _Broken] = {}
    for call in explain(read.sessions(paths, skipping), model, settings):
        found = call.broken
        if found is None or found.cause in NOT_RULES:
            continue
        key = (call.session, found.cause)
        if key not in broken:
            broken[key] = _Broken(found, call.call, read.newest[call.session][call.call])
        broken[key].num += 1
        broken[key].lost_tokens += found.lost_tokens
    seen = {(read.paths[session], cause) for session, cause in broken}
    yield from (_of_break(read.paths[key[0]], key[0], each) for key, each in broken.items())
    yield from _of_heads(read, seen)


def _of_break(path: Path, session: str, broken: _Broken) -> Finding:
    first = broken.first
    against = f", against call {first.vs_call}"
    if first.vs_session != session:
        against += f" of session {first.vs_session}"
    where = f"session {session}, call {broken.call}{against if first.vs_call is not None else ''}"
    more = "" if broken.num == 1 else f"; {broken.num} calls of the session"
    token = "" if first.token is None else f" at token {first.token}"
    what = f"{first.evidence}{token}, {broken.lost_tokens:,} tokens computed again{more}"
    return Finding(first.cause, path, _line_of(path, broken.newest), what, first.mend, where)


def _of_heads(read: _Read, seen: set[tuple[Path, Cause]]) -> Iterator[Finding]:
    """One finding of a rule for each file. A guess that two sessions refute is none: both began
    with the very same value."""
    told: set[tuple[Path, str]] = set()
    for (path, kind, text), heads in read.heads.items():
        for head in heads:
            rule = head.seen.rule
            is_shown = (path, SHOWN_BY.get(rule)) in seen
            is_refuted = rule in _GUESSED and head.num_sessions > 1
            if is_shown or is_refuted or (path, rule) in told:
                continue
            told.add((path, rule))
            span = _line_with(path, text[head.seen.start :] if rule in _GUESSED else text)
            where = "system text" if kind == "system" else "tools"
            yield Finding(rule, path, span, head.seen.message, RULES[rule].mend, where)


def _line_of(path: Path, message: Message | None) -> Span | None:
    return None if message is None else _line_with(path, _text_of(message))


def _text_of(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts: Iterable[Any] = content if isinstance(content, list) else ()
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return next((text for text in texts if isinstance(text, str)), "")


def _line_with(path: Path, text: str) -> Span | None:
    """The first line that bears the beginning of a text, as JSON spells it; None if none does."""
    snippet = text[:SNIPPET_CHARS]
    spelled = {json.dumps(snippet, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    wanted = [each.encode("utf-8", "surrogatepass") for each in spelled if each]
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            places = [at for each in wanted if (at := data.find(each)) >= 0]
            if not places:
                return None
            before = data[: min(places)]
    except (OSError, ValueError):  # gone, or empty
        return None
    line = before.count(b"\n") + 1
    start = before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")
    column = len(start) + 1
    return Span(line, column, line, column)
