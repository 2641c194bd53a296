"""What `duramen serve` checks before it starts anything: each mistake is one line at once."""

import os
import re
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from duramen.layout.errors import DuramenError
from duramen.serving.gateway.addresses import is_loopback
from duramen.serving.gateway.serve_config import Tls
from duramen.serving.vllm.launch import EventEndpoints

EVENT_ADDRESS = re.compile(r"ipc://[^,\s]+|tcp://[^,\s/]+:\d{1,5}")


def check_bind(host: str, port: int, *, has_keys: bool, allow_no_key: bool) -> None:
    """Raise DuramenError for an address that others reach while there are no keys, unless that is
    allowed, and for one that cannot be listened on."""
    if not (has_keys or allow_no_key or is_loopback(host)):
        raise DuramenError(
            f"--host {host or repr(host)} is reached from other machines: "
            "give --api-key-file FILE, or say --allow-no-key"
        )
    try:
        infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in infos:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DuramenError(f"cannot listen on {host}:{port}: {reason}") from None


def check_upstreams(urls: Sequence[str]) -> tuple[str, ...]:
    """Without a final slash. Raises DuramenError for what is no server's address."""
    plain = tuple(url.rstrip("/") for url in urls)
    for url, given in zip(plain, urls, strict=True):
        try:
            parts = urlsplit(url)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid or parts.query or parts.fragment:
            raise DuramenError(f"--upstream {given} is no address like http://gpu-node:8000")
        if parts.path.endswith("/v1"):
            raise DuramenError(f"--upstream {given}: give vLLM's address without /v1")
        if plain.count(url) > 1:
            raise DuramenError(f"--upstream {given} is given twice")
    return plain


def check_events(given: Sequence[str], urls: Sequence[str]) -> dict[str, EventEndpoints]:
    """Of each upstream, if any are given. Raises DuramenError for what are no ZMQ addresses."""
    if given and len(given) != len(urls):
        raise DuramenError(
            f"there are {len(urls)} --upstream and {len(given)} --kv-events: give one for each"
        )
    found = {}
    for url, pair in zip(urls, given, strict=False):
        addresses = pair.split(",")
        if len(addresses) != 2 or not all(EVENT_ADDRESS.fullmatch(part) for part in addresses):
            raise DuramenError(
                f"--kv-events {pair} is no pair like tcp://gpu-node:5557,tcp://gpu-node:5558 "
                "or ipc:///run/events,ipc:///run/replay"
            )
        found[url] = EventEndpoints(*addresses)
    return found


def check_key_file(file: Path | None) -> None:
    if file is not None and not os.access(file, os.R_OK):
        raise DuramenError(f"--api-key-file {file} cannot be read: `duramen key NAME` makes keys")


def load_tls(cert_file: Path | None, key_file: Path | None) -> Tls | None:
    """Raises DuramenError unless both are there and belong together, or none is given."""
    if cert_file is None and key_file is None:
        return None
    if cert_file is None or key_file is None:
        raise DuramenError("--tls-cert and --tls-key go together: give both")
    for file in (cert_file, key_file):
        if not os.access(file, os.R_OK):
            raise DuramenError(f"{file} cannot be read: name a PEM file")
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert_file, key_file, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise DuramenError(
            f"{cert_file} and {key_file} are no certificate with its unencrypted key: {error}"
        ) from None
    return Tls(cert_file, key_file)


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def own_name(name: str | None, model_dir: Path) -> str:
    """What clients call the model. Raises DuramenError for a name that no client can send."""
    name = model_dir.resolve().name if name is None else name
    if not name or not name.isprintable() or name != name.strip() or name.startswith("-"):
        raise DuramenError(f"{name!r} is no name for a model: give one with --model-name")
    return name


def default_store(model_name: str) -> Path:
    """$XDG_STATE_HOME, else ~/.local/state; in it duramen/<model>/sessions.sqlite."""
    folder = re.sub(r"[^\w.-]", "_", model_name).lstrip(".") or "_"
    if xdg := os.environ.get("XDG_STATE_HOME"):
        return Path(xdg) / "duramen" / folder / "sessions.sqlite"
    try:
        home = Path.home()
    except RuntimeError:
        raise DuramenError(
            "there is no home folder for sessions: --store FILE, or --no-store"
        ) from None
    return home / ".local" / "state" / "duramen" / folder / "sessions.sqlite"


def make_folder(folder: Path) -> None:
    """For this user alone if it is new. Raises DuramenError where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise DuramenError(
            f"cannot keep sessions in {folder}: {error.strerror}; --store FILE, or --no-store"
        ) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DuramenError(
            f"cannot keep sessions in {folder}: it is not writable; --store FILE, or --no-store"
        )
