"""The table of causes in the docs is the one in the code."""

from pathlib import Path

from duramen.layout.diagnose.causes import CAUSES

DOCS = Path(__file__).parents[1] / "docs" / "why.md"


def test_every_cause_is_documented_as_it_is() -> None:
    rows = [f"| {name} | {about.what} | {about.mend} |" for name, about in CAUSES.items()]
    assert "\n".join(rows) in DOCS.read_text()
