"""Weka traces: subagents among their parent's calls, ids by session and model, merged blocks."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.importers.documents import read_documents
from duramen.experiments.importers.mooncake import Chains
from duramen.experiments.importers.read import read_sessions
from duramen.experiments.importers.traces import read_traces
from duramen.experiments.importers.weka import WekaRequest, read_weka
from duramen.experiments.simulate import Semantics, simulate
from duramen.layout.errors import TrajectoryError


def call(t, ids, num_tokens, model="opus", **rest):
    return {
        "t": t,
        "type": "n",
        "model": model,
        "in": num_tokens,
        "out": 3,
        "hash_ids": ids,
        "stop": "tool_use",
        **rest,
    }


def subagent(t, *requests):
    return {"type": "subagent", "t": t, "agent_id": "a", "requests": [*requests]}


def session(*requests, **rest):
    return {
        "id": "s",
        "block_size": 4,
        "hash_id_scope": "local",
        "requests": [*requests],
        **rest,
    }


@pytest.fixture
def write(tmp_path: Path):
    def to_file(value, name="trace.json"):
        (tmp_path / name).write_text(json.dumps(value))
        return tmp_path / name

    return to_file


def requests_in(path):
    return [
        request for one in read_weka(read_documents(path), Chains()) for request in one.requests
    ]


def test_a_subagents_clock_starts_when_it_does(write):
    path = write(
        session(
            call(0.0, [1], 5),
            subagent(10.5, call(0.0, [7], 4, "haiku"), call(6, [7, 8], 8, "haiku", type="s")),
            call(12, [1, 2], 10),
            subagent(13.0, subagent(1.0, call(0.5, [9], 6, "haiku"))),
        )
    )
    assert requests_in(path) == [
        WekaRequest(0.0, "opus", 5, 3, [1]),
        WekaRequest(10.5, "haiku", 4, 3, [7]),
        WekaRequest(12.0, "opus", 10, 3, [1, 2]),
        WekaRequest(14.5, "haiku", 6, 3, [9]),
        WekaRequest(16.5, "haiku", 8, 3, [7, 8]),
    ]


def test_time_that_goes_back_is_put_in_order(write):
    path = write(session(call(5, [1], 4), call(2, [1, 2], 8), call(5, [3], 4)))
    assert [(r.time_s, r.hash_ids) for r in requests_in(path)] == [(2, [1, 2]), (5, [1]), (5, [3])]


def hits(*paths, semantics=Semantics.VLLM, unit=None):
    return simulate(paths, semantics, None, unit).hit_sizes


def test_another_model_hits_nothing(write):
    path = write(session(call(0, [1, 2], 9), call(1, [1, 2], 9), call(2, [1, 2], 9, "haiku")))
    assert hits(path) == [0, 8, 0]
    assert hits(path, semantics=Semantics.TRACE) == [0, 8, 0]  # the rest of 1 token bears no id


def test_local_ids_mean_nothing_in_another_file_or_line(write, tmp_path):
    one = session(call(0, [1, 2], 9))
    paths = [write(one, "a.json"), write(one, "b.json")]
    assert hits(*paths) == hits(tmp_path) == [0, 0]
    lines = tmp_path / "lines.jsonl"
    lines.write_text(json.dumps(one) + "\n" + json.dumps(one))
    assert hits(lines) == [0, 0]
    everywhere = one | {"hash_id_scope": "global"}
    paths = [write(everywhere, "a.json"), write(everywhere, "b.json")]
    assert hits(*paths) == [0, 8]
    write(everywhere | {"requests": [call(0, [2], 4)]}, "b.json")
    with pytest.raises(
        TrajectoryError, match=r"b.json:1: requests\[0\]: hash id 2 comes after None"
    ):
        hits(*paths)
    assert hits(write(session(call(0, [1], 4)) | {"hash_id_scope": None})) == [0]


def test_blocks_merge_to_a_multiple(write):
    path = write(
        session(
            call(0, [1, 2, 3, 4, 5], 20),
            call(1, [1, 2, 3, 4, 5, 6], 25),
            call(2, [1, 2, 3, 7], 17),
            call(3, [1, 2, 3, 7], 17),
        )
    )
    assert hits(path, unit=4) == [0, 20, 12, 16]
    assert hits(path, unit=8) == [0, 16, 8, 16]
    assert hits(path, unit=12) == [0, 12, 12, 12]
    trace = read_traces([path], 8)
    assert [len(request.hash_ids) for request in trace.hashed] == [3, 4, 3, 3]
    assert trace.hashed[2].hash_ids[:2] == trace.hashed[3].hash_ids[:2]
    assert trace.hashed[2].hash_ids[2] != trace.hashed[3].hash_ids[2]  # a token without an id
    with pytest.raises(
        TrajectoryError, match=r"blocks of 4 tokens do not make up blocks of 6; give"
    ):
        hits(path, unit=6)


def test_ids_that_cover_the_whole_prompt_name_its_partial_block(write):
    path = write(session(call(0, [1, 2, 3], 9), call(1, [1, 2, 3], 9)))
    assert hits(path, semantics=Semantics.TRACE) == [0, 9]
    assert hits(path, semantics=Semantics.TRACE, unit=8) == [0, 9]


def test_a_prompt_shorter_than_a_block_has_no_ids(write):
    path = write(session(call(0, [], 3), call(1, [], 3)))
    assert hits(path) == [0, 0]


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=12))
def test_merged_blocks_hit_what_the_blocks_themselves_show(tmp_path_factory, prompts):
    """Twin: compare the prompts' blocks one by one; two of them make a block of 8."""
    ids: dict[tuple[int, ...], int] = defaultdict(lambda: len(ids))
    calls = [
        call(t, [ids[tuple(blocks[: end + 1])] for end in range(len(blocks))], 4 * len(blocks) + 1)
        for t, blocks in enumerate(prompts)
    ]
    path = tmp_path_factory.mktemp("weka") / "t.json"
    path.write_text(json.dumps(session(*calls)))
    expected = []
    for number, blocks in enumerate(prompts):
        shared = [sum(1 for _ in iter_common(blocks, before)) for before in prompts[:number]]
        expected.append(max(shared, default=0) // 2 * 8)
    assert hits(path, unit=8) == expected


def iter_common(left, right):
    for a, b in zip(left, right, strict=False):
        if a != b:
            return
        yield a


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (
            session(call(0, [1, 2], 20)),
            r"requests\[0\].hash_ids is a list; expected 5 ids .* not 2",
        ),
        (session(call(0, [], 20)), r"requests\[0\].hash_ids is an empty list; expected 5 ids"),
        (session(call(0, [], 0)), r"requests\[0\] is no request: Expected `int` >= 1 - at `\$.in`"),
        (session(call(0, [1], -4)), r"requests\[0\] is no request: .* - at `\$.in`"),
        (session(call(-1, [1], 4)), r"requests\[0\] is no request: Expected `float` >= 0.*`\$.t`"),
        (session(call(0, ["1"], 4)), r"requests\[0\] is no request: .*`\$.hash_ids\[0\]`"),
        (session(call(0, [1], 4, type="x")), r"requests\[0\] is no request: Invalid enum .*type"),
        (session(call(0, [1], 4, model=None)), r"requests\[0\] is no request: .*model"),
        (session(call(0, [1], 4), 5), r"requests\[1\] is a number; expected an object"),
        (session({"type": "subagent", "t": 0}), r"requests\[0\] is no subagent: .*`requests`"),
        (
            session(subagent(0, call(0, [1], 9))),
            r"requests\[0\].requests\[0\].hash_ids is a list; expected 2 ids",
        ),
        (
            session(call(0, [1, 2], 8), call(1, [2], 4)),
            r"requests\[1\]: hash id 2 comes after None here and after 1 elsewhere",
        ),
        (session(call(0, [1, 1], 8)), r"requests\[0\]: hash id 1 comes after 1 here"),
        (session(block_size=0), "no Weka trace: Expected `int` >= 1 - at `..block_size`"),
        (session(hash_id_scope="here"), "no Weka trace: Invalid enum value 'here'"),
        (session() | {"requests": {}}, "no Weka trace: Expected `array`"),
    ],
)
def test_broken_traces_are_one_clear_line(write, value, error):
    with pytest.raises(TrajectoryError, match=rf"trace.json:1: {error}") as raised:
        hits(write(value))
    assert "\n" not in str(raised.value)


