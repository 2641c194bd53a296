"""Which earlier first call a first call is measured against."""

import json
from pathlib import Path

import pytest
from why_cases import SYSTEM

from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.trajectory import Call, Message, Session
from duramen.experiments.why.explain import explain
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


EXPERT: Message = {"role": "system", "content": "You are a Security Expert, and look for holes."}
ANALYST: Message = {"role": "system", "content": "Performance is what you analyse: find slow code."}
ASKED: Message = {"role": "user", "content": "Review this function: def pay(x): return x"}
OTHER: Message = {"role": "user", "content": "Review this function: def save(x): return x"}
SAID: Message = {"role": "assistant", "content": "It is safe."}
MORE: Message = {"role": "user", "content": "And fast?"}


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Model:
    return load_model(smollm2, None)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([EXPERT, ASKED], [ANALYST, ASKED], "first-call"),  # another agent, the same question
        ([EXPERT, MORE], [ANALYST, ASKED, SAID, MORE], "first-call"),  # which quotes an agent
        ([EXPERT, ASKED], [ANALYST, ASKED, SAID, MORE], "history-edited"),  # its head rewritten
        ([ASKED], [OTHER], "first-call"),  # questions at the same time
        ([SYSTEM, ASKED], [SYSTEM, OTHER], None),  # the head they share is reused
        ([EXPERT, ASKED, SAID, MORE], [EXPERT, OTHER, SAID, MORE], "history-edited"),
    ],
)
def test_agents_of_one_session(
    model: Model, before: list[Message], after: list[Message], expected: str | None
) -> None:
    calls = (Call(tuple(before), SAID), Call(tuple(after), None))
    _, second = explain([Session("s", calls)], model)
    assert (second.broken and second.broken.cause) == expected
