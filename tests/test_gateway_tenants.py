"""Tenants: who is let in, what a changed key file does, and whose cache a call may share."""

import hmac
import os
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from duramen.layout.errors import DuramenError
from duramen.serving.gateway.errors import ApiError
from duramen.serving.gateway.key_file import add_key, key_line, new_key, read_keys
from duramen.serving.gateway.tenants import ANONYMOUS, Tenant, Tenants, request_salt, salt_secret

ALICE, BOB, CAROL = "dk-alice", "dk-bob", "dk-carol"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the key file anew, as an operator's editor does: another file in its place."""

    def write_lines(*lines: str, mode: int = 0o600) -> Path:
        part = tmp_path / "part"
        part.write_text("".join(f"{line}\n" for line in lines))
        part.chmod(mode)
        return part.replace(tmp_path / "keys")

    return write_lines


def quiet(line: str) -> None:
    raise AssertionError(line)


def name_of(tenants: Tenants, key: str) -> str | None:
    try:
        return tenants.find(f"Bearer {key}").name
    except ApiError:
        return None


def test_a_key_says_who_calls(write: Write) -> None:
    path = write("# ours", "", key_line("alice", ALICE), f"  {key_line('bob', BOB)}  # since May")
    tenants = Tenants.load(path, quiet)
    assert [name_of(tenants, key) for key in (ALICE, BOB, CAROL)] == ["alice", "bob", None]
    assert tenants.find(f"bearer   {ALICE} ").name == "alice"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (None, "no API key: send the header Authorization: Bearer KEY"),
        ("", "no API key: send the header Authorization: Bearer KEY"),
        ("Bearer", "no API key: send the header Authorization: Bearer KEY"),
        ("Bearer  ", "no API key: send the header Authorization: Bearer KEY"),
        (f"Basic {ALICE}", "no API key: send the header Authorization: Bearer KEY"),
        (ALICE, "no API key: send the header Authorization: Bearer KEY"),
        (f"Bearer {ALICE}x", "the API key is not known here"),
        (f"Bearer {ALICE.upper()}", "the API key is not known here"),
        (f"Bearer {sha256(ALICE.encode()).hexdigest()}", "the API key is not known here"),
        ("Bearer \udcff\ud800\xff", "the API key is not known here"),
        (f"Bearer {'k' * 10**6}", "the API key is not known here"),
    ],
)
def test_who_is_not_let_in(write: Write, header: str | None, message: str) -> None:
    tenants = Tenants.load(write(key_line("alice", ALICE)), quiet)
    with pytest.raises(ApiError) as caught:
        tenants.find(header)
    assert caught.value.status == 401
    assert caught.value.body["error"] == {
        "message": message,
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_api_key",
    }


def test_without_keys_all_are_one_tenant() -> None:
    tenants = Tenants.open_to_all()
    assert tenants.find(None) == tenants.find("Bearer anything") == ANONYMOUS
    assert ANONYMOUS.salt == ""


def test_two_keys_of_one_tenant_are_one_tenant(write: Write) -> None:
    tenants = Tenants.load(write(key_line("alice", ALICE), key_line("alice", CAROL)), quiet)
    assert tenants.find(f"Bearer {ALICE}") == tenants.find(f"Bearer {CAROL}")


