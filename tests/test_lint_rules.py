"""Every rule's own examples: one breaks it, and fires it alone; in the right one nothing fires."""

import json
from functools import cache
from pathlib import Path

import pytest

from duramen.experiments.layouts.model import Model
from duramen.experiments.lint.lint import Linter, Report
from duramen.experiments.lint.page import as_page, example_files
from duramen.experiments.lint.rules import BEFORE_A_CALL, NOT_RULES, RULES
from duramen.experiments.opening import load_model
from duramen.layout.diagnose.causes import CAUSES

# They need a running engine, a chat template that does so, or are by nature what nothing explains.
WITHOUT_EXAMPLE = {"empty-thinking", "input-before-tools", "in-flight", "unknown"}
UNIT_TOKENS = {"short-prefix": 128}
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return load_model(smollm2, None)


def no_model() -> Model:
    raise AssertionError("what is no log needs no model")


def linted(rule: str, kind: str, model: Model) -> Report:
    paths = [Path(str(file)) for file in example_files(rule, kind)]
    assert paths
    is_log = any(path.suffix == ".jsonl" for path in paths)
    unit = UNIT_TOKENS.get(rule)
    return Linter((lambda: model) if is_log or unit else no_model, unit).lint(paths)


@pytest.mark.parametrize("rule", sorted(RULES.keys() - WITHOUT_EXAMPLE))
def test_the_examples_of_a_rule(rule: str, model: Model) -> None:
    assert [each.rule for each in linted(rule, "breaks", model).findings] == [rule]
    assert linted(rule, "right", model).findings == ()


def test_every_cause_is_a_rule() -> None:
    assert CAUSES.keys() - NOT_RULES == RULES.keys() - {rule.name for rule in BEFORE_A_CALL}
    assert not any(example_files(rule, "breaks") for rule in WITHOUT_EXAMPLE)


def test_the_page_is_of_these_rules() -> None:
    written = (ROOT / "docs" / "lint.md").read_text("utf-8")
    assert written == as_page(), "duramen lint --rules > docs/lint.md"
    assert all(f"\n### {rule}\n" in written for rule in RULES)


def test_all_examples_together(model: Model, tmp_path: Path) -> None:
    """What other files hold changes no finding of a file: prompts and bodies in other folders."""

    @cache
    def loaded() -> Model:
        return model

    folders = {}
    for rule in BEFORE_A_CALL:
        for file in example_files(rule.name, "breaks"):
            folder = tmp_path / rule.name
            folder.mkdir()
            (folder / file.name).write_bytes(file.read_bytes())
            folders[folder] = rule.name
    report = Linter(loaded).lint([tmp_path])
    found = [(each.path.parent, each.rule) for each in report.findings]
    expected = [pair for pair in folders.items() if pair[1] not in UNIT_TOKENS]
    assert sorted(found) == sorted(expected)
    assert json.loads(json.dumps(report.as_json()))["num_files"] == len(folders)
