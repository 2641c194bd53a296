"""What the arguments of a call name: places, contents, statements, a plan."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from duramen.experiments.layouts.places import Place, place
from duramen.experiments.layouts.tool_words import NAMING, name_words, words

REASONS = words("explanation reason reasoning thought thoughts rationale security_risk")
FOLDERS = words("cwd workdir working_dir working_directory workingdirectory chdir current_dir")
ORIGINS = words(  # paths count from somewhere that they only hint at
    "workspace root rootdir root_dir base basedir base_dir base_path basepath project project_path "
    "project_root repo repo_path repository owner branch ref host container"
)
ENDS = words(  # of a write: they may name one more place
    "destination dest dst source src target output out outfile to from location where archive as"
)
CONTENT = words(
    "content contents text body data payload code_edit code patch diff edits changes str string "
    "insert_line instruction instructions message pattern regex query search replace replacement"
)
GIVEN = words(  # a call that only reads has none of these
    "body payload patch edits replacement replace new_text new_str new_string new_content "
    "new_file_text file_text form data json content contents"
)
BATCHES = words("edits changes operations ops patches files commands calls actions steps tool_uses")
CODE = words(
    "command commands cmd script code code_text function javascript js python expression program "
    "tool_name recipient_name tool_uses invocations parameters"
)
_PATCHED = re.compile(
    r"^(?:\*\*\* (?:Update File|Add File|Delete File|Move to): |[-+]{3} (?:[abiwco]/)?"
    r"|rename (?:from|to) |copy to |Index: )([^\t\n]+)",
    re.M,
)
_IS_PATCH = re.compile(r"^(\*\*\* (Begin Patch|\w+ File: )|diff --git |\+\+\+ \S)", re.M)
_SQL = words("select with show describe desc explain values pragma insert update delete drop "
             "alter create truncate replace merge grant revoke call exec execute do copy load set "
             "vacuum attach detach begin reindex lock commit start use match mutation unwind "
             "upsert optional")  # fmt: skip
_SQL_READS = words("select with show describe desc explain values match unwind optional")
_SQL_WRITES = re.compile(
    r"\b(insert|update|delete|drop|alter|create|truncate|replace|merge|grant|revoke|into|call|exec"
    r"|execute|do|copy|load|set|setval|nextval|lock|attach|vacuum|reindex|refresh|mutation|outfile"
    r"|foreach|detach|remove|upsert)\b",
    re.I,
)


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """All values at every depth, each with the nearest key above it."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from leaves(inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, key)
    else:
        yield key, value


def names_place(key: str) -> bool:
    spoken = name_words(key)
    is_name = spoken[-1:] == ["name"] and len(spoken) > 1 and spoken[-2] in NAMING
    return (
        bool(spoken) and (spoken[-1] in NAMING or is_name) and _plain(key) not in FOLDERS | ORIGINS
    )


def other_ends(arguments: Mapping[str, Any]) -> list[str]:
    """What a write may name beside its place: where to or from, and all that looks like a path."""
    found = []
    for key, value in leaves(arguments):
        spoken = name_words(key)
        if not isinstance(value, str) or not value or not spoken:
            continue
        is_end = spoken[-1] in ENDS or spoken[0] in ENDS
        if is_end or (spoken[-1] not in CONTENT and _looks_like_path(value)):
            found.append(value)
    return found


def _looks_like_path(text: str) -> bool:
    is_line = "\n" not in text and " " not in text.strip() and len(text) < 400
    return is_line and re.search(r"[/\\]|\w\.[A-Za-z]\w{0,7}$", text) is not None


def has_batch(arguments: Mapping[str, Any]) -> bool:
    return any(_plain(str(k)) in BATCHES and isinstance(v, list) for k, v in arguments.items())


def has_content(arguments: Mapping[str, Any], kinds: frozenset[str]) -> bool:
    nested = [(str(key), v) for key, v in arguments.items() if isinstance(v, list | Mapping)]
    return any(
        _plain(key) in kinds and not isinstance(value, bool) and value not in (None, "")
        for key, value in [*leaves(arguments), *nested]
    )


def named_texts(arguments: Mapping[str, Any]) -> list[str]:
    return [v for key, v in leaves(arguments) if isinstance(v, str) and v and names_place(key)]


def origin(arguments: Mapping[str, Any], base: str) -> tuple[str, Place | None]:
    """From where relative paths count: the name of a fixed folder, or a folder that is given."""
    keys = {_plain(str(key)): value for key, value in arguments.items() if value}
    given = next((v for key, v in keys.items() if key in FOLDERS and isinstance(v, str)), None)
    if given is not None:
        return "", place(given)
    return ("" if ORIGINS.intersection(keys) else base or "tools"), None


def places_of(
    texts: Iterable[str], fixed: str = "", folder: Place | None = None
) -> tuple[Place, ...] | None:
    """None if there are none, or one that cannot be told. A text may list several."""
    listed = [part for text in texts for part in [text, *_listed(text)]]
    found = [place(text, fixed=fixed, folder=folder) for text in listed]
    known = tuple(dict.fromkeys(each for each in found if each is not None))
    return known if known and None not in found else None


def patched_texts(text: str) -> list[str]:
    """The files that a patch names."""
    found = [each.strip().strip('"') for each in _PATCHED.findall(text)]
    return [each for each in found if each and each != "/dev/null"]


def is_patch(text: str) -> bool:
    return _IS_PATCH.search(text) is not None


def statement(arguments: Mapping[str, Any]) -> str | None:
    """A statement of a query language for a database."""
    for key in ("sql", "statement", "statements", "query", "queries", "stmt", "cypher", "command"):
        value = arguments.get(key)
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            value = ";".join(value)
        if isinstance(value, str) and (key == "sql" or (_first_words(value)[:1] and (
            _first_words(value)[0] in _SQL
        ))):  # fmt: skip
            return value
    return None


def has_shape(text: str) -> bool:
    """Whether it is a statement and no phrase that begins like one."""
    return re.search(r"\b(from|into|set|table|where|values|view)\b|[({*;]", text, re.I) is not None


def statement_reads(text: str) -> bool:
    """Whether it is sure that a statement changes nothing; functions are taken at their names."""
    firsts = _first_words(text)
    return bool(firsts) and set(firsts) <= _SQL_READS and not _SQL_WRITES.search(_uncommented(text))


def canonical(arguments: Mapping[str, Any]) -> str:
    """Equal arguments give equal text, whatever the order of their keys."""
    parts = []
    for key, value in sorted(arguments.items()):
        text = value if isinstance(value, str) else ""
        is_plain = re.fullmatch(r"[\w./:@ +-]+", text) and not re.fullmatch(r"[\d.+-]+", text)
        is_plain = is_plain and text not in ("true", "false", "null")
        shown = text if is_plain else msgspec.json.encode(value, order="deterministic").decode()
        parts.append(f"{key}={shown}")
    return "&".join(parts)


def _plain(key: str) -> str:
    return "_".join(name_words(key))


def _listed(text: str) -> list[str]:
    parts = [part for part in re.split(r"[,;\s]+", text) if part]
    return parts if len(parts) > 1 else []


def _uncommented(text: str) -> str:
    return re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.S)


def _first_words(text: str) -> list[str]:
    found = [re.match(r"[\s(]*(\w+)", part) for part in _uncommented(text).split(";")]
    return [each[1].lower() for each in found if each]
