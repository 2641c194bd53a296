"""Fixtures that several files use: where the models come from, and the one live engine.

Live tests share one vLLM server with SmolLM2; each gets a connection of its own and an empty
cache. Where vLLM or the model cannot be had they are skipped with the reason, unless
DURAMEN_REQUIRE_LIVE=1 says that they must run.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import NoReturn

import pytest
from gateway_live_cases import LiveGateway, attached
from hypothesis import settings
from tokenizers import Tokenizer

from duramen.layout.errors import DuramenError
from duramen.serving.models import fetch, tiny
from duramen.serving.vllm.engine import VllmEngine, attach, wait_until_ready
from duramen.serving.vllm.launch import VllmConfig, VllmProcess
from duramen.serving.vllm.version import installed_build

pytest_plugins = ["browser", "transcript_cases"]  # they hold fixtures, too

settings.register_profile("duramen", deadline=None)  # no test asserts on time
settings.load_profile("duramen")

Encode = Callable[[str], list[int]]

NOTICES = pytest.StashKey[list[str]]()
SHARED = Path(__file__).parents[2] / "shared" / "data"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Prints what tests have said through `notice`, which pytest swallows where a test passes."""
    if notices := config.stash.get(NOTICES, []):
        terminalreporter.section("notices")
        for line in dict.fromkeys(notices):
            terminalreporter.write_line(line)


def cannot(reason: object) -> NoReturn:
    if os.environ.get("DURAMEN_REQUIRE_LIVE") == "1":
        pytest.fail(f"DURAMEN_REQUIRE_LIVE=1, but {reason}")
    pytest.skip(f"no live engine: {reason}")


@pytest.fixture(scope="session")
def notice(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Keeps a line for the end of the run: a figure, or cases that could not be tested."""
    return pytestconfig.stash.setdefault(NOTICES, []).append


@pytest.fixture(scope="session")
def shared_data(notice: Callable[[str], None]) -> Path:
    """Real recorded data beside the repository; it is never part of it."""
    if not SHARED.is_dir():
        reason = f"no real data at {SHARED}: only the cases written here are tested"
        notice(reason)
        pytest.skip(reason)
    return SHARED


@pytest.fixture(scope="session")
def tokenizer_folders(smollm2: Path, notice: Callable[[str], None]) -> dict[str, Path]:
    """SmolLM2, and the real tokenizers beside the repository where they are."""
    found = {folder.name: folder for folder in sorted(SHARED.glob("tokenizers/*"))}
    if not found:
        notice(f"no tokenizers at {SHARED / 'tokenizers'}: only SmolLM2's is tested")
    return {"smollm2": smollm2, **found}


@pytest.fixture(scope="session")
def template_sources(notice: Callable[[str], None]) -> dict[str, str]:
    """Our chat template, and the real ones beside the repository where they are."""
    ours = (files("duramen.configs") / "chatml_tools.jinja").read_text("utf-8")
    found = {path.stem: path.read_text("utf-8") for path in sorted(SHARED.glob("templates/*"))}
    if not found:
        notice(f"no templates at {SHARED / 'templates'}: only chatml_tools.jinja is tested")
    return {"chatml_tools": ours, **found}


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Directory of SmolLM2-135M-Instruct."""
    try:
        return fetch("smollm2", print)
    except DuramenError as error:
        cannot(error)


@pytest.fixture(scope="session")
def tiny_model(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the two-layer random Llama."""
    return tiny(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def encode(smollm2: Path) -> Encode:
    """Token ids of a text, control tokens included; SmolLM2 and the tiny model share them."""
    tokenizer = Tokenizer.from_file(str(smollm2 / "tokenizer.json"))
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


@pytest.fixture(scope="session")
def decode(smollm2: Path) -> Callable[[list[int]], str]:
    tokenizer = Tokenizer.from_file(str(smollm2 / "tokenizer.json"))
    return lambda token_ids: tokenizer.decode(token_ids, skip_special_tokens=False)


@pytest.fixture(scope="session")
def live_server(smollm2: Path) -> Iterator[VllmProcess]:
    """vLLM with SmolLM2: block size 32, 8,192 tokens of context, render and derender served too;
    a call without a priority counts as the most urgent, so all of them are served in order."""
    try:
        installed_build()
    except DuramenError as error:
        cannot(error)
    config = VllmConfig(smollm2, max_model_len=8192, scale_out=True, scheduling_policy="priority")
    process = VllmProcess(config)
    try:
        asyncio.run(wait_until_ready(process, lambda line: None))
        yield process
    finally:
        process.stop()


@pytest.fixture
async def live_engine(live_server: VllmProcess) -> AsyncIterator[VllmEngine]:
    """A connection to the live server, with its prefix cache emptied."""
    engine = await attach(
        live_server.url, events=live_server.events, model_dir=live_server.model_dir
    )
    try:
        async with asyncio.timeout(30):  # calls that a test gave up may still run
            while not await engine.reset_prefix_cache():
                await asyncio.sleep(0.1)
        yield engine
    finally:
        await engine.close()


@pytest.fixture(scope="session")
def live_gateway(live_server: VllmProcess) -> Iterator[LiveGateway]:
    """A gateway of this process, attached to the live server."""
    with attached(live_server) as gateway:
        yield gateway
