"""Paths and URLs that calls name, and whether a write to one may change what another shows."""

import posixpath
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

_PATTERN = re.compile(r"[*?\[{]")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_FILE_NAME = re.compile(r".\.[a-z_][a-z0-9_]*$")  # a version number makes no file


@dataclass(frozen=True)
class Place:
    """`host` is a URL's scheme and host, None for a path. `absolute`: from the root of the file
    system. `fixed`: a relative path that always counts from the same folder, as the argument of a
    tool does; a shell may have changed its folder in between. Case is folded."""

    parts: tuple[str, ...]
    host: str | None = None
    absolute: bool = False
    fixed: bool = False


def place(text: str, *, fixed: bool = False, folder: Place | None = None) -> Place | None:
    """What `text` names; a relative path counts from `folder`, a pattern stands for the folder that
    it begins with. None where it depends on variables or other commands."""
    if not text.strip() or re.search(r"[$`\0]", text):
        return None
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        return _url(text)
    is_drive = _DRIVE.match(text) is not None
    path = text.replace("\\", "/") if is_drive else text
    if pattern := _PATTERN.search(path):
        path = path[: pattern.start()].rpartition("/")[0] or ("/" if path[0] == "/" else ".")
    absolute = path.startswith("/") or is_drive
    at_home = path.startswith("~")
    normal = posixpath.normpath(re.sub(r"^~[^/]*/*", "", path) or ".")
    climbs = normal.startswith("..")
    parts = tuple(p for p in normal.casefold().split("/") if p not in ("", ".", ".."))
    if folder is not None and not (absolute or at_home or climbs):
        return Place((*folder.parts, *parts), None, folder.absolute, folder.fixed)
    return Place(parts, None, absolute, fixed and not (climbs or at_home or absolute))


def _url(text: str) -> Place | None:
    try:
        split = urlsplit(text)
    except ValueError:
        return None
    parts = tuple(p for p in split.path.casefold().split("/") if p)
    return Place(parts, f"{split.scheme}://{split.netloc}".casefold(), absolute=True)


def may_touch(written: Place, shown: Place) -> bool:
    """Whether a write to one may change what was shown of the other: the same place, or one below
    the other. URLs touch all of their host. Where it is open from which folder a path counts, only
    files of different names are taken to be apart."""
    if written.host or shown.host:
        return written.host == shown.host
    a, b = written.parts, shown.parts
    if (written.absolute and shown.absolute) or (written.fixed and shown.fixed):
        return a[: len(b)] == b or b[: len(a)] == a
    are_files = all(parts and _FILE_NAME.search(parts[-1]) for parts in (a, b))
    return not are_files or a[-1] in b or b[-1] in a
