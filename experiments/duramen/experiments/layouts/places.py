"""Paths and URLs that calls name, and whether a write to one may change what another shows.

Spellings of one place are one place: case, Unicode forms, separators, `file:` URLs, line numbers
behind a path; http and https, ports and subdomains of a host. Links between files are not seen.
"""

import posixpath
import re
import unicodedata
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

_PATTERN = re.compile(r"[*?\[{]")
_DRIVE = re.compile(r"/?[A-Za-z]:(?=/)")
_FILE_NAME = re.compile(r".\.[a-z_][a-z0-9_]*$")  # a version number makes no file
_LINES = re.compile(r"(#.*|(:\d+([-:,]\d+)*)+)$")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{2}")
_HOSTED = {"http", "https", "ws", "wss", "ftp", "s3", "gs"}
_LOCAL = {"localhost", "127.0.0.1", "0.0.0.0", "::1", "host.docker.internal"}


@dataclass(frozen=True)
class Place:
    """`host` is a URL's host, None for a path. `absolute`: from the root of the file system.
    `fixed`: a relative path that always counts from the folder of this name, as the argument of a
    server's tools does; a shell may have changed its folder in between. `listed`: what stands below
    it is shown, too. Case is folded."""

    parts: tuple[str, ...]
    host: str | None = None
    absolute: bool = False
    fixed: str = ""
    listed: bool = False

    @property
    def is_open(self) -> bool:
        """Whether nobody knows from which folder it counts."""
        return self.host is None and not (self.absolute or self.fixed)


def place(text: str, *, fixed: str = "", folder: Place | None = None) -> Place | None:
    """What `text` names; a relative path counts from `folder`, a pattern stands for the folder that
    it begins with. None where it depends on variables or other commands."""
    path = plain_path(text)
    if not path or re.search(r"[$`\0]", path):
        return None
    if scheme := _SCHEME.match(path):
        if scheme[1].lower() in _HOSTED:
            return _url(path)
        path = path[scheme.end() :]  # a scheme of some agent's own: its root is not known
        return Place(_parts(path) or (), None)
    if pattern := _PATTERN.search(path):
        path = path[: pattern.start()].rpartition("/")[0] or ("/" if path[0] == "/" else ".")
    path = _LINES.sub("", path) or path
    absolute = path.startswith("/") or _DRIVE.match(path) is not None
    at_home = path.startswith("~")
    normal = posixpath.normpath(re.sub(r"^~[^/]*/*", "", path) or ".")
    climbs = normal.startswith("..")
    parts = _parts(normal)
    if folder is not None and not (absolute or at_home or climbs):
        return Place((*folder.parts, *parts), None, folder.absolute, folder.fixed)
    return Place(parts, None, absolute, "" if climbs or at_home or absolute else fixed)


def plain_path(text: str) -> str:
    """A path as a name: without quotes around it, `file:` and `./`, with slashes."""
    path = unicodedata.normalize("NFC", text.strip())
    if len(path) > 1 and path[0] == path[-1] and path[0] in "'\"":
        path = path[1:-1].strip()
    if path[:5].lower() == "file:":
        path = unquote(re.sub(r"^//(localhost)?(?=/)", "", path[5:]))
        if path.startswith("//"):  # what should be a host is not seldom the first folder
            return f"file:{path}"
    elif _SCHEME.match(path):
        return path
    path = re.sub(r"\\(?! )", "/", path).replace("\\ ", " ")
    path = re.sub(r"^/(?=[A-Za-z]:/)", "", path)
    path = re.sub(r"/{2,}", "/", path)
    return re.sub(r"^(\./)+(?=.)", "", path)


def may_touch(written: Place, shown: Place) -> bool:
    """Whether a write to one may change what was shown of the other: the same place, or one below
    the other. URLs touch all of their host, those of this machine its files, too. Where it is open
    from which folder a path counts, only files of different names are taken to be apart."""
    if written.host or shown.host:
        return written.host == shown.host or written.host == "localhost"
    a, b = written.parts, shown.parts
    if _from_one_root(written, shown):
        return a[: len(b)] == b or b[: len(a)] == a
    are_files = all(parts and _FILE_NAME.search(parts[-1]) for parts in (a, b))
    return not are_files or shown.listed or a[-1] in b or b[-1] in a


def may_be_one(a: Place, b: Place) -> bool:
    """Whether two files may be the same."""
    if a.host or b.host or _from_one_root(a, b):
        return (a.host, a.parts) == (b.host, b.parts)
    return a.parts[-1:] == b.parts[-1:]


def _from_one_root(a: Place, b: Place) -> bool:
    if a.absolute and b.absolute:
        return _on_drive(a) == _on_drive(b)
    return bool(a.fixed) and a.fixed == b.fixed


def _on_drive(each: Place) -> bool:
    return each.parts[:1] != () and each.parts[0].endswith(":")


def _parts(path: str) -> tuple[str, ...]:
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
    return tuple(p for p in folded.split("/") if p not in ("", ".", ".."))


def _url(text: str) -> Place | None:
    try:
        split = urlsplit(text)
        host = (split.hostname or "").rstrip(".").casefold()
    except ValueError:
        return None
    is_number = re.fullmatch(r"[\d.]+|.*:.*", host) is not None
    host = host if is_number else ".".join(host.split(".")[-2:])
    return Place(_parts(split.path), "localhost" if host in _LOCAL else host or "?", absolute=True)
