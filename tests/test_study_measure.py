"""A study over real layouts and a real tokenizer: bounds, arms, gaps, parts, and equal runs."""

import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duramen.experiments.layouts.catalogue import Layout, LayoutName
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.replay import Replay
from duramen.experiments.study.arms import Arm
from duramen.experiments.study.parts import Parts, digest_of
from duramen.experiments.study.results import LayoutResult
from duramen.experiments.study.schedule import Pace, with_times
from duramen.experiments.study.study import Study
from duramen.experiments.target import ModelTarget
from duramen.experiments.trajectory import Call, Session

LAYOUTS = [Layout(name) for name in LayoutName if name is not LayoutName.ZONED]
APPEND_ONLY = [
    Layout(LayoutName(name))
    for name in ("recorded", "clock", "uuid", "counter", "shuffled-tools", "unsorted-json")
]
STABLE = Layout(LayoutName.STABLE)
TOOLS = tuple(
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {"path": {}}}},
    }
    for name in ("read_file", "list_files", "write_file")
)
WORDS = ["ok", "read the file", "  ", "x = 1\n", "zebra " * 5, "déjà vu", "<|im_end|>", "12345678"]
ARMS = [Arm(unit) for unit in (1, 4, 16)] + [Arm(4, draft=True), Arm(1, radix=True)]


@pytest.fixture(scope="module")
def model(smollm2) -> Model:
    return load_model(smollm2, None)


@st.composite
def conversations(draw):
    """Sessions of one agent: the same root, then replies, tool results and user turns."""
    root = [{"role": "system", "content": "You fix code."}]
    sessions = []
    for number in range(draw(st.integers(1, 3))):
        messages = [*root, {"role": "user", "content": draw(st.sampled_from(WORDS))}]
        calls = []
        for call in range(draw(st.integers(1, 5))):
            text = draw(st.sampled_from(WORDS))
            arguments = json.dumps({"path": draw(st.sampled_from("ab")), "n": 1})
            function = {"name": "read_file", "arguments": arguments}
            asked = [{"id": str(call), "type": "function", "function": function}]
            uses_tool = draw(st.booleans())
            reply = {"role": "assistant", "content": text} | (
                {"tool_calls": asked} if uses_tool else {}
            )
            calls.append(Call(tuple(messages), reply))
            answer = {"role": "user", "content": draw(st.sampled_from(WORDS))}
            if uses_tool:
                answer = {**answer, "role": "tool", "tool_call_id": str(call)}
            messages = [*messages, reply, answer]
        sessions.append(Session(f"s{number}", tuple(calls), TOOLS))
    return with_times(sessions, Pace(draw(st.integers(1, 2))))


def study(sessions, model, layouts, arms=ARMS, parts=None) -> list[LayoutResult]:
    return Study(sessions, model, arms, parts=parts).run(layouts)


@settings(max_examples=25)
@given(conversations(), st.sampled_from(LAYOUTS))
def test_bounds_fall_from_content_to_delivered_with_a_cause_for_each_gap(model, sessions, layout):
    [result] = study(sessions, model, [layout])
    assert result.num_calls == sum(len(session.calls) for session in sessions)
    assert result.content - result.token == sum(result.gaps.values())
    for sums in result.arms.values():
        assert result.content >= result.token >= sums.unit >= sums.cached_tokens
        assert result.token - sums.cached_tokens == sum(sums.gaps.values())
        assert all(tokens > 0 for tokens in sums.gaps.values())
    for row in result.calls:
        assert row.prompt_tokens >= row.content >= row.token >= max(row.cached)


@settings(max_examples=25)
@given(conversations(), st.sampled_from(LAYOUTS), st.sampled_from([1, 4]))
def test_infinite_beats_any_pool_and_a_larger_pool_a_smaller(model, sessions, layout, unit):
    [whole] = study(sessions, model, [layout], [Arm(unit)])
    longest = max(row.prompt_tokens + row.output_tokens for row in whole.calls)
    pools = [longest + unit, 2 * longest, 4 * longest, None]
    [result] = study(sessions, model, [layout], [Arm(unit, kv_tokens=pool) for pool in pools])
    delivered = [sums.cached_tokens for sums in result.arms.values()]
    assert delivered == sorted(delivered)
    assert [sums.num_skipped for sums in result.arms.values()] == [0, 0, 0, 0]


