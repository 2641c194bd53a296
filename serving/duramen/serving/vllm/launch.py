"""Starts vLLM as a child process that cannot outlive us, and says why when it does not come up."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from duramen.layout.errors import EngineError
from duramen.serving.vllm.itl_report import ItlReport, read_report
from duramen.serving.vllm.itl_target import SCHEDULER_CLASS, ItlTarget
from duramen.serving.vllm.log import explain_log
from duramen.serving.vllm.version import (
    Build,
    check_scheduler_version,
    check_version,
    installed_build,
)

Progress = Callable[[str], None]

HOST = "127.0.0.1"
CPU_KV_CACHE_GIB = 2
STOP_TIMEOUT_S = 30.0  # the guard kills after 10 s; this only bounds a machine that hangs
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # /reset_prefix_cache
}


@dataclass(frozen=True)
class VllmConfig:
    """How to start vLLM on `model_dir`. None leaves a choice to vLLM, or to us where it says so."""

    model_dir: Path
    build: Build | None = None  # None: the one that is installed
    port: int | None = None  # None: a free one
    block_size: int | None = None  # None: see default_block_size
    max_model_len: int | None = None
    num_kv_blocks: int | None = None
    kv_cache_gib: int | None = None  # None: CPU_KV_CACHE_GIB on the CPU build
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    long_prefill_token_threshold: int | None = None
    enable_chunked_prefill: bool | None = None
    scheduling_policy: Literal["fcfs", "priority"] | None = None
    gpu_memory_utilization: float | None = None  # unused where kv_cache_gib is given
    tensor_parallel_size: int = 1
    chat_template: Path | None = None  # None: the model's own
    tool_parser: str | None = "hermes"
    reasoning_parser: str | None = None
    model_name: str | None = None  # that it is served under; None: its folder
    scale_out: bool = False  # also serve /inference/v1/generate and render/derender
    itl: ItlTarget | None = None  # None: vLLM's own scheduler
    extra_args: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.model_dir / "config.json").is_file():
            raise EngineError(f"no model at {self.model_dir}: config.json is missing")


@dataclass(frozen=True)
class EventEndpoints:
    """ZMQ addresses of the KV event stream and of its replay."""

    publish: str
    replay: str


class VllmProcess:
    """A vLLM server of ours: started by the constructor, ended by `stop` or by our own death."""

    def __init__(self, config: VllmConfig) -> None:
        build, version = installed_build()
        check_version(version)
        if config.itl is not None:
            check_scheduler_version(version)
        port = config.port if config.port is not None else free_port()
        _check_port(port)
        self.url = f"http://{HOST}:{port}"
        self.model_dir = config.model_dir
        self._directory = Path(tempfile.mkdtemp(prefix="duramen-vllm-"))
        self.log_file = self._directory / "vllm.log"
        self._itl_report_file = self._directory / "itl_report"
        self.events = EventEndpoints(
            publish=f"ipc://{self._directory}/events", replay=f"ipc://{self._directory}/replay"
        )
        guard = [sys.executable, "-m", "duramen.serving.vllm.guard", str(self._directory)]
        build = config.build or build
        with self.log_file.open("wb") as log:
            self._guard = subprocess.Popen(
                guard + _command(config, build, port, self.events),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | ENVIRONMENT | self._environment(config, build),
                start_new_session=True,  # Ctrl-C must reach us only
            )

    @property
    def is_alive(self) -> bool:
        return self._guard.poll() is None

    @property
    def guard_pid(self) -> int:
        """The process that starts and ends the server; the server leads a session of its own."""
        return self._guard.pid

    def itl_report(self) -> ItlReport | None:
        """What its scheduler did to hold its target; None where it has none, or no step yet."""
        return read_report(self._itl_report_file)

    def explain(self) -> str:
        """What the log says of a failure, or that the server was stopped: a sentence."""
        if not self.log_file.exists():
            return "It was stopped."
        return "Its log says: " + explain_log(self.log_file.read_text(errors="replace"))

    def stop(self) -> None:
        """End every process of the server and delete its files; a second call does nothing."""
        assert self._guard.stdin is not None
        with suppress(BrokenPipeError):
            self._guard.stdin.close()
        try:
            self._guard.wait(timeout=STOP_TIMEOUT_S)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _environment(self, config: VllmConfig, build: Build) -> dict[str, str]:
        itl = {} if config.itl is None else config.itl.as_environment(self._itl_report_file)
        return _build_environment(config, build) | itl


def _command(config: VllmConfig, build: Build, port: int, events: EventEndpoints) -> list[str]:
    event_config = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": events.publish,
        "replay_endpoint": events.replay,
        "buffer_steps": 100_000,
    }
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(config.model_dir), "--host", HOST, "--port", str(port)]
    command += ["--enable-prompt-tokens-details"]
    command += ["--kv-events-config", msgspec.json.encode(event_config).decode()]
    for option, value in _options(config, build).items():
        if value is not None:
            command += [option, str(value)]
    if config.enable_chunked_prefill is not None:
        no = "" if config.enable_chunked_prefill else "no-"
        command += [f"--{no}enable-chunked-prefill"]
    if config.tool_parser:
        command += ["--enable-auto-tool-choice", "--tool-call-parser", config.tool_parser]
    if config.scale_out:
        command += ["--enable-scale-out"]
    if build == "cpu":
        command += ["--enforce-eager"]
    return [*command, *config.extra_args]


def _options(config: VllmConfig, build: Build) -> dict[str, object]:
    """Options that take one value; those without one are left to vLLM."""
    kv_bytes = config.kv_cache_gib * 2**30 if config.kv_cache_gib and build == "gpu" else None
    several = config.tensor_parallel_size if config.tensor_parallel_size > 1 else None
    return {
        "--block-size": config.block_size or default_block_size(build),
        "--max-model-len": config.max_model_len,
        "--num-gpu-blocks-override": config.num_kv_blocks,
        "--kv-cache-memory-bytes": kv_bytes,
        "--gpu-memory-utilization": config.gpu_memory_utilization,
        "--tensor-parallel-size": several,
        "--max-num-seqs": config.max_num_seqs,
        "--max-num-batched-tokens": config.max_num_batched_tokens,
        "--long-prefill-token-threshold": config.long_prefill_token_threshold,
        "--scheduling-policy": config.scheduling_policy,
        "--scheduler-cls": None if config.itl is None else SCHEDULER_CLASS,
        "--chat-template": config.chat_template,
        "--reasoning-parser": config.reasoning_parser,
        "--served-model-name": config.model_name,
    }


def default_block_size(build: Build | None = None) -> int:
    """Tokens per KV block if none are asked for; the CPU build's attention needs multiples of 32.

    `build` None: the one that is installed; EngineError if none is.
    """
    return 32 if (build or installed_build()[0]) == "cpu" else 16


def _build_environment(config: VllmConfig, build: Build) -> dict[str, str]:
    if build != "cpu":
        return {}
    return {"VLLM_CPU_KVCACHE_SPACE": str(config.kv_cache_gib or CPU_KV_CACHE_GIB)}


def free_port() -> int:
    """One of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise EngineError(
                f"port {port} is taken: name another, or none for a free one"
            ) from error
