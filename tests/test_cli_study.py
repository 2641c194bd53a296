"""`duramen study layouts` from the outside: files, agreement between them, and clear refusals."""

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from duramen.cli import main
from duramen.experiments.record.demo import demo_paths

FEW = ["--layout", "stable", "--layout", "clock", "--unit", "16", "--unit", "32", "--limit", "2"]


def run(monkeypatch: pytest.MonkeyPatch, arguments: Sequence[object]) -> int:
    monkeypatch.setattr("sys.argv", ["duramen", "study", "layouts", *map(str, arguments)])
    return main.run()


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory, smollm2: Path) -> Path:
    out = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        assert run(patch, ["--demo", *FEW, "--model", smollm2, "--out", out]) == 0
    return out


def test_page_json_and_parquet_say_the_same(studied: Path) -> None:
    study = json.loads((studied / "study.json").read_text("utf-8"))
    assert (study["command"], study["schema_version"]) == ("study layouts", 1)
    assert study["device"] is None
    assert list(study["layouts"]) == ["stable", "clock"]
    calls = pq.read_table(studied / "calls.parquet").to_pylist()
    costs = pq.read_table(studied / "costs.parquet").to_pylist()
    page = (studied / "index.html").read_text("utf-8")
    for label, layout in study["layouts"].items():
        rows = [row for row in calls if row["layout"] == label]
        arm = layout["arms"]["unit 16"]
        assert len(rows) == layout["num_calls"] == 20
        assert sum(row["prompt_tokens"] for row in rows) == layout["prompt_tokens"]
        assert sum(row["cached_tokens (unit 16)"] for row in rows) == arm["cached_tokens"]
        assert f"{arm['uncached_tokens']:,}" in page
        for model, usd in layout["usd"].items():
            billed = [
                Decimal(row["usd_exact"])
                for row in costs
                if (row["layout"], row["model"]) == (label, model)
            ]
            assert sum(billed) == Decimal(usd)
    stable, clock = (study["layouts"][name]["arms"]["unit 16"] for name in ("stable", "clock"))
    assert clock["hit_rate"] < 0.02 < stable["hit_rate"]


