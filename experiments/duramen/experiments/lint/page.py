"""docs/lint.md: every rule with an example that breaks it and one that is right.

The examples are files beside this one, examples/RULE/breaks... and right...; the tests lint them.
Long texts and lists in them are shown cut.
"""

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from duramen.experiments.lint.rules import BEFORE_A_CALL, IN_RECORDED_CALLS, Rule

_LONG_TEXT = re.compile(r'((?<=")[^"\\\n]{60})[^"\\\n]{140,}(?=")')
_LONG_LIST = re.compile(r"((?<=\[)(?:[0-9]+, ){4}[0-9]+), [0-9, ]{30,}(?=\])")
PACKAGE = "duramen.experiments.lint"


def as_page() -> str:
    """Markdown: page.md with the rules in it."""
    page = (files(PACKAGE) / "page.md").read_text("utf-8")
    for mark, rules in {"before": BEFORE_A_CALL, "recorded": IN_RECORDED_CALLS}.items():
        sections = "\n".join(part for rule in rules for part in _section(rule))
        page = page.replace(f"<!-- {mark} -->\n", sections)
    return page


def _section(rule: Rule) -> Iterator[str]:
    yield f"### {rule.name}\n\n{rule.severity}: {rule.what}. It costs: {rule.costs}.\n"
    for kind, title in (("breaks", "Breaks it:"), ("right", "Right:")):
        shown = [_shown(file) for file in example_files(rule.name, kind)]
        if shown:
            yield "\n\n".join([title, *shown]) + "\n"
    yield f"Mend: {rule.mend}.\n"


def example_files(rule: str, kind: str) -> list[Traversable]:
    """`kind`: breaks or right. Several files where only they together show it; none where an
    example needs a running engine."""
    folder = files(PACKAGE) / "examples" / rule
    if not folder.is_dir():
        return []
    found = [each for each in folder.iterdir() if each.name.startswith(kind)]
    return sorted(found, key=lambda each: each.name)


def _shown(file: Traversable) -> str:
    text = file.read_text("utf-8").rstrip("\n")
    text = _LONG_LIST.sub(lambda found: f"{found[1]}, … ({found[0].count(',') + 1} of them)", text)
    text = _LONG_TEXT.sub(lambda found: f"{found[1]} … ({len(found[0])} characters)", text)
    fence = "````" if "```" in text else "```"
    language = {"jsonl": "json", "md": "markdown", "jinja": "jinja"}
    suffix = file.name.rpartition(".")[2]
    return f"{fence}{language.get(suffix, suffix)}\n{text}\n{fence}"
