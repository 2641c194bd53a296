"""Starting and ending: one clear error when it fails, no process left when it is over."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from mirror_cases import predict

from duramen.layout.blocks import block_hashes
from duramen.layout.errors import EngineError, RequestError
from duramen.serving.kv.cache import BlockCache
from duramen.serving.vllm.engine import VllmEngine, attach, launch
from duramen.serving.vllm.launch import VllmConfig, VllmProcess
from duramen.serving.vllm.log import explain_log
from duramen.serving.vllm.protocol import Sampling
from duramen.serving.vllm.seam import ChatSeam, GenerateSeam
from duramen.serving.vllm.version import check_version

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="reads /proc, which only Linux has"
)


def session_of(guard_pid: int) -> int:
    """The session that a guard's command leads: its process id."""
    return int(Path(f"/proc/{guard_pid}/task/{guard_pid}/children").read_text().split()[0])


def members(session: int) -> dict[int, str]:
    """Processes of a session that still run: id -> name. Zombies have ended."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = stat.read_text().split("(", 1)[1].rsplit(")", 1)
        except FileNotFoundError:
            continue  # ended while we looked
        state, _, _, of_session = rest.split()[:4]
        if int(of_session) == session and state != "Z":
            found[int(stat.parent.name)] = name
    return found


def wait_for(condition: Callable[[], object], limit_s: float = 60) -> None:
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(0.05)


STUBBORN = "trap '' TERM; sleep 1000 & sleep 1000 & echo up; wait; sleep 1000"


@needs_proc
@pytest.mark.parametrize("end", ["close", "kill parent"])
def test_guard_ends_the_whole_group(end: str, tmp_path: Path) -> None:
    """A command that ignores SIGTERM and has children; the guard's grace is cut short."""
    code = "from duramen.serving.vllm import guard; guard.GRACE_S = 0.2; import sys; "
    code += f"sys.exit(guard.main({str(tmp_path / 'files')!r}, ['sh', '-c', {STUBBORN!r}]))"
    (tmp_path / "files").mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    guard_pid = int(parent.stdout.readline())
    wait_for(lambda: Path(f"/proc/{guard_pid}/task/{guard_pid}/children").read_text())
    session = session_of(guard_pid)
    wait_for(lambda: len(members(session)) == 3)
    if end == "close":
        parent.stdin.close()
    else:
        parent.kill()
    wait_for(lambda: not members(session))
    wait_for(lambda: not (tmp_path / "files").exists())
    parent.wait()
    parent.stdout.close()
    parent.stdin.close()


PARENT = """
import subprocess, sys
guard = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
print(guard.pid, flush=True)
sys.stdin.read()
guard.stdin.close()
guard.wait()
"""


def test_guard_passes_the_status_on_and_ends_what_the_command_left(tmp_path: Path) -> None:
    command = "sleep 1000 & echo $!; exit 7"
    guard = [sys.executable, "-m", "duramen.serving.vllm.guard", str(tmp_path), "sh", "-c", command]
    with subprocess.Popen(guard, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as done:
        assert done.stdout is not None
        left = int(done.stdout.readline())
        assert done.wait() == 7
    assert tmp_path.exists()  # the parent still wants the log
    wait_for(lambda: is_gone(left))


def is_gone(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("", "it logged nothing"),
        ("(APIServer pid=7) INFO 11-30 18:21:10 [utils.py:347] Loading.\n", "Loading."),
        (
            "(EngineCore pid=8) ERROR 11-30 18:21:10 [core.py:1] ValueError: too long (8192).\n"
            "RuntimeError: Engine core initialization failed. See root cause above.\n"
            "resource_tracker: leaked\n",
            "ValueError: too long (8192).",
        ),
        (
            "pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
            "  Value error, no such model\n\n    For further information\n",
            "pydantic_core.ValidationError: 1 validation error for ModelConfig"
            " Value error, no such model",
        ),
        (
            "WARNING This can cause errors like `OSError: [Errno 24]`.\nKeyError: 'a'\n",
            "KeyError: 'a'",
        ),
    ],
)
def test_explain_log(log: str, said: str) -> None:
    assert explain_log(log) == said