def test_nan_is_no_json(write, tmp_path):
    path = write(session(call(0, [1], 4)))
    path.write_text(path.read_text().replace('"t": 0', '"t": NaN'))
    with pytest.raises(TrajectoryError, match=r"trace.json:1: not valid JSON"):
        hits(path)


def test_it_cannot_be_laid_out(write):
    with pytest.raises(TrajectoryError, match=r"\(Weka\) bears no text; use `duramen simulate`"):
        list(read_sessions([write(session(call(0, [1], 4)))]))


@pytest.mark.parametrize(
    ("folder", "num_files", "num_requests"), [("weka", 20, 1017), ("weka-subagents", 3, 227)]
)
def test_real_sessions_add_up_to_their_own_totals(shared_data, folder, num_files, num_requests):
    paths = sorted((shared_data / folder).glob("*.json"))
    assert len(paths) == num_files
    num_read = 0
    for path in paths:
        requests = requests_in(path)
        num_read += len(requests)
        totals = json.loads(path.read_text())["totals"]["combined_tokens"]
        assert sum(request.num_tokens for request in requests) == totals["input"]
        assert sum(request.num_output_tokens for request in requests) == totals["output"]
        times = [request.time_s for request in requests]
        assert times == sorted(times)
    assert num_read == num_requests
    result = simulate([shared_data / folder], Semantics.VLLM, None)
    assert (result.num_sessions, result.num_requests) == (num_files, num_requests)


def test_real_sessions_hit_what_a_set_of_ids_shows(shared_data):
    """Twin of an infinite cache: per session and model, the leading ids that were seen before."""
    expected = []
    for path in sorted((shared_data / "weka-subagents").glob("*.json")):
        seen: dict[str, set[int]] = defaultdict(set)
        for request in requests_in(path):
            known = [hash_id in seen[request.model] for hash_id in request.hash_ids]
            num_hits = known.index(False) if False in known else len(known)
            expected.append(min(num_hits, (request.num_tokens - 1) // 64) * 64)
            seen[request.model].update(request.hash_ids)
    assert hits(shared_data / "weka-subagents") == expected
