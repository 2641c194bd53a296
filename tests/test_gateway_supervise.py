"""One engine is kept up: over deaths, failed starts and silence, and nothing is left behind."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mirror_cases import predict

from duramen.layout.errors import EngineError, ModelError
from duramen.serving.gateway.supervise import ATTACHED, Patience, Supervisor
from duramen.serving.profile_file import load_profile
from duramen.serving.profiles import vllm_config
from duramen.serving.vllm.engine import VllmEngine, launch
from duramen.serving.vllm.launch import Progress
from duramen.serving.vllm.protocol import Sampling

QUICK = Patience(first_pause_s=0.001, longest_pause_s=0.002, check_every_s=0.01, check_timeout_s=1)
ENDLESS = Patience(
    first_pause_s=0.001, longest_pause_s=0.002, check_every_s=0.01, max_failures=None
)


class Child:
    """Supervised: a real process, which stands for a server of ours."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.num_closed = 0

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None

    async def is_healthy(self, timeout_s: float) -> bool:
        return self.is_alive

    def explain(self) -> str:
        return "Its log says: boom"

    async def close(self) -> None:
        self.num_closed += 1
        if self.is_alive:
            self.process.kill()
        await self.process.wait()


class Attached:
    """Supervised: a server of others, as healthy as the test says."""

    def __init__(self) -> None:
        self.healthy = True
        self.num_checks = 0
        self.is_closed = False

    @property
    def is_alive(self) -> None:
        return None

    async def is_healthy(self, timeout_s: float) -> bool:
        self.num_checks += 1
        return self.healthy

    def explain(self) -> str:
        return "Is it running?"

    async def close(self) -> None:
        self.is_closed = True


class Starts:
    """Opens children that sleep; `failures` are raised by the first starts instead."""

    def __init__(self, *failures: Exception) -> None:
        self.children: list[Child] = []
        self.num_starts = 0
        self._failures = list(failures)

    async def __call__(self, progress: Progress) -> Child:
        self.num_starts += 1
        progress(f"start {self.num_starts}")
        if self._failures:
            raise self._failures.pop(0)
        child = Child(await asyncio.create_subprocess_exec("sleep", "1000"))
        self.children.append(child)
        return child


@asynccontextmanager
async def running(supervisor: Supervisor[Child]) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(supervisor.run())
    try:
        yield task
    finally:
        await supervisor.close()
        await asyncio.wait({task})


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.002)


async def another(supervisor: Supervisor[Child], child: Child) -> None:
    await until(lambda: supervisor.engine not in (None, child))


async def test_it_starts_and_closes() -> None:
    starts, said = Starts(), list[str]()
    supervisor = Supervisor(starts, patience=QUICK, progress=said.append)
    assert (supervisor.state, supervisor.engine) == ("starting", None)
    async with running(supervisor) as task:
        child = await supervisor.wait_until_ready()
        assert child is starts.children[0]
        assert (supervisor.state, supervisor.reason, supervisor.generation) == ("ready", "", 1)
    assert task.result() is None
    assert (supervisor.state, supervisor.engine) == ("stopped", None)
    assert (child.num_closed, child.process.returncode) == (1, -signal.SIGKILL)
    assert said == ["start 1", "engine stopped: closed"]
    await supervisor.close()  # does nothing
    await supervisor.run()  # neither does this
    assert starts.num_starts == 1
    with pytest.raises(EngineError, match="the engine has stopped: closed"):
        await supervisor.wait_until_ready()


async def test_a_child_that_is_killed_is_started_anew() -> None:
    starts, said, readied = Starts(), list[str](), list[tuple[Child, int]]()

    async def on_ready(child: Child, generation: int) -> None:
        assert supervisor.engine is None  # no call comes before it is made ready
        readied.append((child, generation))

    supervisor = Supervisor(starts, on_ready, patience=ENDLESS, progress=said.append)
    async with running(supervisor):
        for generation in (1, 2, 3):
            child = await supervisor.wait_until_ready()
            assert (supervisor.generation, len(starts.children)) == (generation, generation)
            os.kill(child.process.pid, signal.SIGKILL)
            await another(supervisor, child)
            assert child.num_closed == 1
        assert readied == list(zip(starts.children, (1, 2, 3, 4), strict=True))
    assert [child.num_closed for child in starts.children] == [1, 1, 1, 1]
    assert said.count("engine restarting: the engine died. Its log says: boom") == 3


