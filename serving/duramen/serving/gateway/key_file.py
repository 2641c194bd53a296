"""The file that says which API keys are let in: one key a line, as its digest.

    # comment
    alice sha256:9f86d0...
    bob   sha256:60303a... salt-group=research

A tenant may stand on several lines, so that a new key works before the old one goes. Keys are 256
random bits. Nobody can guess one, so one plain SHA-256 hides it as well as a slow hash would: slow
hashes only help secrets that people make up.
"""

import os
import re
import secrets
import stat
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from duramen.layout.errors import DuramenError

MAX_BYTES = 2**20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LINE = re.compile(
    rf"({_NAME.pattern})\s+sha256:([0-9a-fA-F]{{64}})(?:\s+salt-group=({_NAME.pattern}))?"
)


@dataclass(frozen=True)
class KeyLine:
    name: str
    group: str | None


KeyLines = dict[bytes, KeyLine]  # by the SHA-256 of the key


def digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()


def read_keys(path: Path) -> KeyLines:
    """Raises DuramenError if a line is broken or others can read the file. It is never quoted."""
    try:
        text = read_private(path, MAX_BYTES).decode()
    except UnicodeDecodeError:
        raise DuramenError(f"{path} is no key file: it is not UTF-8 text") from None
    lines: KeyLines = {}
    groups: dict[str, str | None] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        found = _LINE.fullmatch(content)
        if found is None:
            form = "NAME sha256:HEX, and salt-group=GROUP if wanted"
            raise DuramenError(f"{path} line {number} is not of the form {form}")
        name, hexadecimal, group = found.groups()
        if groups.setdefault(name, group) != group:
            raise DuramenError(f"{path} line {number}: all lines of {name} need one salt-group")
        if lines.setdefault(bytes.fromhex(hexadecimal), made := KeyLine(name, group)) is not made:
            raise DuramenError(f"{path} line {number}: this key stands on a line above, too")
    return lines


def read_private(path: Path, max_bytes: int) -> bytes:
    """The whole of a small file that only its owner and group can read.

    Raises DuramenError if it is not that.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise DuramenError(f"{path} is no file")
            if status.st_mode & 0o027:
                raise DuramenError(f"{path} can be read or changed by others: chmod 600 {path}")
            if status.st_size > max_bytes:
                raise DuramenError(f"{path} is larger than {max_bytes} bytes: name another file")
            return file.read(max_bytes)
    except OSError as error:
        raise DuramenError(f"cannot read {path}: {error.strerror}") from None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a FIFO would wait for a writer


def new_key() -> str:
    return f"dk-{secrets.token_urlsafe(32)}"


def key_line(name: str, key: str, group: str | None = None) -> str:
    """What the file says of a key. Raises DuramenError if `name` cannot be a tenant's."""
    if not _NAME.fullmatch(name):
        raise DuramenError(
            f"{name!r} cannot be a tenant's name: use 1 to 64 of A-Z a-z 0-9 . _ -, "
            "a letter or digit first"
        )
    salt_group = f" salt-group={group}" if group else ""
    return f"{name} sha256:{digest(key).hex()}{salt_group}"


def add_key(path: Path, name: str) -> str:
    """A new key for `name`, its line at the end of the file; made with mode 0600 if there is none.

    A tenant's further keys keep its salt-group. Raises DuramenError, and adds nothing, if the file
    is broken or cannot be written.
    """
    key = new_key()
    key_line(name, key)
    known = read_keys(path).values() if os.path.exists(path) else ()
    groups = [line.group for line in known if line.name == name]
    line = key_line(name, key, groups[0] if groups else None)
    try:
        with open(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "r+b") as file:
            before = file.read()[-1:]
            start = "" if before in (b"", b"\n") else "\n"
            file.write(f"{start}{line}\n".encode())
    except OSError as error:
        raise DuramenError(f"cannot write {path}: {error.strerror}") from None
    return key
