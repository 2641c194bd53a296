"""Findings as SARIF 2.1.0 (OASIS, https://docs.oasis-open.org/sarif/sarif/v2.1.0/), which code
hosts show beside the lines.
"""

import os
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from duramen.experiments.lint.finding import Finding
from duramen.experiments.lint.lint import Report
from duramen.experiments.lint.rules import RULES, Rule

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_RULES = tuple(RULES.values())
_INDEX = {rule.name: number for number, rule in enumerate(_RULES)}


def as_sarif(report: Report, version: str, root: Path) -> dict[str, Any]:
    """`root`: paths below it are given relative to it, as code hosts want them."""
    run = {
        "tool": {
            "driver": {
                "name": "duramen lint",
                "version": version,
                "rules": [_rule(rule) for rule in _RULES],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True}],
        "results": [_result(each, root) for each in report.findings],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    text = f"{rule.what}. It costs: {rule.costs}. Mend: {rule.mend}."
    return {
        "id": rule.name,
        "shortDescription": {"text": rule.what},
        "fullDescription": {"text": text},
        "help": {"text": text},
        "defaultConfiguration": {"level": rule.severity},
    }


def _result(finding: Finding, root: Path) -> dict[str, Any]:
    location: dict[str, Any] = {"physicalLocation": _physical(finding, root)}
    if finding.where:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.where}]
    return {
        "ruleId": finding.rule,
        "ruleIndex": _INDEX[finding.rule],
        "level": RULES[finding.rule].severity,
        "message": {"text": f"{finding.message}: {finding.mend}"},
        "locations": [location],
        "partialFingerprints": {"duramen/v1": _fingerprint(finding, root)},
    }


def _physical(finding: Finding, root: Path) -> dict[str, Any]:
    uri, is_below = _uri(finding.path, root)
    artifact = {"uri": uri} | ({"uriBaseId": "%SRCROOT%"} if is_below else {})
    if finding.span is None:
        return {"artifactLocation": artifact}
    names = ("startLine", "startColumn", "endLine", "endColumn")
    return {"artifactLocation": artifact, "region": dict(zip(names, finding.span, strict=True))}


def _uri(path: Path, root: Path) -> tuple[str, bool]:
    """And whether it is relative to `root`."""
    whole = path.resolve()
    if whole.is_relative_to(root.resolve()):
        return quote(os.fsencode(whole.relative_to(root.resolve()))), True
    return "file://" + quote(os.fsencode(whole)), False


def _fingerprint(finding: Finding, root: Path) -> str:
    """Stays when lines move: the rule, the file, the field and what was seen there."""
    parts = (finding.rule, _uri(finding.path, root)[0], finding.where, finding.message)
    return sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]
