"""Findings as JUnit XML: a suite for each file, a test case for each finding, one that passes for a
file without any. Notes pass, and are told in the case's output.
"""

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree as ET

from duramen.experiments.lint.finding import Finding
from duramen.experiments.lint.lint import Report
from duramen.experiments.lint.rules import RULES

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(report: Report) -> str:
    """XML text; what XML 1.0 cannot hold is replaced by U+FFFD."""
    total, num_cases = report.num_failing, 0
    root = ET.Element("testsuites", name="duramen lint", failures=str(total), errors="0")
    by_file = {p: list(each) for p, each in groupby(report.findings, key=lambda f: f.path)}
    for path in report.paths:
        findings = by_file.get(path, [])
        num_cases += max(len(findings), 1)
        root.append(_suite(path, findings))
    root.set("tests", str(num_cases))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _suite(path: Path, findings: Sequence[Finding]) -> ET.Element:
    name = _clean(str(path))
    failing = [each for each in findings if RULES[each.rule].severity != "note"]
    suite = ET.Element(
        "testsuite",
        name=name,
        tests=str(max(len(findings), 1)),
        failures=str(len(failing)),
        errors="0",
        skipped="0",
    )
    if not findings:
        ET.SubElement(suite, "testcase", classname=name, name="duramen lint", file=name, time="0")
    for finding in findings:
        suite.append(_case(finding, name))
    return suite


def _case(finding: Finding, name: str) -> ET.Element:
    line = str(finding.span.line if finding.span else 1)
    title = f"{finding.rule} {line}:{finding.span.column if finding.span else 1}"
    case = ET.Element("testcase", classname=name, name=title, file=name, line=line, time="0")
    where = f" ({finding.where})" if finding.where else ""
    text = _clean(f"{finding.place}: {finding.message}{where}\n{finding.mend}")
    if RULES[finding.rule].severity == "note":
        ET.SubElement(case, "system-out").text = text
    else:
        message = _clean(finding.message)
        ET.SubElement(case, "failure", message=message, type=finding.rule).text = text
    return case


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