async def test_a_dead_engine_is_closed_before_the_next_one_opens() -> None:
    starts = Starts()

    async def open_one(progress: Progress) -> Child:
        assert all(child.num_closed for child in starts.children)
        return await starts(progress)

    async def on_ready(child: Child, generation: int) -> None:
        if generation == 1:
            child.process.kill()

    supervisor = Supervisor(open_one, on_ready, patience=QUICK)
    async with running(supervisor):
        await until(lambda: supervisor.generation == 2)


async def test_starts_that_fail_are_tried_again() -> None:
    starts = Starts(EngineError("no memory yet"), OSError(28, "No space left on device"))
    supervisor = Supervisor(starts, patience=QUICK)
    async with running(supervisor):
        await supervisor.wait_until_ready()
        assert (starts.num_starts, supervisor.generation) == (3, 1)


async def test_five_failures_are_too_many() -> None:
    starts = Starts(*[EngineError(f"no {number}") for number in range(9)])
    supervisor = Supervisor(starts, patience=QUICK)
    async with running(supervisor) as task:
        await task
        assert starts.num_starts == 5
        assert supervisor.state == "failed"
        assert supervisor.reason == "5 failures within 10 minutes. no 4"
        with pytest.raises(EngineError, match="the engine has failed: 5 failures"):
            await supervisor.wait_until_ready()
    assert supervisor.state == "failed"  # closing does not hide it


async def test_deaths_count_as_failures() -> None:
    """A child that comes up and dies at once, again and again."""
    starts = Starts(ModelError("not yet"))

    async def on_ready(child: Child, generation: int) -> None:
        child.process.kill()

    supervisor = Supervisor(starts, on_ready, patience=QUICK)
    async with running(supervisor) as task:
        await task
    assert (supervisor.state, starts.num_starts, supervisor.generation) == ("failed", 5, 4)
    assert supervisor.reason.endswith("the engine died. Its log says: boom")


async def test_old_failures_are_forgotten() -> None:
    starts = Starts(*[EngineError("no") for _ in range(20)])
    forgetful = Patience(first_pause_s=0.001, longest_pause_s=0.001, window_s=0.0)
    supervisor = Supervisor(starts, patience=forgetful)
    async with running(supervisor):
        await supervisor.wait_until_ready()
    assert starts.num_starts == 21


async def test_an_engine_that_dies_while_it_is_made_ready() -> None:
    starts = Starts()

    async def on_ready(child: Child, generation: int) -> None:
        if generation == 1:
            raise EngineError("it died while its roots were warmed")

    supervisor = Supervisor(starts, on_ready, patience=QUICK)
    async with running(supervisor):
        child = await supervisor.wait_until_ready()
        assert (supervisor.generation, child) == (2, starts.children[1])
        assert starts.children[0].num_closed == 1


async def test_a_bug_is_not_hidden() -> None:
    starts = Starts()

    async def on_ready(child: Child, generation: int) -> None:
        raise ZeroDivisionError

    supervisor = Supervisor(starts, on_ready, patience=QUICK)
    waiting = asyncio.create_task(supervisor.wait_until_ready())
    with pytest.raises(ZeroDivisionError):
        await supervisor.run()
    with pytest.raises(EngineError, match="has failed: ZeroDivisionError"):
        await waiting
    assert starts.children[0].num_closed == 1


@pytest.mark.parametrize("end", ["close", "cancel"])
async def test_a_start_that_is_cut_off_leaves_no_child(end: str) -> None:
    children: list[asyncio.subprocess.Process] = []

    async def slow(progress: Progress) -> Child:
        """As VllmEngine's launch: whatever ends it ends the child."""
        process = await asyncio.create_subprocess_exec("sleep", "1000")
        children.append(process)
        try:
            await asyncio.sleep(1000)
        except BaseException:
            process.kill()
            await process.wait()
            raise
        return Child(process)

    supervisor = Supervisor(slow, patience=QUICK)
    task = asyncio.create_task(supervisor.run())
    await until(lambda: children)
    if end == "close":
        await asyncio.gather(supervisor.close(), supervisor.close())
        await task
    else:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert children[0].returncode == -signal.SIGKILL
    assert supervisor.state == "stopped"
    assert [t for t in asyncio.all_tasks() if t is not asyncio.current_task()] == []


async def test_closed_before_it_runs() -> None:
    starts = Starts()
    supervisor = Supervisor(starts, patience=QUICK)
    await supervisor.close()
    await supervisor.run()
    assert starts.num_starts == 0


