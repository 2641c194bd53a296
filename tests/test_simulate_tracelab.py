"""TraceLab: counts of tokens become ids that share exactly what the prefixes say."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.importers.read import read_sessions
from duramen.experiments.importers.tracelab import FreshIds, Round, as_requests
from duramen.experiments.importers.traces import read_traces
from duramen.experiments.simulate import Semantics, simulate
from duramen.layout.blocks import common_prefix
from duramen.layout.errors import TrajectoryError

HEADER = "session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms"


@pytest.fixture
def rows(tmp_path: Path):
    """Write a replay CSV of these rows and read it."""

    def write_and_read(*lines, header=HEADER, name="replay.csv"):
        (tmp_path / name).write_text("\n".join([header, *lines]))
        return read_traces([tmp_path / name])

    return write_and_read


@pytest.fixture
def lines(tmp_path: Path):
    """Write a round trace of these lines and read it."""

    def write_and_read(*values):
        path = tmp_path / "rounds.jsonl"
        path.write_text("".join(json.dumps(value) + "\n" for value in values))
        return read_traces([path])

    return write_and_read


def ids(trace):
    return [([*request.token_ids], [*request.output_ids]) for request in trace.tokens]


def test_a_round_goes_on_from_what_was_sent_and_sampled(rows):
    trace = rows("a,0,0,0,3,2,10", "a,0,1,5,1,1,0", "b,0,0,0,2,0,0")
    assert ids(trace) == [
        ([0, 1, 2], [3, 4]),
        ([7, 8], []),  # came while the first session's tool ran
        ([0, 1, 2, 3, 4, 5], [6]),
    ]
    assert trace.num_sessions == 2
    assert trace.unit_tokens is None


def test_a_shorter_prefix_branches(rows):
    trace = rows("a,0,0,0,3,2,0", "a,0,1,2,1,1,0", "a,0,2,4,1,0,0")
    assert [prompt for prompt, _ in ids(trace)] == [[0, 1, 2], [0, 1, 5], [0, 1, 5, 6, 7]]


def test_a_prefix_that_nothing_explains_is_new_and_counted(rows):
    trace = rows("a,0,0,4,1,1,0", "a,0,1,9,1,0,0", "b,0,0,4,1,1,0")
    assert [len(prompt) for prompt, _ in ids(trace)] == [5, 10, 5]
    assert ids(trace)[1][0][:6] == [*range(6)]
    assert trace.notes[-1].startswith("11 prefix tokens stand for text")


def test_rounds_come_by_arrival_and_waits(rows):
    trace = rows("a,100,0,0,1,0,50", "b,120,1,0,3,0,0", "a,100,1,0,2,0,0", "b,120,0,0,4,0,5.5")
    assert [len(prompt) for prompt, _ in ids(trace)] == [1, 4, 3, 2]


def test_columns_may_be_named_as_the_simulator_does_and_be_few(rows):
    header = "id, input_len,output_len, round_idx,prefix_len"
    assert ids(rows("x, 2,1,0,0", header=header)) == [([0, 1], [2])]
    header = '"session_id","round_idx","prefix_len","input_len","output_len"'
    assert ids(rows('"x",0,0,2,1', header=header)) == [([0, 1], [2])]


def round_line(session, index, total, prefix, output=0, second=None, **rest):
    events = [] if second is None else [{"timestamp": f"2026-01-01T00:00:{second:02}Z"}]
    return {
        "session_id": session,
        "round_index": index,
        "model": "m",
        "input_tokens_total": total,
        "prefix_tokens": prefix,
        "newly_append_tokens": total - prefix,
        "output_tokens": output,
        "timing_events": events,
        **rest,
    }


def test_a_round_trace_is_served_by_its_events(lines):
    trace = lines(
        round_line("a", 0, 3, 0, 1, second=5),
        round_line("a", 1, 5, 4, second=3),  # its clock went back: it stays behind round 0
        round_line("b", 0, 2, 0, second=4),
    )
    assert [prompt for prompt, _ in ids(trace)] == [[5, 6], [0, 1, 2], [0, 1, 2, 3, 4]]
    assert "what the provider read from its cache" in trace.notes[1]


def test_without_events_sessions_come_one_after_another(lines):
    trace = lines(
        round_line("a", 1, 2, 1),
        round_line("b", 0, 3, 0, second=1),
        round_line("a", 0, 1, 0, timing_events=None, newly_append_tokens=None),
    )
    assert [prompt for prompt, _ in ids(trace)] == [[0], [0, 1], [2, 3, 4]]


def test_another_model_of_the_session_shares_nothing(lines):
    trace = lines(
        round_line("a", 0, 3, 0), round_line("a", 1, 3, 2, model="n"), round_line("a", 2, 3, 2)
    )
    assert [prompt for prompt, _ in ids(trace)] == [[0, 1, 2], [3, 4, 5], [0, 1, 6]]


def test_files_share_no_token(tmp_path, rows):
    rows("a,0,0,0,3,0,0", name="a.csv"), rows("a,0,0,0,3,0,0", name="b.csv")
    trace = read_traces([tmp_path])
    assert ids(trace) == [([0, 1, 2], []), ([3, 4, 5], [])]
    assert trace.num_sessions == 2


rounds = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(1, 9), st.integers(0, 9)),
    min_size=1,
    max_size=12,
)


@given(rounds)
def test_prompts_share_what_the_prefixes_say_and_nothing_else(turns):
    """The radix tree of infinite capacity finds each prefix that the round before explains."""
    taken = [
        Round("x", str(s), i, "m", prefix, new, output, float(i))
        for i, (s, prefix, new, output) in enumerate(turns)
    ]
    read = as_requests(taken, FreshIds())
    whole: dict[str, list[int]] = {}
    for turn, request in zip(taken, read.requests, strict=True):
        before = whole.get(turn.session_id, [])
        assert common_prefix(before, [*request.token_ids]) == min(turn.prefix_tokens, len(before))
        others = {t for s, told in whole.items() if s != turn.session_id for t in told}
        assert not others & {*request.token_ids}
        assert len(request.token_ids) == turn.prefix_tokens + turn.new_tokens
        assert len(request.output_ids) == turn.output_tokens
        whole[turn.session_id] = [*request.token_ids, *request.output_ids]
    assert read.num_unexplained_tokens == sum(
        turn.prefix_tokens - common_prefix(told, [*request.token_ids])
        for turn, request, told in told_before(taken, read.requests)
    )


def told_before(taken, requests):
    whole: dict[str, list[int]] = {}
    for turn, request in zip(taken, requests, strict=True):
        yield turn, request, whole.get(turn.session_id, [])
        whole[turn.session_id] = [*request.token_ids, *request.output_ids]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ("a,0,0,0,-3,2,0", ":2: input_len is '-3'; expected a whole number"),
        ("a,0,0,0,1.5,2,0", ":2: input_len is '1.5'"),
        ("a,0,0,0,nan,2,0", ":2: input_len is 'nan'"),
        ("a,0,0,0,9999999999,2,0", ":2: input_len 9999999999 is more than 16777216"),
        ("a,0,0," + "9" * 5000 + ",1,2,0", ":2: prefix_len is text of 5000 characters"),
        ("a,0,0,0,0,2,0", ":2: the prompt has no tokens"),
        ("a,0,0,0,1", ":2: output_len is null or missing"),
        (",0,0,0,1,1,0", ":2: session_id is null or missing; expected text"),
        ("a,nan,0,0,1,1,0", ":2: arrival_time is 'nan'; expected milliseconds"),
        ("a,-1,0,0,1,1,0", ":2: arrival_time is '-1'; expected milliseconds"),
        ("a,0,0,0,1,1,soon", ":2: tool_wait_after_ms is 'soon'; expected milliseconds"),
        ("a,0,0,0,1,1,0\na,0,0,0,1,1,0", ":3: round 0 of session a stands at .*:2, too"),
        ('a,0,0,0,1,1,0\n"a', ":3: no CSV"),
        ("", "names columns, but holds no rounds"),
    ],
)
def test_broken_rows_are_one_clear_line(rows, row, error):
    with pytest.raises(TrajectoryError, match=f"replay.csv.*{error}") as raised:
        rows(row)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (round_line("a", 0, -1, 0), r"no TraceLab round: Expected `int` >= 0.*input_tokens_total"),
        (round_line("a", 0, 1, 0) | {"prefix_tokens": None}, r"no TraceLab round: .*prefix_tokens"),
        (
            round_line("a", 0, 3, 4, newly_append_tokens=None),
            "prefix_tokens 4 are more than input_tokens_total 3",
        ),
        (round_line("a", 0, 3, 1, newly_append_tokens=1), ".*3 is not prefix_tokens 1 [+] newly"),
        (round_line("a", 0, 2**40, 0), "no TraceLab round: Expected `int` <= 16777216"),
        (round_line("a", 0, 0, 0), "the prompt has no tokens"),
        (round_line(5, 0, 1, 0), "no TraceLab round: Expected `str`.*session_id"),
        (
            round_line("a", 0, 1, 0, timing_events=[{"timestamp": "noon"}]),
            r"timing_events\[0\].timestamp is 'noon'; expected an ISO date",
        ),
    ],
)
def test_broken_lines_are_one_clear_line(lines, line, error):
    with pytest.raises(TrajectoryError, match=rf"rounds.jsonl:2: {error}") as raised:
        lines(round_line("b", 0, 1, 0), line)
    assert "\n" not in str(raised.value)


def test_more_tokens_than_ids_is_an_error():
    fresh = FreshIds()
    fresh._next = 2**32 - 2
    assert [*fresh.take(2, "x")] == [2**32 - 2, 2**32 - 1]
    with pytest.raises(TrajectoryError, match="x: the trace has more than 4294967296 different"):
        fresh.take(1, "x")


def test_it_cannot_be_laid_out(rows, lines, tmp_path):
    rows("a,0,0,0,1,1,0"), lines(round_line("a", 0, 1, 0))
    for name in ("replay.csv", "rounds.jsonl"):
        with pytest.raises(TrajectoryError, match=r"\(TraceLab\) bears no text; use `duramen sim"):
            list(read_sessions([tmp_path / name]))


def test_the_real_replay_hits_every_prefix(shared_data):
    """Each prefix is what the round before sent and sampled, whose last token is not computed."""
    path = shared_data / "tracelab" / "replay_examples_multi_session_large.csv"
    table = [line.split(",") for line in path.read_text().splitlines()[1:]]
    prefixes = [int(row[3]) for row in table]
    result = simulate([path], Semantics.RADIX, None)
    assert (result.num_sessions, result.num_requests) == (48, 303)
    assert result.prompt_tokens == sum(prefixes) + sum(int(row[4]) for row in table)
    assert result.output_tokens == sum(int(row[5]) for row in table)
    assert result.cached_tokens == sum(prefix - 1 for prefix in prefixes if prefix)
    assert len(result.notes) == 1


def test_the_real_round_trace(shared_data):
    path = shared_data / "tracelab" / "example_sessions_sanitized_round_trace.jsonl"
    result = simulate([path], Semantics.RADIX, None)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert (result.num_sessions, result.num_requests) == (2, 19)
    assert result.prompt_tokens == sum(line["input_tokens_total"] for line in lines)
    first = sum(line["prefix_tokens"] for line in lines if line["round_index"] == 0)
    assert result.notes[-1].startswith(f"{first} prefix tokens stand for text")
    assert "(in 2 of 19 rounds)" in result.notes[-1]
    assert result.cached_tokens == sum(line["prefix_tokens"] for line in lines) - first


def test_the_segment_for_readers_is_no_json(shared_data):
    path = shared_data / "tracelab" / "example_sessions_codex_trace.json"
    for read in (lambda: read_traces([path]), lambda: list(read_sessions([path]))):
        with pytest.raises(TrajectoryError, match="starts with a # comment and is no JSON"):
            read()