def test_port_taken(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(EngineError, match=f"port {port} is taken"):
            VllmProcess(VllmConfig(tmp_path, port=port))


def test_no_model_there(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"config\.json is missing"):
        VllmConfig(tmp_path)


def test_too_old_a_version() -> None:
    check_version("0.32.0")
    check_version("1.0.0rc1")
    with pytest.raises(EngineError, match=r"0\.31\.9 is too old"):
        check_version("0.31.9")


async def test_nothing_listens() -> None:
    with pytest.raises(EngineError, match=r"no answer from the engine at http://127\.0\.0\.1:9"):
        await attach("http://127.0.0.1:9")


@pytest.mark.live
async def test_a_model_that_vllm_refuses(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "no such model"}')
    with pytest.raises(EngineError, match=r"did not start\. .*no such model") as failed:
        await launch(VllmConfig(tmp_path))
    assert "\n" not in str(failed.value)


@pytest.mark.live
@needs_proc
async def test_kill_the_parent_while_vllm_starts(tiny_model: Path) -> None:
    code = "import sys, time; from pathlib import Path; "
    code += "from duramen.serving.vllm.launch import VllmConfig, VllmProcess; "
    code += "p = VllmProcess(VllmConfig(Path(sys.argv[1]), max_model_len=1024)); "
    code += "print(p.guard_pid, p.log_file.parent, flush=True); time.sleep(1000)"
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tiny_model)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    guard_pid, directory = parent.stdout.readline().split()
    wait_for(lambda: Path(f"/proc/{guard_pid}/task/{guard_pid}/children").read_text())
    session = session_of(int(guard_pid))
    wait_for(lambda: any("VLLM::Engine" in name for name in members(session).values()), 120)
    parent.kill()
    wait_for(lambda: not members(session))
    wait_for(lambda: not Path(directory).exists())
    parent.wait()
    parent.stdout.close()


@pytest.mark.live
@needs_proc
async def test_small_pool_from_start_to_kill(tiny_model: Path) -> None:
    """One server for all of it: eviction, the end of the context, its core killed in mid-call."""
    said: list[str] = []
    config = VllmConfig(tiny_model, max_model_len=1024, num_kv_blocks=40, scale_out=True)
    engine = await launch(config, said.append)
    assert engine._process is not None
    session = session_of(engine._process.guard_pid)
    try:
        assert said[0].startswith("starting vLLM")
        await check_eviction(engine)
        await check_end_of_context(engine)
        await check_kill(engine, session)
    finally:
        await engine.close()
    assert not members(session)
    assert not engine._process.log_file.exists()
    await engine.close()  # does nothing


async def check_eviction(engine: VllmEngine) -> None:
    """Conversations that do not fit the pool together, in two salts, some cut by a stop string.

    What is delivered is what the mirror predicted, and what the cache model says.
    """
    assert engine.mirror is not None
    assert engine.info.num_kv_blocks == 40
    model, random = BlockCache(40, 32), Random(0)
    assert await engine.reset_prefix_cache()
    texts = [random.choices(range(100, 40_000), k=500) for _ in range(5)]
    hits = []
    for turn in range(40):
        text, salt = random.choice(texts), random.choice(["", "tenant"])
        prompt = text[: random.randrange(1, 500)] + [turn] * random.choice([0, 1, 31, 32, 33])
        stop = random.choice([(), ("e",)])
        sampling = Sampling(max_tokens=40, temperature=1.0, seed=turn, stop=stop)
        predicted = predict(engine.mirror, prompt, salt)
        done = await engine.complete(prompt, sampling, salt=salt)
        computed = [*prompt, *done.token_ids[:-1]]
        assert await engine.settle(computed, salt)
        keys = list(block_hashes(computed, 32, salt))
        assert done.cached_tokens == predicted == model.allocate(turn, keys, len(prompt))
        for num_tokens in range(len(prompt) + 1, len(computed) + 1):
            assert model.append(turn, keys, num_tokens)
        model.free(turn)
        hits.append(predicted or 0)
    assert max(hits) > 0
    assert engine.mirror.num_resident_blocks > 30  # the pool has been full: blocks were evicted


async def check_end_of_context(engine: VllmEngine) -> None:
    for seam in (ChatSeam, GenerateSeam):
        run = seam(engine._http, engine.info.model).run
        done = await run([5] * 1022, Sampling(max_tokens=10), (), "", None)
        assert (done.finish_reason, len(done.token_ids)) == ("length", 2)
        with pytest.raises(RequestError, match="1024"):
            await run([5] * 1025, Sampling(max_tokens=10), (), "", None)


async def check_kill(engine: VllmEngine, session: int) -> None:
    """The core is stopped first, so that the call cannot end before the kill."""
    (core,) = (pid for pid, name in members(session).items() if "VLLM::Engine" in name)
    os.kill(core, signal.SIGSTOP)
    call = asyncio.create_task(engine.complete([7] * 50, Sampling(max_tokens=900)))
    await asyncio.sleep(0.5)  # long enough for the request to be there; correct without, too
    os.kill(core, signal.SIGKILL)
    with pytest.raises(EngineError) as died:
        await call
    assert "\n" not in str(died.value)
    with pytest.raises(EngineError):
        await engine.complete([7] * 50, Sampling(max_tokens=1))
