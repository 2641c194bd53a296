"""A study's hits on the real engine: what every layout and arm is said to reuse is delivered.

The prompts are the study's own. One token is sampled for each and never computed, so that the cache
holds prompts alone; the arms are fed the same.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

from duramen.experiments.importers.read import read_sessions
from duramen.experiments.layouts.catalogue import Layout, LayoutName
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.record.demo import demo_paths
from duramen.experiments.study.arms import Arm, ArmCache
from duramen.experiments.study.measure import ids_of
from duramen.experiments.study.prefixes import Prefixes
from duramen.experiments.study.schedule import Pace, in_time_order, with_times
from duramen.experiments.study.walk import Step, Walk
from duramen.experiments.trajectory import Call, Message, Session
from duramen.serving.vllm.engine import VllmEngine, attach, wait_until_ready
from duramen.serving.vllm.launch import VllmConfig, VllmProcess
from duramen.serving.vllm.protocol import Engine, Sampling

pytestmark = pytest.mark.live

LAYOUTS = [Layout(name) for name in LayoutName] + [
    Layout.parse("pruned:k=1"),
    Layout.parse("zoned:k=1,change=tombstone"),
    Layout.parse("zoned:k=2,align=128"),
]
TOOLS = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} of the workspace",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "n": {}}},
        },
    }
    for name in ("read_file", "write_file", "list_files")
)


def agent() -> Session:
    """Reads a file, changes it and reads it again, thinking aloud."""
    messages: list[Message] = [
        {"role": "system", "content": "You fix code and say little. " * 8},
        {"role": "user", "content": "Make the tests of this project pass."},
    ]
    calls = []
    for number in range(6):
        name = "write_file" if number % 3 == 1 else "read_file"
        arguments = json.dumps({"path": f"src/part{number % 2}.py", "n": number})
        function = {"name": name, "arguments": arguments}
        reply: Message = {
            "role": "assistant",
            "content": f"Step {number}.",
            "reasoning_content": "I look at the file first. " * 3,
            "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
        }
        calls.append(Call(tuple(messages), reply))
        text = f"x = {number}\n" * 24
        messages += [reply, {"role": "tool", "tool_call_id": f"c{number}", "content": text}]
        if number == 3:
            messages.append({"role": "user", "content": "Go on, and be quick."})
    return Session("agent", tuple(calls), TOOLS)


def steps(model: Model, sessions: Sequence[Session], layout: Layout) -> Iterator[Step]:
    return in_time_order(with_times(sessions, Pace(len(sessions))), Walk(model, layout))


async def compare(engine: Engine, arm: Arm, sent: Iterator[Step]) -> tuple[list[int], list[int]]:
    """What the arm says of each call, and what the engine delivered."""
    cache, prefixes = ArmCache(arm), Prefixes()
    modelled, delivered = [], []
    for step in sent:
        prompt = ids_of(step.prompt.token_ids)
        hit = cache.serve(step.session.session_id, prompt, prompt, prefixes.lcp(prompt))
        prefixes.add(prompt, None)
        done = await engine.complete(step.prompt.token_ids, Sampling(1))
        assert hit is not None
        assert done.cached_tokens is not None
        modelled.append(hit)
        delivered.append(done.cached_tokens)
    return modelled, delivered


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.label)
async def test_an_infinite_pool_delivers_what_the_study_says(
    live_engine: VllmEngine, smollm2: Path, layout: Layout
) -> None:
    assert live_engine.info.unit_tokens == 32
    sent = list(steps(load_model(smollm2, None), [agent()], layout))
    assert len(sent) == 6
    modelled, delivered = await compare(live_engine, Arm(32), iter(sent))
    assert delivered == modelled
    if layout.name is LayoutName.STABLE:
        assert all(delivered[1:])


POOL = 5120


@pytest.fixture(scope="module")
def crowded_server(tiny_model: Path) -> Iterator[VllmProcess]:
    """Large match units and a pool that three sessions do not fit into."""
    config = VllmConfig(
        tiny_model, block_size=128, max_model_len=POOL, num_kv_blocks=POOL // 128 + 1
    )
    process = VllmProcess(config)
    try:
        asyncio.run(wait_until_ready(process, lambda line: None))
        yield process
    finally:
        process.stop()


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.label)
async def test_a_crowded_pool_of_large_units_delivers_what_the_study_says(
    crowded_server: VllmProcess, tiny_model: Path, layout: Layout
) -> None:
    sessions = list(islice(read_sessions(demo_paths()), 3))
    sent = list(steps(load_model(tiny_model, None), sessions, layout))
    assert len({step.session.session_id for step in sent[:5]}) > 1
    engine = await attach(
        crowded_server.url, events=crowded_server.events, model_dir=crowded_server.model_dir
    )
    try:
        assert engine.info.unit_tokens == 128
        assert await engine.reset_prefix_cache()
        modelled, delivered = await compare(engine, Arm(128, kv_tokens=POOL), iter(sent))
    finally:
        await engine.close()
    assert delivered == modelled
