"""`duramen simulate` and what is below it: the Mooncake reader, the three semantics, the output."""

import json
from collections import OrderedDict
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from duramen.cli.simulate import simulate as command
from duramen.experiments.importers.documents import read_documents
from duramen.experiments.importers.mooncake import HashedRequest, read_mooncake
from duramen.experiments.importers.token_trace import TokenRequest
from duramen.experiments.simulate import (
    BlockRequest,
    Semantics,
    replay_trace,
    replay_vllm,
    simulate,
    token_blocks,
)
from duramen.layout.errors import DuramenError, LayoutError, TrajectoryError

FIRST = {"timestamp": 0, "input_length": 1300, "output_length": 9, "hash_ids": [0, 1, 2]}
# the same prompt again; one that parts from it in its last block; one that ends behind the first
TRACE = [
    FIRST,
    {"timestamp": 1500, "input_length": 1300, "output_length": 1, "hash_ids": [0, 1, 2]},
    {"timestamp": 1500, "input_length": 1100, "output_length": 0, "hash_ids": [0, 1, 3]},
    {"timestamp": 2000, "input_length": 513, "output_length": 7, "hash_ids": [0, 4]},
]
MOONCAKE = Path("mooncake") / "synthetic_trace.jsonl"


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "trace.jsonl", *TRACE)


