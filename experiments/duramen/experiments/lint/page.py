"""docs/lint.md: every rule with an example that breaks it and one that is right.

The examples are files beside this one, examples/RULE/breaks... and right...; the tests lint them.
Long texts and lists in them are shown cut, and of long recorded calls the part where they differ.
"""

import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable

from duramen.experiments.lint.rules import BEFORE_A_CALL, IN_RECORDED_CALLS, RULES, Rule
from duramen.layout.delta import common_text

_LONG_TEXT = re.compile(r'((?<=")[^"\\\n]{60})[^"\\\n]{140,}(?=")')
_LONG_LIST = re.compile(r"((?<=\[)(?:[0-9]+, ){4}[0-9]+), [0-9, ]{30,}(?=\])")
MAX_LINE_CHARS = 240
HEAD_CHARS = 60
AROUND_CHARS = 70  # before the place at which two lines differ
PACKAGE = "duramen.experiments.lint"


def as_page() -> str:
    """Markdown: page.md with the rules in it."""
    page = (files(PACKAGE) / "page.md").read_text("utf-8")
    for mark, rules in {"before": BEFORE_A_CALL, "recorded": IN_RECORDED_CALLS}.items():
        sections = "\n".join(part for rule in rules for part in _section(rule))
        page = page.replace(f"<!-- {mark} -->\n", sections)
    rows = (f"| [{r.name}](#{r.name}) | {r.severity} | {r.what} |\n" for r in RULES.values())
    return page.replace("<!-- table -->\n", "".join(rows))


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
    if file.name.endswith(".jsonl"):
        text = "\n".join(_cut(text.split("\n")))
    fence = "````" if "```" in text else "```"
    language = {"jsonl": "json", "md": "markdown", "jinja": "jinja"}
    suffix = file.name.rpartition(".")[2]
    return f"{fence}{language.get(suffix, suffix)}\n{text}\n{fence}"


def _cut(lines: Sequence[str]) -> Iterator[str]:
    """Of a long line the beginning, and what stands where it differs from the one before it (the
    first: from the next one)."""
    for index, line in enumerate(lines):
        other = lines[index - 1] if index else lines[min(1, len(lines) - 1)]
        if len(line) <= MAX_LINE_CHARS:
            yield line
            continue
        start = max(common_text(line, other) - AROUND_CHARS, HEAD_CHARS)
        start = min(start, len(line) - MAX_LINE_CHARS + HEAD_CHARS)
        end = start + MAX_LINE_CHARS - HEAD_CHARS
        before = " … " if start > HEAD_CHARS else ""
        behind = " …" if end < len(line) else ""
        yield f"{line[:HEAD_CHARS]}{before}{line[start:end]}{behind}"