def attaching(servers: list[Attached]) -> Callable[[Progress], Awaitable[Attached]]:
    async def attach(progress: Progress) -> Attached:
        if servers and not servers[-1].is_closed:
            raise AssertionError("two at once")
        servers.append(Attached())
        return servers[-1]

    return attach


async def one_check(server: Attached) -> None:
    seen = server.num_checks
    await until(lambda: server.num_checks > seen)


async def test_an_attached_server_that_falls_silent() -> None:
    """Three checks in a row must fail; one that is answered in between starts the count anew."""
    servers: list[Attached] = []
    supervisor = Supervisor(attaching(servers), patience=ENDLESS)
    task = asyncio.create_task(supervisor.run())
    first = await supervisor.wait_until_ready()
    for _ in range(4):  # never three in a row
        for first.healthy in (False, True):
            await one_check(first)
    assert supervisor.generation == 1
    first.healthy = False
    await until(lambda: supervisor.generation == 2)
    assert first.is_closed
    await supervisor.close()
    await task
    assert servers[1].is_closed


async def test_a_reported_failure_is_looked_into_at_once() -> None:
    servers: list[Attached] = []
    rarely = Patience(first_pause_s=0.001, check_every_s=3600.0, max_silent=1)
    supervisor = Supervisor(attaching(servers), patience=rarely)
    task = asyncio.create_task(supervisor.run())
    await supervisor.wait_until_ready()
    supervisor.report_failure()  # it is well: nothing happens but a check
    await until(lambda: servers[0].num_checks == 1)
    assert supervisor.engine is servers[0]
    servers[0].healthy = False
    supervisor.report_failure()
    await until(lambda: supervisor.generation == 2)
    await supervisor.close()
    await task


async def test_reports_do_not_use_up_the_patience() -> None:
    """Calls that die together ask for one check, not for as many as make a death."""
    servers: list[Attached] = []
    rarely = Patience(first_pause_s=0.001, check_every_s=3600.0)
    supervisor = Supervisor(attaching(servers), patience=rarely)
    task = asyncio.create_task(supervisor.run())
    server = await supervisor.wait_until_ready()
    server.healthy = False
    for _ in range(100):
        supervisor.report_failure()
        await asyncio.sleep(0)
    assert (server.num_checks, supervisor.engine) == (1, server)
    await supervisor.close()
    await task


def test_pauses_double_up_to_the_longest() -> None:
    patience = Patience()
    assert [patience.pause_s(number) for number in (1, 2, 3, 6, 7, 8, 10_000)] == [
        *(1, 2, 4, 32, 60, 60, 60)
    ]
    assert ATTACHED.max_failures is None


@pytest.mark.live
@pytest.mark.long  # tests/test_gateway_kill.py kills one under `duramen serve`
async def test_vllm_is_killed(tiny_model: Path) -> None:
    """A server with the CPU profile's flags: the one that follows starts with nothing cached."""
    config = vllm_config(load_profile("cpu"), tiny_model, max_model_len=2048)
    prompt, one = [5] * 100, Sampling(max_tokens=1)
    supervisor: Supervisor[VllmEngine] = Supervisor(lambda progress: launch(config, progress))
    task = asyncio.create_task(supervisor.run())
    try:
        engine = await supervisor.wait_until_ready()
        assert engine.mirror is not None
        await engine.complete(prompt, one)
        assert await engine.settle(prompt)
        assert (await engine.complete(prompt, one)).cached_tokens == 96
        assert (engine.is_alive, await engine.is_healthy(60)) == (True, True)
        assert engine._process is not None
        children = Path(f"/proc/{engine._process.guard_pid}/task/{engine._process.guard_pid}")
        os.kill(int((children / "children").read_text().split()[0]), signal.SIGKILL)
        with pytest.raises(EngineError):  # 900 tokens do not come before the kill has worked
            await engine.complete(prompt, Sampling(max_tokens=900))
        supervisor.report_failure()
        await until(lambda: supervisor.engine is not engine)
        assert not engine.is_alive
        next_engine = await supervisor.wait_until_ready()
        assert supervisor.generation == 2
        assert next_engine.mirror is not None
        assert predict(next_engine.mirror, prompt) == 0
        done = await next_engine.complete(prompt, one)
        assert (done.cached_tokens, len(done.token_ids)) == (0, 1)
    finally:
        await supervisor.close()
        await task
    assert not next_engine.is_alive
