"""Who a call is from, told by its API key, and the salt that keeps tenants' KV caches apart.

vLLM puts the salt into the first block's hash, so sharing is all or nothing. Tenants with different
salts share no block, not even that of the same system prompt. Tenants of one salt-group share the
whole of any prefix, not only a root, and so each of them can find out, by how fast an answer
begins, which prompts the others have sent. Put only tenants into a group that may know that.
"""

import hmac
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from duramen.layout.errors import DuramenError
from duramen.serving.gateway.errors import ApiError
from duramen.serving.gateway.key_file import KeyLine, KeyLines, digest, read_keys, read_private

SECRET_BYTES = 32

Stamp = tuple[int, ...] | None  # changes when a file does; None: it cannot be seen


@dataclass(frozen=True)
class Tenant:
    """`salt`: vLLM's cache_salt of all its calls, "" for none."""

    name: str
    salt: str


ANONYMOUS = Tenant("anonymous", "")


class Tenants:
    """Finds the tenant of a request."""

    def __init__(self, keys: "_Keys | None") -> None:
        self._keys = keys

    @classmethod
    def open_to_all(cls) -> "Tenants":
        """Without keys everybody is one anonymous tenant, whatever key a client sends."""
        return cls(None)

    @classmethod
    def load(cls, path: Path, warn: Callable[[str], None]) -> "Tenants":
        """Keys from a key file, which is read again when it has changed: a key that is taken out of
        it is refused from the next request on. If the changed file is broken, the keys from before
        stay, and `warn` gets the reason.

        Salts are derived from the file `path` with ".secret" behind it, which is made if it is not
        there. While it stays the same, so do the salts, and caches outlive a restart.
        Raises DuramenError if a file cannot be used or `path` holds no key.
        """
        return cls(_Keys(path, warn))

    @property
    def have_keys(self) -> bool:
        return self._keys is not None

    def find(self, authorization: str | None) -> Tenant:
        """The tenant of the header `Authorization: Bearer KEY`. Raises ApiError 401.

        Keys are looked up by their digest. How long that takes says nothing about other keys: to
        come near a stored digest, one would have to invert SHA-256.
        """
        if self._keys is None:
            return ANONYMOUS
        scheme, _, key = (authorization or "").strip().partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise _unauthorized("no API key: send the header Authorization: Bearer KEY")
        tenant = self._keys.current().get(digest(key.strip()))
        if tenant is None:
            raise _unauthorized("the API key is not known here")
        return tenant


def request_salt(tenant: Tenant, client_salt: str | None) -> str:
    """The cache_salt of one call. A client's own, if any, divides its tenant's cache further. It
    is never passed on as it is, or a client could name the salt of another tenant."""
    if not client_salt:
        return tenant.salt
    own = client_salt.encode("utf-8", "surrogatepass")
    return hmac.new(tenant.salt.encode(), own, sha256).hexdigest()


class _Keys:
    """The tenants of a key file, kept up to date with it."""

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn
        self._stamp = _stamp(path)
        lines = read_keys(path)
        if not lines:
            raise DuramenError(f"{path} holds no key: duramen key NAME --file {path} adds one")
        self._secret = salt_secret(secret_beside(path))
        self._tenants = self._of(lines)

    def current(self) -> dict[bytes, Tenant]:
        stamp = _stamp(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._tenants = self._of(read_keys(self._path))
            except DuramenError as error:
                self._warn(f"the API keys from before stay in force: {error}")
            else:
                if not self._tenants:
                    self._warn(f"{self._path} holds no key any more: nobody is let in")
        return self._tenants

    def _of(self, lines: KeyLines) -> dict[bytes, Tenant]:
        return {key: Tenant(line.name, self._salt(line)) for key, line in lines.items()}

    def _salt(self, line: KeyLine) -> str:
        owner = f"group {line.group}" if line.group else f"tenant {line.name}"
        return hmac.new(self._secret, owner.encode(), sha256).hexdigest()


def _stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def secret_beside(key_file: Path) -> Path:
    return key_file.with_name(f"{key_file.name}.secret")


def salt_secret(path: Path) -> bytes:
    """What salts are derived from: read, or made, and then written whole under another name first,
    so that two gateways that start at once take the same one."""
    if not os.path.exists(path):
        part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(f"{secrets.token_hex(SECRET_BYTES)}\n")
            with suppress(FileExistsError):
                os.link(part, path)
        except OSError as error:
            raise DuramenError(f"cannot make {path}: {error.strerror}") from None
        finally:
            with suppress(OSError):
                part.unlink()
    try:
        secret = bytes.fromhex(read_private(path, 1024).decode("ascii").strip())
    except ValueError:
        secret = b""
    if len(secret) < SECRET_BYTES:
        raise DuramenError(
            f"{path} holds no {2 * SECRET_BYTES} hex digits: delete it for a new one"
        )
    return secret


def _unauthorized(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key")
