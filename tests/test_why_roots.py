"""Which earlier first call a first call is measured against."""

import json

import pytest
from why_cases import SYSTEM

from duramen.experiments.why.roots import Root, Roots
from duramen.layout.diagnose.sent import Request, Sent


def tool(name: str) -> dict[str, object]:
    about = f"{name}: what it is for, and when it should be left alone. " * 6
    return {"type": "function", "function": {"name": name, "description": about}}


TOOLS = [tool(name) for name in ("read", "write", "list", "search")]


def root(session: str, system: str, tools: list[dict[str, object]]) -> Root:
    text = system + "\n".join(json.dumps(each) for each in tools)
    request = Request([{"role": "system", "content": system}], tools)
    return Root(session, 0, Sent(request, text, list(range(len(text)))))


def like(*known: Root, to: Root) -> str | None:
    roots = Roots()
    for each in known:
        roots.add(each)
    found = roots.most_like(to)
    return found and found.session


def test_the_same_tools_in_another_order_are_alike():
    known = root("a", "Be brief.", TOOLS)
    assert like(known, to=root("b", "Be brief.", TOOLS[::-1])) == "a"
    assert like(known, to=root("b", "Take your time.", TOOLS[::-1])) == "a"


def test_keys_in_another_order_are_alike():
    turned = [dict(reversed(each.items())) for each in TOOLS]
    assert like(root("a", "Be brief.", TOOLS), to=root("b", "Be brief.", turned)) == "a"


@pytest.mark.parametrize(("kept", "expected"), [(3, "a"), (1, None)])
def test_most_of_the_tools_must_be_the_same(kept, expected):
    others = [*TOOLS[:kept][::-1], *map(tool, ("fetch", "paint", "sing")[: 4 - kept])]
    assert like(root("a", "Be brief.", TOOLS), to=root("b", "Be brief.", others)) == expected


def test_without_tools_the_text_decides():
    system = str(SYSTEM["content"])
    assert like(root("a", system, []), to=root("b", f"{system} Now.", [])) == "a"
    assert like(root("a", system, []), to=root("b", "Another agent.", [])) is None
