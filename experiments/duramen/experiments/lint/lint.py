"""Lints files and folders: each by what it is, then what they tell together."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from os.path import realpath
from pathlib import Path
from typing import Any

from duramen.experiments.importers.read import LINE_LEFT_OUT
from duramen.experiments.layouts.model import Model
from duramen.experiments.lint.bodies import check_body
from duramen.experiments.lint.files import (
    MARKDOWN_SUFFIXES,
    TEMPLATE_SUFFIXES,
    Linted,
    files_below,
    open_file,
)
from duramen.experiments.lint.finding import Finding, Source
from duramen.experiments.lint.logs import Skipped, check_logs
from duramen.experiments.lint.prefix import short_prefix
from duramen.experiments.lint.rules import RULES
from duramen.experiments.lint.texts import seen_in_file
from duramen.experiments.lint.together import check_together
from duramen.experiments.opening import DEFAULT_UNIT
from duramen.experiments.why.log import Settings
from duramen.layout.errors import DuramenError, TrajectoryError

_IGNORED = re.compile(r"duramen:\s?ignore\s((?:[a-z-]+[, ]{0,2})+)")
_CHAT_TEMPLATE = re.compile(r"\badd_generation_prompt\b|\bin messages\b")
OF_CHAT_TEMPLATES = {"bos-in-text", "trailing-blanks", "crlf"}  # what it writes is not what it is


@dataclass(frozen=True)
class Report:
    """`paths`: the files that were linted, in order. `findings`: by file, line and column. `notes`:
    a line for each file that holds nothing to lint, beginning with its name, and for what is to be
    known of recorded calls."""

    paths: tuple[Path, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    @property
    def num_failing(self) -> int:
        return sum(RULES[each.rule].severity != "note" for each in self.findings)

    def as_json(self) -> dict[str, Any]:
        return {
            "num_files": len(self.paths),
            "num_failing": self.num_failing,
            "findings": [
                {**vars(each), "path": _shown(each.path), "severity": RULES[each.rule].severity}
                | {"span": each.span and each.span._asdict()}
                for each in self.findings
            ],
            "notes": [note.encode("utf-8", "backslashreplace").decode() for note in self.notes],
        }


@dataclass(frozen=True)
class Linter:
    """`model`: loads what counts tokens; it is asked only for logs, or where `unit_tokens` is
    given. `skipped`: gets the reason for each file that cannot be read; None: that raises for a
    file that is named, and is a note for one of a folder."""

    model: Callable[[], Model]
    unit_tokens: int | None = None
    ignored: AbstractSet[str] = frozenset()
    skipped: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        unknown = sorted(self.ignored - RULES.keys())
        if unknown:
            raise DuramenError(f"no rule is called {unknown[0]}; duramen lint --rules shows them")

    def lint(self, paths: Iterable[Path]) -> Report:
        """Raises DuramenError, at a named file that is neither prompt, body nor log."""
        paths, notes, left_out = list(paths), list[str](), set[Path]()
        named = {realpath(path) for path in paths if not path.is_dir()}

        def skipping(path: Path) -> Skipped | None:
            if self.skipped is not None or realpath(path) in named:
                return self.skipped

            def leave_out(reason: str) -> None:
                if not reason.endswith(LINE_LEFT_OUT):
                    left_out.add(path)
                is_unknown = ": unknown form, " in reason
                notes.append(f"{path} is no recording or body" if is_unknown else reason)

            return leave_out

        files = [each for path in files_below(paths) for each in _opened(path, skipping(path))]
        for file in files:
            if file.form == "ids":
                notes.append(f"{file.path} bears token ids, no text")
        found = [
            each for each in self._found(files, skipping, notes) if each.rule not in self.ignored
        ]
        order = {file.path: number for number, file in enumerate(files)}
        found.sort(key=lambda each: (order[each.path], each.span or (0, 0, 0, 0), each.rule))
        linted = tuple(path for path in order if path not in left_out)
        return Report(linted, tuple(found), tuple(notes))

    def _found(
        self,
        files: Sequence[Linted],
        skipping: Callable[[Path], Skipped | None],
        notes: list[str],
    ) -> Iterator[Finding]:
        yield from map(_cut_off, (f.source for f in files if f.form == "cut-off" and f.source))
        bodies = [file.body for file in files if file.body is not None]
        logs = [file.path for file in files if file.form == "log"]
        for file in files:
            if file.form == "prompt" and file.source is not None:
                yield from check_prompt(file.source)
        for body in bodies:
            yield from check_body(body)
            if self.unit_tokens is not None:
                short = short_prefix(body, self.model(), self.unit_tokens)
                yield from [short] if short else []
        yield from check_together(bodies)
        if logs:
            settings = Settings(self.unit_tokens or DEFAULT_UNIT)
            yield from check_logs(logs, self.model(), settings, skipping, notes)


def _cut_off(source: Source) -> Finding:
    rule, end = RULES["cut-off"], len(source.text)
    what = f"the JSON ends in the middle, after {end:,} characters"
    return Finding(rule.name, source.path, source.span(end, end), what, rule.mend)


def _opened(path: Path, skipped: Skipped | None) -> list[Linted]:
    try:
        return [open_file(path)]
    except TrajectoryError as error:
        if skipped is None:
            raise
        skipped(str(error))
        return []


def check_prompt(source: Source) -> Iterator[Finding]:
    """A prompt file. A line that says `duramen: ignore RULE`, in a comment of whatever kind, keeps
    the rule quiet on itself and on the next one."""
    suffix = source.path.suffix
    is_template, is_markdown = suffix in TEMPLATE_SUFFIXES, suffix in MARKDOWN_SUFFIXES
    is_chat_template = _CHAT_TEMPLATE.search(source.text) is not None and is_template
    lines = source.text.split("\n")
    for seen in seen_in_file(source.text, is_markdown=is_markdown, is_template=is_template):
        if is_chat_template and seen.rule in OF_CHAT_TEMPLATES:
            continue
        span = source.span(seen.start, seen.end)
        near = lines[max(span.line - 2, 0) : span.line]
        if not any(seen.rule in _ignored_in(line) for line in near):
            mend = RULES[seen.rule].mend
            yield Finding(seen.rule, source.path, span, seen.message, mend)


def _ignored_in(line: str) -> set[str]:
    return {name for found in _IGNORED.findall(line[:10_000]) for name in re.split("[, ]+", found)}


def _shown(path: Path) -> str:
    return str(path).encode("utf-8", "backslashreplace").decode()