@settings(max_examples=25)
@given(conversations(), st.sampled_from(LAYOUTS))
def test_a_radix_tree_hits_what_blocks_hit_and_small_blocks_what_large_ones_do(
    model, sessions, layout
):
    [result] = study(sessions, model, [layout])
    radix, one, four, sixteen, draft = (
        result.arms[label].cached_tokens
        for label in ("radix page 1", "unit 1", "unit 4", "unit 16", "unit 4, draft")
    )
    assert radix == one >= four >= sixteen
    assert four >= draft


@settings(max_examples=60)
@given(conversations())
def test_stable_computes_no_more_than_any_other_append_only_layout(model, sessions):
    stable, *others = study(sessions, model, [STABLE, *APPEND_ONLY])
    """Whole units only: another spelling may end a call's prefix at a luckier place in its unit."""
    for unit in (1, 4, 16):
        least = stable.arms[f"unit {unit}"].uncached_tokens - (unit - 1) * stable.num_calls
        uncached = {other.label: other.arms[f"unit {unit}"].uncached_tokens for other in others}
        assert {name: num for name, num in uncached.items() if num < least} == {}


@pytest.mark.parametrize("layout", [STABLE, Layout(LayoutName.CLOCK), Layout(LayoutName.PRUNED, 1)])
async def test_a_study_says_what_a_replay_says(model, layout):
    read = {"role": "tool", "tool_call_id": "0", "content": "x = 1\n" * 9}
    said = {"role": "assistant", "content": "I read."}
    first = ({"role": "user", "content": "Fix the file."},)
    calls = (Call(first, said), Call((*first, said, read), said))
    calls += (Call((*first, said, read, said, read), said),)
    sessions = with_times([Session(name, calls, TOOLS) for name in "ab"], Pace())
    [result] = study(sessions, model, [layout], [Arm(16)])
    replay = Replay(sessions, model, ModelTarget(None, 16, None))
    await replay.run([layout])
    sums = replay.accounts[layout]
    assert (result.prompt_tokens, result.content, result.token) == (
        sums.prompt_tokens,
        sums.content,
        sums.token,
    )
    assert result.arms["unit 16"].unit == sums.unit
    assert result.arms["unit 16"].cached_tokens == sums.delivered
    assert sum(session.num_breaks for session in result.sessions) == len(sums.breaks)


@given(conversations(), st.sampled_from(LAYOUTS))
@settings(max_examples=10)
def test_equal_runs_are_equal(model, sessions, layout):
    runs = [study(sessions, model, [layout]) for _ in range(2)]
    assert msgspec.json.encode(runs[0]) == msgspec.json.encode(runs[1])


def example() -> list[Session]:
    first = ({"role": "user", "content": "Hi"},)
    said = {"role": "assistant", "content": "Hello."}
    calls = (Call(first, said), Call((*first, said, *first), said))
    return with_times([Session("s", calls)], Pace())


def test_a_study_that_was_cut_short_goes_on(model, tmp_path):
    sessions = example()
    parts = Parts.open(tmp_path, digest_of(sessions, model, ["unit 1"]))
    [whole] = study(sessions, model, [STABLE], parts=parts)
    [file] = parts.folder.iterdir()
    measured: list[str] = []

    def progress(layout: Layout, num_done: int) -> None:
        measured.append(f"{layout.label} {num_done}")

    again = Study(sessions, model, ARMS, parts=parts)
    assert again.run([STABLE], progress)[0] == whole
    assert measured == ["stable 2"]  # all at once: it was there
    file.write_bytes(file.read_bytes()[:-9])  # as a killed process without a rename would leave it
    assert again.run([STABLE], progress)[0] == whole
    assert measured == ["stable 2", "stable 1", "stable 2"]
    Parts.open(tmp_path, "another digest")
    assert not file.exists()


def test_parts_belong_to_what_they_were_measured_on(model, smollm2):
    sessions = example()
    digests = {digest_of(sessions, model, ["unit 1"])}
    assert digest_of(example(), model, ["unit 1"]) in digests
    digests.add(digest_of(sessions, model, ["unit 2"]))
    digests.add(digest_of(sessions, model.keeping_thinking(), ["unit 1"]))
    digests.add(digest_of([replace(sessions[0], session_id="t")], model, ["unit 1"]))
    other = [replace(call, time_s=call.time_s + 1) for call in sessions[0].calls]
    digests.add(digest_of([replace(sessions[0], calls=tuple(other))], model, ["unit 1"]))
    said = [replace(call, reply={"role": "assistant", "content": "No."}) for call in other]
    digests.add(digest_of([replace(sessions[0], calls=tuple(said))], model, ["unit 1"]))
    assert len(digests) == 6