def test_equal_runs_write_equal_bytes_with_and_without_parts(
    studied: Path, smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["index.html", "study.json", "calls.parquet", "costs.parquet"]
    first = [(studied / name).read_bytes() for name in names]
    for out in (studied, tmp_path):  # goes on from what is there, and from nothing
        assert run(monkeypatch, ["--demo", *FEW, "--model", smollm2, "--out", out]) == 0
        assert [(out / name).read_bytes() for name in names] == first


WEKA = {
    "id": "t",
    "block_size": 64,
    "hash_id_scope": "local",
    "requests": [{"t": 0.0, "type": "n", "model": "m", "in": 64, "out": 1, "hash_ids": [1]}],
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name recorded trajectories"),
        (["--demo", "--layout", "fast"], "unknown layout 'fast'"),
        (["--demo", "--price", "acme/llm"], "no price for 'acme/llm'"),
        (["--demo", "--kv-tokens", "8"], "holds no unit of 16"),
        (["--demo", "--kv-tokens", "many"], "neither a number"),
        (["--demo", "--gap", "0"], "must be above 0"),
        (["--demo", "--prices", "nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["--demo", "--out", "file/study"], "cannot write to file/study"),
        (["--demo", "--out", ""], "needs a folder of its own"),
        (["--demo", "--gpus", "nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["--demo", "--prices", "no_write.json"], "has no price 'write_5m'"),
        (["weka.json"], "bears no text; use `duramen simulate`"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    entry = {"litellm_provider": "anthropic", "mode": "chat", "input_cost_per_token": 1e-06}
    entry |= {"output_cost_per_token": 2e-06, "cache_read_input_token_cost": 1e-07}
    (tmp_path / "no_write.json").write_text(json.dumps({"claude-mine": entry}), "utf-8")
    (tmp_path / "weka.json").write_text(json.dumps(WEKA), "utf-8")
    assert run(monkeypatch, arguments) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error


def test_files_that_are_no_recordings_are_skipped_if_asked_for(
    smollm2: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "weka.json").write_text(json.dumps(WEKA), "utf-8")
    (folder / "broken.jsonl").write_bytes(demo_paths()[0].read_bytes()[:-200] + b"\n")
    (folder / "good.jsonl").write_bytes(demo_paths()[0].read_bytes())
    arguments = [folder, "--layout", "stable", "--unit", "16", "--model", smollm2]
    assert run(monkeypatch, [*arguments, "--out", tmp_path]) == 2
    assert run(monkeypatch, [*arguments, "--out", tmp_path, "--skip-unreadable"]) == 0
    study = json.loads((tmp_path / "study.json").read_text("utf-8"))
    assert [Path(reason.partition(":")[0]).name for reason in study["skipped_files"]] == [
        "broken.jsonl",
        "weka.json",
    ]
    assert study["layouts"]["stable"]["num_calls"] == 19  # all but the broken line
    assert capsys.readouterr().err.count("duramen: skipped: ") == 2


def test_what_is_beside_the_page_stays(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "parts" / "thesis"
    mine.mkdir(parents=True)
    for unit in ("16", "32"):  # other choices: the parts of the first ones are removed
        arguments = ["--demo", "--limit", "1", "--layout", "stable", "--unit", unit]
        assert run(monkeypatch, [*arguments, "--model", smollm2, "--out", tmp_path]) == 0
    assert mine.is_dir()
    assert len(list(tmp_path.glob(".duramen-parts-*"))) == 1


def test_a_price_of_many_digits_and_one_of_nothing(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = {"litellm_provider": "openai", "mode": "chat", "output_cost_per_token": 0}
    prices = {
        "long": {**long, "input_cost_per_token": 2.8000000000000003e-07},
        "free": {**long, "input_cost_per_token": 0},
    }
    (tmp_path / "map.json").write_text(json.dumps(prices), "utf-8")
    arguments = ["--demo", "--limit", "2", "--unit", "16", "--prices", tmp_path / "map.json"]
    arguments += ["--layout", "stable", "--layout", "zoned", "--model", smollm2]
    assert run(monkeypatch, [*arguments, "--out", tmp_path / "out"]) == 0
    study = json.loads((tmp_path / "out" / "study.json").read_text("utf-8"))
    assert Decimal(study["layouts"]["stable"]["usd"]["openai/free"]) == 0


def test_a_template_that_refuses_everything_is_one_line(
    smollm2: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    template = tmp_path / "never.jinja"
    template.write_text("{{ raise_exception('not today') }}", "utf-8")
    arguments = ["--demo", "--limit", "1", "--layout", "stable", "--model", smollm2]
    arguments += ["--chat-template", template, "--out", tmp_path / "out"]
    assert run(monkeypatch, arguments) == 2
    assert "no call could be laid out: " in capsys.readouterr().err


def test_litellms_map_is_read(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {
        "litellm_provider": "openai",
        "mode": "chat",
        "input_cost_per_token": 1e-06,
        "cache_read_input_token_cost": 1e-07,
        "output_cost_per_token": 2e-06,
    }
    prices = tmp_path / "map.json"
    prices.write_text(json.dumps({"gpt-mine": entry}), "utf-8")
    [first, *_] = demo_paths()
    arguments = [first, "--layout", "stable", "--unit", "16", "--prices", prices]
    assert run(monkeypatch, [*arguments, "--model", smollm2, "--out", tmp_path / "out"]) == 0
    study = json.loads((tmp_path / "out" / "study.json").read_text("utf-8"))
    [(model, usage)] = study["layouts"]["stable"]["usage"].items()
    assert model == "openai/gpt-mine"
    billed = usage["uncached"] * Decimal(1) + usage["cached_read"] * Decimal("0.1")
    billed += usage["output"] * Decimal(2)
    assert Decimal(study["layouts"]["stable"]["usd"][model]) == billed / 10**6
