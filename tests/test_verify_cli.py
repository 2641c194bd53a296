"""`duramen verify` as a user meets it: verdicts, exit codes, mistakes in one line."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from fake_vllm import FakeVllm, served

from duramen.cli.main import run

DURAMEN = Path(sys.executable).with_name("duramen")


async def duramen(*arguments: object) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        str(DURAMEN),
        "verify",
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_a_sound_engine(smollm2: Path) -> None:
    async with served(FakeVllm(smollm2)) as url:
        code, out, err = await duramen("--upstream", url, "--tokenizer", smollm2, "--json", "-")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["engine"], found["model"], found["unit_tokens"]) == ("vllm 0.32.0", "fake", 16)
    assert {check["verdict"] for check in found["checks"] if check["name"] != "kv-events"} == {
        "holds"
    }


async def test_a_broken_engine(smollm2: Path) -> None:
    fake = FakeVllm(smollm2)
    fake.takes_salts = False
    async with served(fake) as url:
        code, out, _ = await duramen("--upstream", url)
        assert code == 1
        assert "expected  0 with the other salt, 2 U with the same" in out
        assert "Relies on it: serving/gateway/tenants.py: tenants share no block" in out
        assert "Duramen cannot stand on it as it is" in out
        code, out, err = await duramen("--upstream", url, "--json", "-")
    assert code == 1
    assert json.loads(out)["fit"] is False
    assert "duramen: broken: salts: " in err


async def test_a_server_that_never_answers() -> None:
    async def is_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(is_silent, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        code, out, err = await duramen("--upstream", url)
    said = f"no answer from {url} within 10 s: is it vLLM's address?"
    assert (code, out, err.strip()) == (2, "", f"duramen: error: {said}")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (404, "{url} is no vLLM: /version answers 404; give vLLM's address, without /v1"),
        (
            401,
            "the engine refused the request (401): Nothing here ; give its key in DURAMEN_API_KEY",
        ),
        (
            503,
            "the engine failed (503): Nothing here Is it running, and is the address right?",
        ),
    ],
)
async def test_a_server_that_is_no_vllm(status: int, said: str) -> None:
    page = b"<!DOCTYPE html>\n<html><head><style>p {}</style></head><p>Nothing here</p></html>"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %d No\r\nConnection: close\r\n\r\n" % status + page)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        code, out, err = await duramen("--upstream", url)
    assert (code, out, err.strip()) == (2, "", f"duramen: error: {said.format(url=url)}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--upstream", "http://127.0.0.1:9"], "no answer from the engine at http://127.0.0.1:9"),
        (["--upstream", "nowhere"], "is no address like http://gpu-node:8000"),
        (["--upstream", "http://a", "--chat-template", "x"], "needs --tokenizer DIR"),
        (["--upstream", "http://a", "--tokenizer", "/no/folder"], "/no/folder is no folder"),
        (["--upstream", "http://a", "--kv-events", "tcp://a:1"], "is no pair like"),
        ([], "Missing option '--upstream'"),
    ],
)
def test_mistakes_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: str,
) -> None:
    monkeypatch.setattr("sys.argv", ["duramen", "verify", *arguments])
    assert run() == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("duramen: error: ")
    assert expected in err
    assert err.count("\n") == 1