HEX = "0" * 64
FORM = "is not of the form NAME sha256:HEX, and salt-group=GROUP if wanted"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([ALICE], f" line 1 {FORM}"),
        (["# first", f"alice sha256:{HEX[1:]}"], f" line 2 {FORM}"),
        ([f"alice sha256:{HEX}0"], f" line 1 {FORM}"),
        ([f"alice sha512:{HEX}"], f" line 1 {FORM}"),
        ([f"alice:sha256:{HEX}"], f" line 1 {FORM}"),
        ([f"-alice sha256:{HEX}"], f" line 1 {FORM}"),
        ([f"alice sha256:{HEX} salt-group="], f" line 1 {FORM}"),
        ([f"alice sha256:{HEX} group=x"], f" line 1 {FORM}"),
        ([f"{'a' * 65} sha256:{HEX}"], f" line 1 {FORM}"),
        (
            [key_line("alice", ALICE), key_line("alice", BOB, "g")],
            " line 2: all lines of alice need one salt-group",
        ),
        (
            [key_line("alice", ALICE), key_line("bob", ALICE)],
            " line 2: this key stands on a line above, too",
        ),
        (["# nothing yet"], " holds no key: duramen key NAME --file FILE adds one"),
    ],
)
def test_a_broken_key_file(write: Write, lines: list[str], problem: str) -> None:
    path = write(*lines)
    with pytest.raises(DuramenError) as caught:
        Tenants.load(path, quiet)
    assert str(caught.value) == f"{path}{problem.replace('FILE', str(path))}"
    assert not path.with_name("keys.secret").exists()


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620, 0o660, 0o602, 0o601])
def test_a_key_file_for_others_to_read_is_refused(write: Write, mode: int) -> None:
    path = write(key_line("alice", ALICE), mode=mode)
    with pytest.raises(DuramenError, match=r"can be read or changed by others: chmod 600 \S+keys$"):
        Tenants.load(path, quiet)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_key_file_for_a_service_group_is_fine(write: Write, mode: int) -> None:
    tenants = Tenants.load(write(key_line("alice", ALICE), mode=mode), quiet)
    assert name_of(tenants, ALICE) == "alice"


def test_what_is_no_key_file(tmp_path: Path, write: Write) -> None:
    fifo, binary, large = tmp_path / "fifo", tmp_path / "binary", tmp_path / "large"
    os.mkfifo(fifo, 0o600)
    binary.write_bytes(b"\xff\xfe")
    large.write_bytes(bytes(2**20 + 1))
    for path in (binary, large):
        path.chmod(0o600)
    for path, problem in (
        (tmp_path / "none", "cannot read {}: No such file or directory"),
        (tmp_path, "cannot read {}: Is a directory"),
        (fifo, "{} is no file"),
        (binary, "{} is no key file: it is not UTF-8 text"),
        (large, "{} is larger than 1048576 bytes: name another file"),
    ):
        with pytest.raises(DuramenError) as caught:
            Tenants.load(path, quiet)
        assert str(caught.value) == problem.format(path)


def test_a_changed_file_holds_from_the_next_request_on(write: Write) -> None:
    warnings: list[str] = []
    tenants = Tenants.load(write(key_line("alice", ALICE)), warnings.append)
    before = tenants.find(f"Bearer {ALICE}")
    write(key_line("alice", ALICE), key_line("bob", BOB))
    assert [name_of(tenants, key) for key in (ALICE, BOB)] == ["alice", "bob"]
    assert tenants.find(f"Bearer {ALICE}") == before
    write(key_line("bob", BOB))
    assert [name_of(tenants, key) for key in (ALICE, BOB)] == [None, "bob"]
    path = write()
    assert [name_of(tenants, key) for key in (ALICE, BOB)] == [None, None]
    assert warnings == [f"{path} holds no key any more: nobody is let in"]


def test_a_file_that_breaks_changes_nothing_and_is_told_once(write: Write) -> None:
    warnings: list[str] = []
    path = write(key_line("alice", ALICE))
    tenants = Tenants.load(path, warnings.append)
    write(ALICE)
    assert [name_of(tenants, ALICE) for _ in range(3)] == ["alice"] * 3
    path.unlink()
    assert [name_of(tenants, ALICE) for _ in range(3)] == ["alice"] * 3
    write(key_line("bob", BOB), mode=0o644)
    assert [name_of(tenants, ALICE) for _ in range(3)] == ["alice"] * 3
    stay = "the API keys from before stay in force: "
    assert warnings == [
        f"{stay}{path} line 1 {FORM}",
        f"{stay}cannot read {path}: No such file or directory",
        f"{stay}{path} can be read or changed by others: chmod 600 {path}",
    ]
    path.chmod(0o600)
    assert [name_of(tenants, key) for key in (ALICE, BOB)] == [None, "bob"]


def salts(path: Path, *keys: str) -> list[str]:
    tenants = Tenants.load(path, quiet)
    return [tenants.find(f"Bearer {key}").salt for key in keys]


