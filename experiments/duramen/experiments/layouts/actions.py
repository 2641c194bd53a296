"""Whether a call reads or writes, and what: told from its words, never from one agent's wording.

Reads give artifacts; writes supersede what they may have touched. A call that is neither by its
words is unknown and does nothing. In doubt a call writes, and a write whose target cannot be told
touches everything: a prompt that was encoded again costs less than one that is wrong.

What this cannot see: that a script or a test run (unknown by its words) changes files.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from duramen.experiments.layouts.observations import Use
from duramen.experiments.layouts.places import Place, place


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


READS = words(
    "read get list search find view open cat show fetch lookup query grep glob ls tree browse "
    "inspect describe retrieve peek scan explore goto scroll display print look head"
)
WRITES = words(  # wherever they stand in a name
    "write create edit update delete insert replace remove modify cancel rename append save upload "
    "install uninstall drop truncate undo redo revert rollback overwrite patch apply erase"
)
LEADING_WRITES = words(  # nouns, too: these count where no reading word stands before them
    "set book add move put post change send rm mv cp copy mkdir touch reset clear push commit "
    "exchange return pay buy purchase transfer submit restore merge store upsert mark assign "
    "enable disable start stop close refund register record"
)
WHOLE = {"read", "cat", "view", "open", "show", "get", "fetch", "print", "display"}
SHELLS = words("bash sh shell zsh terminal console powershell cmd command exec execute run")
SUBCOMMANDS = ("command", "action", "operation", "op", "method", "subcommand", "mode")
NAMING = words(
    "path paths file files filename filenames filepath filepaths uri uris url urls href dir dirs "
    "directory directories folder folders"
)
SQL_WRITES = re.compile(
    r"\b(insert|update|delete|drop|alter|create|truncate|replace|merge|grant|revoke)\b", re.I
)
SQL_FIRST = words(
    "select with insert update delete drop alter create truncate replace merge grant revoke"
)
REASONS = {"explanation", "reason", "reasoning", "thought", "thoughts", "rationale"}


@dataclass(frozen=True)
class Read:
    """`key` names the artifact: the place and what was shown of it. `places`: a write to any of
    them makes it stale; None: every write does."""

    key: str
    places: tuple[Place, ...] | None


@dataclass(frozen=True)
class Write:
    """`places` is None where the target cannot be told."""

    places: tuple[Place, ...] | None


Action = Read | Write | None


def name_words(name: str) -> list[str]:
    """The words of a tool's name, without the server or module that it may name first."""
    own = re.split(r"__|[./:]", name)[-1] or name
    return (
        re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", own)
        .lower()
        .replace("_", " ")
        .replace("-", " ")
        .split()
    )


def verb(of_name: Iterable[str]) -> type[Read] | type[Write] | None:
    """What the words of a name say."""
    listed = list(of_name)
    if WRITES.intersection(listed):
        return Write
    for word in listed:
        if word in READS:
            return Read
        if word in LEADING_WRITES:
            return Write
    return None


def tool_action(use: Use) -> Action:
    """What a structured call does that is no shell command."""
    spoken = name_words(use.name)
    arguments = {k: v for k, v in use.arguments.items() if k not in REASONS}
    for key in SUBCOMMANDS:
        value = arguments.get(key)
        if isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w-]*", value):
            sub = verb(name_words(value))
            if sub is not None:
                spoken = name_words(value)
                del arguments[key]
            break
    kind = verb(spoken)
    if kind is None:
        return None
    named = _named(arguments)
    places = _places(named.values())
    if kind is Write or _changes_data(arguments):
        return Write(places or None)
    return Read(_key(use.name, spoken, arguments, named), places)


def shell_text(use: Use) -> str | None:
    """The command line of a call that runs one."""
    if use.command is not None:
        return use.command
    given = [
        use.arguments[key]
        for key in ("command", "cmd", "script", "commands", "input")
        if isinstance(use.arguments.get(key), str)
    ]
    if not given or not given[0].strip():
        return None
    is_shell = SHELLS.intersection(name_words(use.name))
    return given[0] if is_shell or re.search(r"\s", given[0].strip()) else None


def _named(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that name a path or URL."""
    named = {}
    for key, value in arguments.items():
        spoken = name_words(str(key))
        is_name = spoken[-1:] == ["name"] and spoken[-2:-1] != [] and spoken[-2] in NAMING
        texts = [value] if isinstance(value, str) else value
        is_text = isinstance(texts, list) and texts and all(isinstance(t, str) for t in texts)
        if is_text and spoken and (spoken[-1] in NAMING or is_name or spoken == ["pathname"]):
            named[key] = value
    return named


def _places(values: Iterable[Any]) -> tuple[Place, ...] | None:
    """None if there are none, or one that cannot be told."""
    texts = [t for value in values for t in ([value] if isinstance(value, str) else value)]
    found = [place(text, fixed=True) for text in texts]
    known = tuple(each for each in found if each is not None)
    return known if known and len(known) == len(found) else None


def _key(
    name: str, spoken: list[str], arguments: Mapping[str, Any], named: Mapping[str, Any]
) -> str:
    """`path` for a whole file, `path?view` for a part of it or a search, `tool?arguments` else."""
    single = next(iter(named.values())) if len(named) == 1 else None
    if not isinstance(single, str):
        return f"{name}?{_canonical(arguments)}" if arguments else name
    rest = {k: v for k, v in arguments.items() if k not in named and v is not None}
    is_whole = set(spoken) - NAMING <= WHOLE | {"content", "contents", "text"}
    if is_whole:
        return f"{single}?{_canonical(rest)}" if rest else single
    return f"{single}?{'_'.join(spoken)}" + (f"&{_canonical(rest)}" if rest else "")


def _canonical(arguments: Mapping[str, Any]) -> str:
    """Equal arguments give equal text, whatever the order of their keys."""
    parts = []
    for key, value in sorted(arguments.items()):
        text = value if isinstance(value, str) else ""
        is_plain = re.fullmatch(r"[\w./:@ +-]+", text) and not re.fullmatch(r"[\d.+-]+", text)
        is_plain = is_plain and text not in ("true", "false", "null")
        shown = text if is_plain else msgspec.json.encode(value, order="deterministic").decode()
        parts.append(f"{key}={shown}")
    return "&".join(parts)


def _changes_data(arguments: Mapping[str, Any]) -> bool:
    """Whether a query is a statement that may change data."""
    for key in ("sql", "statement", "query"):
        text = arguments.get(key)
        if isinstance(text, str) and SQL_WRITES.search(text):
            first = re.match(r"\s*(?:--[^\n]*\n\s*)*(\w+)", text)
            return key != "query" or (first is not None and first[1].lower() in SQL_FIRST)
    return False
