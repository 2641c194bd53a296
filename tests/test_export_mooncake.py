"""Mooncake traces of ours: equal ids are equal prefixes, and hit rates are those of the prompts."""

import json
from pathlib import Path

import pytest
from export_cases import ASKED, SAID, ids_session, session
from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.exporters.exported import Losses
from duramen.experiments.exporters.mooncake import BlockNumbers, Encoded, encode_calls, to_mooncake
from duramen.experiments.importers.read import read_sessions
from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.record.demo import demo_paths
from duramen.experiments.simulate import Semantics, simulate
from duramen.experiments.trajectory import Call, Session
from duramen.layout.errors import LayoutError, TrajectoryError


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return load_model(smollm2, None)


def lines_of(exported: object) -> list[dict[str, object]]:
    (file,) = exported.files  # type: ignore[attr-defined]
    return [json.loads(line) for line in file.text.splitlines()]


def test_ids_of_recorded_prompts(model: Model) -> None:
    made = to_mooncake([ids_session([1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9])], model, 4)
    assert lines_of(made) == [
        {"timestamp": 0, "input_length": 5, "output_length": 3, "hash_ids": [0, 1]},
        {"timestamp": 1000, "input_length": 9, "output_length": 3, "hash_ids": [0, 2, 3]},
    ]
    assert (made.num_sessions, made.num_calls) == (1, 2)
    assert made.notes == ("2 calls without a recorded time: one second after the call before",)


def test_times_count_from_the_earliest_recorded_call(model: Model) -> None:
    later = Session("later", session().calls, start_time_s=1_700_000_001.25)
    lines = lines_of(to_mooncake([later, session()], model, 16))
    assert [line["timestamp"] for line in lines] == [0, 1250, 2500, 3750]
    assert [line["output_length"] for line in lines] == [12, 12, 5, 5]


@pytest.mark.parametrize("sending", [{"model": "other"}, {"salt": "tenant"}])
def test_another_cache_shares_no_id(model: Model, sending: dict[str, str]) -> None:
    sessions = [ids_session([1, 2, 3, 4]), ids_session([1, 2, 3, 4], name="b", **sending)]
    assert [line["hash_ids"] for line in lines_of(to_mooncake(sessions, model, 4))] == [[0], [1]]


def test_output_as_the_tokenizer_spells_the_reply_where_it_was_not_counted(model: Model) -> None:
    (encoded,) = encode_calls([Session("s", (Call((ASKED,), SAID),))], model, Losses())
    assert encoded.num_output_tokens == len(model.tokenizer.encode_text("One line.")) + 1  # EOS
    (encoded,) = encode_calls([Session("s", (Call((ASKED,), None),))], model, Losses())
    assert encoded.num_output_tokens == 0


def test_a_call_that_cannot_be_encoded_is_left_out_and_named(model: Model) -> None:
    broken = Session("broken", (Call(({"role": "user", "content": "\ud800"},), SAID),))
    made = to_mooncake([broken, ids_session([1])], model, 4)
    assert made.num_calls == 1
    assert made.notes[0].startswith("1 calls left out, the first session 'broken', call 0: ")
    with pytest.raises(TrajectoryError, match="no call is left to export: 1 calls left out"):
        to_mooncake([broken], model, 4)


def test_block_size_of_none(model: Model) -> None:
    with pytest.raises(LayoutError, match="below 1"):
        to_mooncake([ids_session([1])], model, 0)


def sent_ms(call: Encoded) -> int:
    """After the start of its session, which is the start of all here."""
    return round((call.session.calls[call.index].time_s or 0) * 1000)


token_lists = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), max_size=8)


@given(token_lists, st.integers(1, 5))
def test_equal_ids_are_equal_prefixes(prompts: list[list[int]], unit: int) -> None:
    numbers = BlockNumbers(unit)
    seen: dict[int, tuple[int, ...]] = {}
    for prompt in prompts:
        for index, number in enumerate(numbers.of(prompt, "")):
            prefix = tuple(prompt[: (index + 1) * unit])
            assert seen.setdefault(number, prefix) == prefix
    assert len(set(seen.values())) == len(seen)


@pytest.mark.parametrize("unit", [7, 16, 512])
def test_simulated_hits_are_those_of_the_tokens(model: Model, unit: int, tmp_path: Path) -> None:
    """Our demo's calls as hash ids and as tokens, in the same order."""
    sessions = [Session(s.session_id, s.calls, s.tools) for s in read_sessions(demo_paths()[:2])]
    made = to_mooncake(sessions, model, unit)
    trace, tokens = tmp_path / "trace.jsonl", tmp_path / "tokens.jsonl"
    trace.write_text(made.files[0].text)
    encoded = sorted(encode_calls(sessions, model, Losses()), key=sent_ms)
    tokens.write_text("".join(json.dumps({"token_ids": [*e.token_ids]}) + "\n" for e in encoded))
    hashed = simulate([trace], Semantics.TRACE, None, unit)
    plain = simulate([tokens], Semantics.TRACE, None, unit)
    assert made.num_calls == sum(len(s.calls) for s in sessions)
    assert [*hashed.prompt_sizes] == [*plain.prompt_sizes]
    assert [*hashed.hit_sizes] == [*plain.hit_sizes]
    assert hashed.cached_tokens > 0
