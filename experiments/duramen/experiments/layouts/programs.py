"""What one program does: those that run others here, those that work on files beside this."""

import re
from collections.abc import Sequence
from dataclasses import replace

from duramen.experiments.layouts import shell_words as known
from duramen.experiments.layouts.actions import Action, Read, Write
from duramen.experiments.layouts.arguments import is_patch, patched_texts
from duramen.experiments.layouts.file_programs import (
    EVERYTHING,
    SILENT,
    Invocation,
    reads,
    sed,
    targets,
    writes,
)
from duramen.experiments.layouts.tool_words import GIT_READS

SHELLS = {"bash", "sh", "zsh", "dash", "ksh", "ash", "eval"}
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=")


def unwrapped(line: Sequence[str]) -> tuple[str, ...] | None:
    """Without keywords, assignments and programs that only run another one; None where that is not
    sure."""
    rest = list(line)
    while rest:
        if setting := _ASSIGNMENT.match(rest[0]):
            if setting[1].startswith(known.RISKY_SETTINGS):
                return None
            rest = rest[1:]
        elif rest[:2] in (["command", "-v"], ["command", "-V"]):
            return ("which", *rest[2:])
        elif rest[0] in known.KEYWORDS:
            rest = rest[1:]
        elif rest[0] in known.WRAPPERS and len(rest) > 1:
            after = _after_options(rest)
            if after is None:
                return None
            rest = after
        else:
            break
    return tuple(rest)


def _after_options(line: Sequence[str]) -> list[str] | None:
    takes = known.WRAPPERS[line[0]].split()
    at = 1
    while at < len(line) and line[at].startswith("-"):
        word = line[at]
        if word == "--":
            at += 1
            break
        if word in takes:
            at += 1
        elif not (
            word in known.WRAPPER_FLAGS
            or re.fullmatch(r"-\d+", word)
            or word.partition("=")[0] in takes
            or (word[:2] in takes and word[:2] != "--")
        ):
            return None
        at += 1
    return list(line[at + (line[0] == "timeout") :])


def program_action(given: Invocation) -> Action:
    """What a program does; None if what it shows is no artifact."""
    name, words = given.name, given.words
    if name in known.SILENT:
        return SILENT
    if name in known.CLOCKS and not words:
        return None
    if name in known.CLOCKS:
        sets = name in known.SETTERS and not words[0].startswith("+")
        return EVERYTHING if sets else None
    if name in SHELLS:
        return _shell(given)
    if name == "xargs":
        return _xargs(given)
    if name == "git":
        return _git(given)
    if name == "apply_patch":
        return _apply_patch(given)
    if name == "sed":
        return sed(given)
    if name in known.ALL_TARGETS | known.LAST_TARGET:
        return writes(given)
    first = words[0] if words else ""
    if first in known.SUBCOMMAND_READS.get(name, ()) and not {"-u", "-w"} & set(words):
        return Read("", None)
    if first in known.SUBCOMMAND_CLOCKS.get(name, ()):
        return None
    if name == "find" and any(word.startswith("-exec") for word in words):
        return _find(given)
    return reads(given) if name in known.READERS else EVERYTHING


def _shell(given: Invocation) -> Action:
    if given.name == "eval":
        line = " ".join(given.words)
        return EVERYTHING if re.search(r"[$`]", line) else nameless(given.run(line))
    words = list(given.words)
    script: str | None = given.stdin
    while words and re.fullmatch(r"-[lexusc]+", words[0]):
        if words.pop(0).endswith("c"):
            words = words[1:] if words[:1] == ["--"] else words
            script, words = (words[0], []) if words else (None, [])
    return EVERYTHING if script is None or words else nameless(given.run(script))


def nameless(action: Action) -> Action:
    """What a script of its own did, without the folder that it ended in."""
    if isinstance(action, Read):
        return Read("", action.places)
    return Write(action.places) if isinstance(action, Write) and action.places != () else None


def _xargs(given: Invocation) -> Action:
    words = list(given.words)
    while words and words[0].startswith("-"):
        flag = words.pop(0)
        if flag in ("-n", "-I", "-P", "-L", "-d", "-E", "-s"):
            words = words[1:]
        elif not re.fullmatch(r"-[0rtx]+|-[nIPLd].+", flag):
            return EVERYTHING
    inner = _inner(given, words) if words else Read("", None)
    return Read("", None) if isinstance(inner, Read) else EVERYTHING


def _inner(given: Invocation, words: Sequence[str]) -> Action:
    line = unwrapped(words)
    if not line:
        return EVERYTHING
    name = line[0].rpartition("/")[2]
    return program_action(replace(given, name=name, words=line[1:], is_piped=True, stdin=None))


def _git(given: Invocation) -> Action:
    words = list(given.words)
    while words and words[0].startswith("-"):
        flag = words.pop(0)
        setting = words[0] if flag == "-c" and words else ""
        sets_colour = setting.startswith(("color.", "core.quotepath"))
        if flag in ("-C", "--git-dir", "--work-tree") or sets_colour:
            words = words[1:]
        elif not flag.startswith(("--no-pager", "-P", "-p", "--git-dir=", "--work-tree=")):
            return EVERYTHING
    if not words:
        return EVERYTHING
    first, rest = words[0], words[1:]
    writes = any(w.startswith(("--output", "--ext-diff", "-O", "--open-files")) for w in rest)
    if first == "config" and rest[:1] in (["--get"], ["--get-all"]):
        return Read("", None)
    if first == "stash" and not rest:
        return EVERYTHING
    lists = first in known.GIT_LISTS and set(rest) <= known.GIT_LISTS[first]
    return Read("", None) if (lists or first in GIT_READS) and not writes else EVERYTHING


def _apply_patch(given: Invocation) -> Action:
    text = "\n".join([*given.words, given.stdin or ""])
    return Write(targets(patched_texts(text), given.folder) if is_patch(text) else None)


def _find(given: Invocation) -> Action:
    """`-exec` runs a program on what is found: that must read, too."""
    words = list(given.words)
    if any(word.startswith(known.WRITING_OPTIONS["find"]) for word in words):
        return EVERYTHING
    while words:
        if words.pop(0) not in ("-exec", "-execdir"):
            continue
        stop = next((i for i, w in enumerate(words) if w in (";", "+")), len(words))
        if not isinstance(_inner(given, words[:stop]), Read):
            return EVERYTHING
    return Read("", None)