def test_mooncake_lines_become_requests(trace: Path) -> None:
    requests = [*read_mooncake(read_documents(trace))]
    assert requests[0] == HashedRequest([0, 1, 2], 1300, 0.0, 9)
    assert requests[2] == HashedRequest([0, 1, 3], 1100, 1.5, 0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"timestamp": 0, "input_length": 13\n', r"trace.jsonl:2: the JSON is cut off"),
        ('{"hash_ids": [1]}', r"trace.jsonl:2: no Mooncake request: .*missing.*timestamp"),
        (json.dumps(FIRST | {"hash_ids": [0, "1", 2]}), r":2: .*Expected `int`.*hash_ids"),
        (json.dumps(FIRST | {"input_length": 0}), r":2: .*>= 1.*input_length"),
        (json.dumps(FIRST | {"timestamp": -1}), r":2: .*>= 0.*timestamp"),
        (json.dumps(FIRST | {"hash_ids": [0, 1]}), r":2: 1300 tokens are 3 blocks of 512.*--unit"),
        (
            json.dumps(FIRST | {"hash_ids": [0, 1, 0]}),
            r":2: hash id 0 comes after 1 here and after N",
        ),
        (
            json.dumps(FIRST | {"hash_ids": [0, 3, 2]}),
            r":2: hash id 2 comes after 3 here and after 1",
        ),
        ("[]", r":2: no Mooncake request"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "trace.jsonl", FIRST)
    with path.open("a") as file:
        file.write(line)
    with pytest.raises(TrajectoryError, match=message):
        simulate([path], Semantics.TRACE, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no file"),
        ("", "empty"),
        ('{"messages": []}\n', ":1: unknown form; expected a Mooncake trace"),
        ("[1, 2]\n", ":1: unknown form"),
        ('{"token_ids": []}\n', ":1: no line of a token trace: .*length >= 1"),
        ('{"token_ids": [1, -1]}\n', ":1: no line of a token trace: .*>= 0"),
        ('{"token_ids": [1, 4294967296]}\n', ":1: no line of a token trace: .*<="),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "some.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(TrajectoryError, match=f"some.jsonl.*{message}"):
        simulate([path], Semantics.TRACE, None)


def test_trace_semantics_count_present_blocks_with_the_tokens_they_have(trace: Path) -> None:
    result = simulate([trace], Semantics.TRACE, None)
    assert (result.num_requests, result.num_skipped) == (4, 0)
    assert result.num_blocks == 11
    assert result.block_hit_rate == (0 + 3 + 2 + 1) / 11
    assert result.hit_sizes == [0, 1300, 1024, 512]
    assert result.prompt_tokens == 1300 + 1300 + 1100 + 513
    assert result.cached_tokens == 2836


def test_vllm_semantics_count_full_blocks_without_the_last_token(trace: Path) -> None:
    result = simulate([trace], Semantics.VLLM, None)
    assert result.num_blocks == 11
    assert result.block_hit_rate == (0 + 2 + 2 + 1) / 11
    assert result.hit_sizes == [0, 1024, 1024, 512]


def test_what_the_pool_cannot_hold_is_skipped_and_counted(trace: Path) -> None:
    result = simulate([trace], Semantics.VLLM, 3)  # two blocks beside the null block
    assert (result.num_requests, result.num_skipped) == (4, 3)
    assert result.hit_sizes == [None, None, None, 0]
    assert (result.num_blocks, result.prompt_tokens) == (2, 513)


def test_rates_of_nothing_are_none(trace: Path) -> None:
    result = simulate([trace], Semantics.VLLM, 2)
    assert result.num_skipped == 4
    assert (result.block_hit_rate, result.token_hit_rate) == (None, None)


def replay_slowly(requests: list[BlockRequest], unit: int, capacity: int) -> list[int]:
    present: OrderedDict[object, None] = OrderedDict()
    hits = []
    for request in requests:
        num_hits = 0
        for key in request.keys:
            if key not in present:
                break
            num_hits += 1
        hits.append(min(num_hits * unit, request.num_tokens))
        for key in reversed(request.keys):
            present[key] = None
            present.move_to_end(key)
            if len(present) > capacity:
                present.popitem(last=False)
    return hits


token_requests = st.lists(
    st.builds(
        TokenRequest,
        st.lists(st.integers(0, 1), min_size=1, max_size=16),
        st.lists(st.integers(0, 1), max_size=4),
    ),
    max_size=30,
)


@given(token_requests, st.integers(1, 12))
def test_trace_semantics_equal_their_slow_twin(requests: list[TokenRequest], capacity: int) -> None:
    blocks = [token_blocks(request, 3) for request in requests]
    assert [*replay_trace(blocks, 3, capacity)] == replay_slowly(blocks, 3, capacity)
    assert [*replay_trace(blocks, 3, None)] == replay_slowly(blocks, 3, 10_000)


def test_token_blocks_tell_partial_tails_apart() -> None:
    first = token_blocks(TokenRequest([1, 2, 3, 4, 5], [6, 7, 8]), 2)
    assert (first.num_tokens, first.num_decoded_tokens) == (5, 2)
    assert (len(first.keys), len(first.computed_keys)) == (3, 3)  # a tail of 5; full with 5 6
    assert first.keys[:2] == first.computed_keys[:2]
    assert first.keys[2] != first.computed_keys[2]
    assert token_blocks(TokenRequest([1, 2, 3, 4, 5]), 2).keys == first.keys
    assert token_blocks(TokenRequest([1, 2, 3, 4, 6]), 2).keys[2] != first.keys[2]
    assert token_blocks(TokenRequest([5]), 2).keys != first.keys[2:]


def test_vllm_semantics_hit_what_was_decoded() -> None:
    blocks = [
        token_blocks(TokenRequest([1, 2, 3], [4, 5]), 2),  # computes 1 2 3 4
        token_blocks(TokenRequest([1, 2, 3, 4, 5]), 2),
    ]
    assert [*replay_vllm(blocks, 2, None)] == [0, 4]


TOKEN_TRACE = [
    {"token_ids": [1, 2, 3, 4, 5], "output_ids": [6, 7]},
    {"token_ids": [1, 2, 3, 4, 5, 6, 7]},
    {"token_ids": [1, 2, 3, 9]},
]


@pytest.mark.parametrize(
    ("semantics", "unit", "expected"),
    [
        (Semantics.TRACE, 2, 0 + 4 + 2),
        (Semantics.VLLM, 2, 0 + 6 + 2),
        (Semantics.VLLM, None, 0),  # 16 tokens: no block ever fills
        (Semantics.RADIX, None, 0 + 6 + 3),
        (Semantics.RADIX, 2, 0 + 6 + 2),
    ],
)
def test_token_traces_run_under_every_semantics(
    tmp_path: Path, semantics: Semantics, unit: int | None, expected: int
) -> None:
    path = write(tmp_path / "tokens.jsonl", *TOKEN_TRACE)
    result = simulate([path], semantics, None, unit)
    assert result.cached_tokens == expected
    assert result.prompt_tokens == 16


def test_radix_refuses_hash_ids(trace: Path) -> None:
    with pytest.raises(TrajectoryError, match=r"hash ids of blocks.*--semantics trace or vllm"):
        simulate([trace], Semantics.RADIX, None)


def test_files_come_one_after_another_and_share_no_hash_id(trace: Path, tmp_path: Path) -> None:
    again = write(tmp_path / "again.jsonl", *TRACE)
    result = simulate([trace, again], Semantics.TRACE, None)
    assert result.hit_sizes == [0, 1300, 1024, 512] * 2
    assert result.output_tokens == 2 * 17
    tokens = [write(tmp_path / name, *TOKEN_TRACE) for name in ("one.jsonl", "two.jsonl")]
    assert simulate(tokens, Semantics.RADIX, None).hit_sizes == [0, 6, 3, 4, 6, 3]  # same tokens


def test_requests_are_served_in_the_order_of_time(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.jsonl", *TRACE[::-1])
    assert simulate([path], Semantics.TRACE, None).hit_sizes == [0, 1024, 1300, 512]


def test_a_folder_stands_for_its_files(trace: Path) -> None:
    assert simulate([trace.parent], Semantics.TRACE, None).num_requests == 4
    with pytest.raises(TrajectoryError, match=r"trace\.jsonl is given twice"):
        simulate([trace.parent, trace], Semantics.TRACE, None)


def test_forms_are_not_mixed(trace: Path, tmp_path: Path) -> None:
    tokens = write(tmp_path / "tokens.jsonl", *TOKEN_TRACE)
    with pytest.raises(TrajectoryError, match=r"tokens.jsonl is a trace of token ids, but .*apart"):
        simulate([trace, tokens], Semantics.TRACE, None)


def test_output_tokens_that_no_request_tells_are_none(tmp_path: Path) -> None:
    path = write(tmp_path / "tokens.jsonl", {"token_ids": [1, 2]})
    assert simulate([path], Semantics.TRACE, None).output_tokens is None


@pytest.mark.parametrize(("capacity", "unit"), [(0, None), (-1, None), (None, 0)])
def test_senseless_sizes_are_refused(trace: Path, capacity: int | None, unit: int | None) -> None:
    with pytest.raises(LayoutError, match="must be at least 1"):
        simulate([trace], Semantics.TRACE, capacity, unit)


@pytest.mark.parametrize(
    ("semantics", "capacity", "block_hit_rate", "token_hit_rate"),
    [
        (Semantics.TRACE, 1_000, 0.0841, None),
        (Semantics.TRACE, 5_000, 0.2793, None),
        (Semantics.TRACE, 10_000, 0.4239, None),
        (Semantics.TRACE, 30_000, 0.6242, None),
        (Semantics.TRACE, 50_000, 0.6396, 0.6512),
        (Semantics.TRACE, None, 0.6396, 0.6512),
        (Semantics.VLLM, None, None, 0.6504),
    ],
)
def test_mooncakes_own_trace(
    shared_data: Path,
    semantics: Semantics,
    capacity: int | None,
    block_hit_rate: float | None,
    token_hit_rate: float | None,
) -> None:
    result = simulate([shared_data / MOONCAKE], semantics, capacity)
    assert (result.num_requests, result.num_blocks, result.num_skipped) == (3_993, 121_877, 0)
    if block_hit_rate is not None:
        assert result.block_hit_rate == pytest.approx(block_hit_rate, abs=5e-4)
    if token_hit_rate is not None:
        assert result.token_hit_rate == pytest.approx(token_hit_rate, abs=5e-5)


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command()(command)
    return app


def test_json_goes_to_stdout_alone(app: typer.Typer, trace: Path) -> None:
    result = CliRunner().invoke(app, [str(trace), "--capacity-blocks", "100", "--json", "-"])
    output = json.loads(result.stdout)
    assert result.stderr == ""
    assert output.pop("elapsed_s") > 0
    assert output.pop("duramen_version")
    assert output == {
        "schema_version": 1,
        "command": "simulate",
        "semantics": "trace",
        "unit_tokens": 512,
        "capacity_blocks": 100,
        "num_sessions": None,
        "num_requests": 4,
        "num_skipped": {},
        "num_blocks": 11,
        "block_hit_rate": 6 / 11,
        "prompt_tokens": 4213,
        "cached_tokens": 2836,
        "token_hit_rate": 2836 / 4213,
        "output_tokens": 17,
        "notes": [],
    }


def test_json_of_an_infinite_pool_and_of_skipped_requests(app: typer.Typer, trace: Path) -> None:
    infinite = CliRunner().invoke(app, [str(trace), "--json", "-"])
    assert json.loads(infinite.stdout)["capacity_blocks"] is None
    arguments = [str(trace), "--semantics", "vllm", "--capacity-blocks", "2", "--json", "-"]
    output = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert output["num_skipped"] == {"larger_than_pool": 4}
    assert output["token_hit_rate"] is None


def test_json_goes_to_a_file(app: typer.Typer, trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    assert CliRunner().invoke(app, [str(trace), "--json", str(target)]).stdout == ""
    assert json.loads(target.read_text())["num_requests"] == 4
    result = CliRunner().invoke(app, [str(trace), "--json", str(tmp_path)])
    assert isinstance(result.exception, DuramenError)
    assert str(result.exception).startswith(f"cannot write {tmp_path}: ")


def test_the_table_shows_rates_and_what_was_skipped(app: typer.Typer, trace: Path) -> None:
    shown = CliRunner().invoke(app, [str(trace)]).stdout
    assert "67.32%" in shown
    assert "skipped" not in shown
    arguments = [str(trace), "--semantics", "vllm", "--capacity-blocks", "2"]
    assert "skipped, larger than the pool" in CliRunner().invoke(app, arguments).stdout


def test_notes_stand_below_the_table_and_in_the_json(app: typer.Typer, tmp_path: Path) -> None:
    path = tmp_path / "replay.csv"
    path.write_text("session_id,round_idx,prefix_len,input_len,output_len\na,0,4,1,1\n")
    shown = " ".join(CliRunner().invoke(app, [str(path)]).stdout.split())
    assert "note: 4 prefix tokens stand for text" in shown
    assert "sessions" in shown
    output = json.loads(CliRunner().invoke(app, [str(path), "--json", "-"]).stdout)
    assert output["num_sessions"] == 1
    assert len(output["notes"]) == 2


@pytest.mark.parametrize("capacity", ["0", "-5", "many", "1.5", ""])
def test_a_senseless_capacity_is_a_usage_error(
    app: typer.Typer, trace: Path, capacity: str
) -> None:
    result = CliRunner().invoke(app, [str(trace), f"--capacity-blocks={capacity}"])
    assert result.exit_code == 2
    assert "neither a number" in result.stderr