def test_salts_keep_tenants_apart_and_outlive_a_restart(write: Write) -> None:
    path = write(key_line("alice", ALICE), key_line("bob", BOB))
    alice, bob = salts(path, ALICE, BOB)
    assert alice != bob
    assert len(alice) == len(bob) == 64
    write(key_line("alice", CAROL))  # a new key is the same tenant
    assert salts(path, CAROL) == [alice]
    path.with_name("keys.secret").unlink()
    assert salts(path, CAROL) != [alice]


def test_only_a_salt_group_shares(write: Write) -> None:
    path = write(key_line("alice", ALICE, "g"), key_line("bob", BOB, "g"), key_line("g", CAROL))
    alice, bob, outside = salts(path, ALICE, BOB, CAROL)
    assert alice == bob
    assert outside != alice  # a tenant's name is no group's


def test_the_secret_is_private_and_is_made_once(write: Write, tmp_path: Path) -> None:
    path = write(key_line("alice", ALICE))
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(salts(path, ALICE))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [salts(path, ALICE)] * 8
    assert path.with_name("keys.secret").stat().st_mode & 0o777 == 0o600
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["keys", "keys.secret"]


def test_a_secret_that_is_there_is_used(write: Write) -> None:
    path = write(key_line("alice", ALICE))
    secret_file = path.with_name("keys.secret")
    secret_file.write_text("ab" * 32)
    secret_file.chmod(0o400)
    salt = hmac.new(bytes.fromhex("ab" * 32), b"tenant alice", sha256).hexdigest()
    assert salts(path, ALICE) == [salt]
    assert secret_file.read_text() == "ab" * 32


@pytest.mark.parametrize("content", ["", "\n", "no hex", "ab" * 31, "\xff" * 64])
def test_a_broken_secret(write: Write, content: str) -> None:
    path = write(key_line("alice", ALICE))
    secret_file = path.with_name("keys.secret")
    secret_file.write_text(content)
    secret_file.chmod(0o600)
    with pytest.raises(DuramenError) as caught:
        Tenants.load(path, quiet)
    assert str(caught.value) == f"{secret_file} holds no 64 hex digits: delete it for a new one"
    secret_file.chmod(0o644)
    with pytest.raises(DuramenError, match="can be read or changed by others"):
        Tenants.load(path, quiet)


def test_a_secret_that_cannot_be_made(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder, reason in ((tmp_path / "none", "No such file or directory"), (file, "Not a dir")):
        with pytest.raises(DuramenError, match=rf"cannot make {folder / 'secret'}: {reason}"):
            salt_secret(folder / "secret")


ONE, OTHER = Tenant("one", "11"), Tenant("other", "22")


def test_a_client_salt_divides_its_own_tenant_only() -> None:
    assert request_salt(ONE, None) == request_salt(ONE, "") == "11"
    assert request_salt(ANONYMOUS, None) == ""
    # HMAC-SHA256 of this text under "key": the vector of Wikipedia's article on HMAC
    text = "The quick brown fox jumps over the lazy dog"
    expected = "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8"
    assert request_salt(Tenant("t", "key"), text) == expected


@given(st.text() | st.text(st.characters(categories=["Cs"])), st.sampled_from([ONE, ANONYMOUS]))
def test_a_client_salt_is_never_passed_on(client_salt: str, tenant: Tenant) -> None:
    salt = request_salt(tenant, client_salt)
    assert salt == request_salt(tenant, client_salt)
    assert salt != client_salt or salt == ""
    assert (salt == tenant.salt) == (client_salt == "")
    assert salt != request_salt(OTHER, client_salt)


def test_a_new_key_is_256_random_bits() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert {(key[:3], len(key)) for key in keys} == {("dk-", 3 + 43)}


def test_an_added_key_keeps_the_group_and_the_lines_before(write: Write) -> None:
    path = write(key_line("alice", ALICE, "g"))
    path.write_text(path.read_text().rstrip("\n"))  # an editor that ends files without a newline
    key = add_key(path, "alice")
    bob = add_key(path, "bob")
    assert path.read_text().splitlines() == [
        key_line("alice", ALICE, "g"),
        key_line("alice", key, "g"),
        key_line("bob", bob),
    ]
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(read_keys(path)) == 3
