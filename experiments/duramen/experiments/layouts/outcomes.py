"""What a call did, given its answer.

A read that failed gave nothing. A write that failed may have been done in part, or after all (it
timed out): it counts, but where one structured call to one target says that it did nothing.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from duramen.experiments.layouts.actions import Action, Read, Write
from duramen.experiments.layouts.arguments import FOLDERS, REASONS, canonical
from duramen.experiments.layouts.observations import Use
from duramen.experiments.layouts.shell import shell_action
from duramen.experiments.layouts.tool_words import name_words, words
from duramen.experiments.layouts.tools import tool_action

_FAILED = re.compile(
    r"\s*(<\w*error\w*>|\[?\w*error\b|traceback \(most|exception\b|fatal:|failed\b"
    r"|\{\s*\"(error|errors|detail)\"\s*:|<returncode>\s*-?[1-9])",
    re.I,
)
_NOTHING_READ = re.compile(
    r".{0,200}(no such file or directory|command not found|permission denied|is a directory"
    r"|does not exist|not a directory|not found)",
    re.I,
)
_EXIT_CODE = re.compile(r"\bexit(ed)?( with)?( exit)? (code|status):? -?[1-9]\d*\W*\Z", re.I)
_PERHAPS_DONE = re.compile(
    r"appl(y|ied)|hunk|partial|succe|some|time[d ]*-?out|connection|network|reset|interrupt"
    r"|cancell?ed|abort|kill|written|wrote|saved|modified|created|changed|but |however"
    r"|\d+ (of|out of) \d+|\d+/\d+|warning|lint|syntax|still|remaining|after",
    re.I,
)
SHELLS = words("bash sh shell zsh terminal console powershell cmd command exec execute run")
OTHER_LANGUAGES = words("python py node js javascript ruby sql psql ipython jupyter cell r query")
LINES = ("command", "cmd", "script", "commands", "input", "argv")
HARMLESS_ARGUMENTS = REASONS | words(
    "timeout timeout_ms timeout_s description run_in_background is_background blocking is_input "
    "login justification with_escalated_permissions max_output_tokens yield_time_ms"
)


@dataclass(frozen=True)
class Line:
    """A command line, `key` naming it with all that it depends on."""

    text: str
    workdir: str | None
    rest: Mapping[str, Any]


def action_of(use: Use, result: str | None) -> Action:
    """What a call did, given the text of its answer; None if it is neither a read nor a write."""
    line = command_line(use)
    action = tool_action(use) if line is None else _line_action(line)
    if result is None:
        return action
    if isinstance(action, Read):
        ended = _EXIT_CODE.search(result, max(len(result) - 200, 0))
        return None if _FAILED.match(result) or _NOTHING_READ.match(result) or ended else action
    if isinstance(action, Write):
        is_undone = action.is_atomic and _FAILED.match(result) and not _PERHAPS_DONE.search(result)
        return None if is_undone else action
    return None if _FAILED.match(result) else action


def command_line(use: Use) -> Line | None:
    """The command line of a call that runs one."""
    if use.command is not None:
        return Line(use.command, None, {})
    spoken = set(name_words(use.name))
    if spoken & OTHER_LANGUAGES:
        return None
    is_shell = bool(spoken & SHELLS)
    is_empty = False
    for key in LINES if is_shell else LINES[:2]:
        text = _joined(key, use.arguments)
        is_empty = is_empty or (key in use.arguments and not use.arguments[key])
        if text is None or not text.strip() or not (is_shell or re.search(r"\s", text.strip())):
            continue
        rest = {k: v for k, v in use.arguments.items() if k not in (key, "args", "arguments")}
        folders = [k for k in rest if "_".join(name_words(str(k))) in FOLDERS]
        workdir = next((rest[k] for k in folders if isinstance(rest[k], str) and rest[k]), None)
        kept = {
            k: v
            for k, v in rest.items()
            if k not in HARMLESS_ARGUMENTS and k not in folders and v not in (None, "", False)
        }
        return Line(text, workdir, kept)
    return Line("", None, {}) if is_shell and is_empty else None


def _line_action(line: Line) -> Action:
    action = shell_action(line.text, line.workdir)
    if isinstance(action, Read) and line.rest:
        return replace(action, key=f"{action.key}?{canonical(line.rest)}", is_whole=False)
    return action


def _joined(key: str, arguments: Mapping[str, Any]) -> str | None:
    """A line, given as a text, as a program with its arguments, or as several lines."""
    value = arguments.get(key)
    more = arguments.get("args", arguments.get("arguments"))
    if isinstance(value, str):
        if isinstance(more, str):
            return f"{value} {more}"
        return f"{value} {shlex.join(map(str, more))}" if isinstance(more, list) and more else value
    if not isinstance(value, Sequence) or not value or not all(isinstance(v, str) for v in value):
        return None
    are_lines = key == "commands" or bool(re.search(r"\s", value[0].strip()))
    return "\n".join(value) if are_lines else shlex.join(value)
