"""Edits leave nothing over that decides nothing."""

import pytest

from duramen.layout.certify.source import without_constants


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("a and true", "a"),
        ("a and not false and b", "a and b"),
        ("(a or false) and b", "(a) and b"),
        ("a\n  and true\n", "a\n"),
        ("a or false and b", "a or false and b"),  # `and` binds first
        ("a and true == b", "a and true == b"),
        ("a and 'x and true'", "a and 'x and true'"),
        ("true", "true"),
    ],
)
def test_constants_in_conditions(condition: str, expected: str) -> None:
    for tag in ("if", "elif"):
        source = f"{{%- {tag} {condition} -%}}"
        assert without_constants(source) == f"{{%- {tag} {expected} -%}}"
    assert without_constants(f"{{{{ {condition} }}}}") == f"{{{{ {condition} }}}}"
