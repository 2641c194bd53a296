"""`duramen serve` as a process of its own in front of a running vLLM, for measurements."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from duramen.layout.errors import EngineError
from duramen.serving.vllm.launch import VllmProcess, free_port

START_TIMEOUT_S = 60.0


def serve_command(
    model_dir: Path, model_name: str, upstream: str, port: int, options: Sequence[str]
) -> list[str]:
    """Starts a gateway in front of the vLLM at `upstream`. `options`: of `duramen serve`."""
    command = [sys.executable, "-m", "duramen.cli.main", "serve", str(model_dir)]
    command += ["--model-name", model_name, "--port", str(port), "--upstream", upstream]
    return [*command, *options]


@asynccontextmanager
async def served(
    vllm: VllmProcess, model_name: str, options: Sequence[str] = ()
) -> AsyncIterator[str]:
    """Base URL of a gateway that is ready; it is ended afterwards. `options`: of `duramen serve`.

    Raises EngineError if it does not get ready.
    """
    port = free_port()
    events = ["--kv-events", f"{vllm.events.publish},{vllm.events.replay}"]
    command = serve_command(vllm.model_dir, model_name, vllm.url, port, [*events, *options])
    with open(os.devnull, "wb") as nothing:
        process = subprocess.Popen(command, stdout=nothing, stderr=nothing)
    try:
        await _until_ready(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait)


async def _until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    async with aiohttp.ClientSession() as session, asyncio.timeout(START_TIMEOUT_S):
        while process.poll() is None:
            try:
                async with session.get(url) as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
    raise EngineError("duramen serve ended before it was ready: run it by hand to see why")


def with_limits(folder: Path, name: str, limits: str) -> Path:
    """A profile file that sets `limits` (YAML) and nothing else."""
    file = folder / f"{name}.yaml"
    file.write_text(f"limits: {{{limits}}}\n", encoding="utf-8")
    return file
