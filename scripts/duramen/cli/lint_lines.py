"""What `duramen lint` prints: a line for each finding, as compilers write them."""

from collections import Counter
from collections.abc import Iterator

from rich.text import Text

from duramen.experiments.lint.finding import Finding, Severity
from duramen.experiments.lint.lint import Report
from duramen.experiments.lint.rules import RULES

STYLES: dict[Severity, str] = {"error": "red", "warning": "yellow", "note": "cyan"}


def as_lines(report: Report) -> Iterator[Text]:
    for finding in report.findings:
        yield _line(finding)
    for note in report.notes:
        yield Text.assemble(("note", STYLES["note"]), f": {printable(note)}")
    num = Counter(RULES[each.rule].severity for each in report.findings)
    found = ", ".join(counted(num[severity], severity) for severity in STYLES)
    yield Text(f"{counted(len(report.paths), 'file')}: {found if report.findings else 'clean'}")


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _line(finding: Finding) -> Text:
    severity = RULES[finding.rule].severity
    where = f" ({finding.where})" if finding.where else ""
    return Text.assemble(
        f"{printable(finding.place)}: ",
        (severity, STYLES[severity]),
        f" {finding.rule}: {printable(f'{finding.message}{where}; mend: {finding.mend}')}",
    )


def printable(text: str) -> str:
    """On one line, whatever a file's name or its text holds."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
