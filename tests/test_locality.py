"""layout.locality: a template that is called local must render the same from a short window."""

from random import Random
from typing import Any

import pytest

from duramen.layout.delta import HEAD, TAIL, Delta, DeltaRenderer, Reply
from duramen.layout.errors import TemplateError
from duramen.layout.jinja import TrackedEnvironment
from duramen.layout.locality import why_not_local
from duramen.layout.template import ChatTemplate, Message

LOOP = "{% for m in messages %}>"  # every message begins as the generation prompt does
ASK = "{% if add_generation_prompt %}>{% endif %}"
PRINT = "{{ m.role }}:{{ m.content }};"
TOOLS = [{"name": "f", "tags": [*"abcdefghijklmnopqrstuvwxyz"]}]

FAR = {
    "namespace state": "{% set ns = namespace(n=0) %}"
    + LOOP
    + "{% set ns.n = ns.n + 1 %}{{ ns.n }}{% endfor %}",
    "macro with outer namespace": "{% set ns = namespace(n=0) %}{% macro f() %}"
    "{% set ns.n = ns.n + 1 %}{{ ns.n }}{% endmacro %}" + LOOP + "{{ f() }}{% endfor %}",
    "macro that renames an outer namespace": "{% set o = namespace(n=0) %}{% macro f() %}"
    "{% set ns = o %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{% endmacro %}"
    + LOOP
    + "{{ f() }}{% endfor %}",
    "macro that gets a namespace": "{% set o = namespace(n=0) %}{% macro f(ns) %}"
    "{% set ns.n = ns.n + 1 %}{{ ns.n }}{% endmacro %}" + LOOP + "{{ f(o) }}{% endfor %}",
    "parity": LOOP + "{{ loop.index % 2 }}{% endfor %}",
    "position": LOOP + "{% if loop.index0 == 5 %}!{% endif %}{% endfor %}",
    "last message": LOOP + PRINT + "{% endfor %}{{ messages[-1].content }}",
    "number of messages": LOOP + PRINT + "{{ messages | length }}{% endfor %}",
    "loop length": LOOP + "{{ loop.length }}{% endfor %}",
    "cycle": LOOP + "{{ loop.cycle('a', 'b', 'c') }}{% endfor %}",
    "cycler": "{% set c = cycler('a', 'b', 'c') %}" + LOOP + "{{ c.next() }}{% endfor %}",
    "nested loops": LOOP + "{% for n in messages %}{{ n.content }}{% endfor %}|{% endfor %}",
    "two loops": LOOP + PRINT + "{% endfor %}" + LOOP + PRINT + "{% endfor %}",
    "alias": "{% set x = messages %}" + LOOP + "{{ x | length }}{% endfor %}",
    "alias by or": "{% set x = messages or [] %}" + LOOP + "{{ x | length }}{% endfor %}",
    "alias by condition": "{% set x = messages if true else [] %}"
    + LOOP
    + "{{ x | length }}{% endfor %}",
    "alias in a tuple": "{% set x, y = messages, 1 %}" + LOOP + "{{ x | length }}{% endfor %}",
    "alias by with": "{% with x = messages %}{{ x | length }}{% endwith %}" + LOOP + "{% endfor %}",
    "printed by or": LOOP + "{% endfor %}{{ messages or 'none' }}",
    "third message": "{% set a = messages[1:] %}{% set b = a[1:] %}{{ b[0].content }}"
    + LOOP
    + "{% endfor %}",
    "third message, nested slices": "{{ messages[1:][1:][0].content }}" + LOOP + "{% endfor %}",
    "slice to the end": LOOP + PRINT + "{% endfor %}{{ messages[-2:] | length }}",
    "passed to a macro": "{% macro f(x) %}{{ x | length }}{% endmacro %}"
    + LOOP
    + "{{ f(messages) }}{% endfor %}",
    "global of a macro": "{% macro f() %}{{ messages | length }}{% endmacro %}"
    + LOOP
    + "{{ f() }}{% endfor %}",
    "loop in a macro": "{% macro f() %}"
    + LOOP
    + "{{ m.content }}{% endfor %}{% endmacro %}{{ f() | length }}",
    "loop in a set block": "{% set x %}"
    + LOOP
    + PRINT
    + "{% endfor %}{% endset %}{{ x | length }}",
    "loop in a filter block": "{% filter length %}" + LOOP + PRINT + "{% endfor %}{% endfilter %}",
    "loop in a block": "{% block b %}"
    + LOOP
    + PRINT
    + "{% endfor %}{% endblock %}{{ self.b() | length }}",
    "loop in a caller": "{% macro f() %}{{ caller() | length }}{% endmacro %}{% call f() %}"
    + LOOP
    + PRINT
    + "{% endfor %}{% endcall %}",
    "loop in a loop over tools": "{% for t in tools %}" + LOOP + PRINT + "{% endfor %}{% endfor %}",
    "counted in a macro of the loop": LOOP
    + "{% macro f() %}{{ loop.index }}{% endmacro %}{{ f() }}{% endfor %}",
    "counted in a caller": "{% macro f() %}{{ caller() }}{% endmacro %}"
    + LOOP
    + "{% call f() %}{{ loop.index }}{% endcall %}{% endfor %}",
    "used up iterator": "{% set it = tools[0].tags | map('upper') %}"
    + LOOP
    + "{{ it | first }}{% endfor %}",
    "used up iterator with default": "{% set it = tools[0].tags | reverse | default([]) %}"
    + LOOP
    + "{{ it | first }}{% endfor %}",
    "two behind": LOOP + "{{ messages[loop.index + 1].role }}{% endfor %}",
    "break": LOOP + "{% if m.content == 'stop' %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "filtered": "{% for m in messages if m.role == 'user' %}{{ loop.first }}{% endfor %}",
    "filter": "{% for m in messages | reverse %}" + PRINT + "{% endfor %}",
    "changed": LOOP + "{{ loop.changed(m.role) }}{% endfor %}",
    "random": LOOP + "{{ [1, 2, 3] | random }}{% endfor %}",
}

NEAR = {
    "plain": LOOP + PRINT + "{% endfor %}",
    "neighbours": LOOP
    + "{% if loop.previtem and loop.previtem.role != m.role %}|{% endif %}"
    + PRINT
    + "{% if loop.last or messages[loop.index0 + 1].role == 'user' %}.{% endif %}{% endfor %}",
    "first apart": "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}"
    "[{{ messages[0].content }}]{% else %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}>{{ rest[loop.index0 - 1].role }}" + PRINT + "{% endfor %}",
    "namespace of a macro": "{% macro f(x) %}{% set ns = namespace(n=0) %}{% for c in x %}"
    "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}{% endmacro %}"
    + LOOP
    + "{{ f(m.content) }}{% endfor %}",
    "else and continue": LOOP
    + "{% if m.role == 'tool' %}{% continue %}{% endif %}"
    + PRINT
    + "{% else %}nothing{% endfor %}",
    "generation": LOOP + "{% generation %}" + PRINT + "{% endgeneration %}{% endfor %}",
}


def conversation(random: Random, num_messages: int) -> list[Message]:
    return [
        {
            "role": random.choice(["user", "assistant", "tool"]),
            "content": random.choice(["a", "bb", "stop", ""]),
        }
        for _ in range(num_messages)
    ]


def delta(renderer: DeltaRenderer, messages: list[Message], num_new: int, *, reply: bool) -> Delta:
    history, new = messages[:-num_new], messages[-num_new:]
    if reply:
        return renderer.after_reply(history, Reply(new[0], None), new[1:])
    return renderer.after_history(history, new)


def renderers(source: str) -> tuple[DeltaRenderer, DeltaRenderer]:
    """The one that uses the window, and its slow twin that renders everything."""
    short, whole = (DeltaRenderer(ChatTemplate(source), TOOLS) for _ in range(2))
    assert short.template.is_local, short.template.not_local_because
    whole.template.not_local_because = "as a slow twin"
    return short, whole


def check_window(short: DeltaRenderer, whole: DeltaRenderer, random: Random) -> bool:
    """Whether the window was enough: a template that leaves its past is rendered whole."""
    messages = conversation(random, random.randint(HEAD + TAIL + 2, HEAD + TAIL + 9))
    num_new, reply = random.randint(1, 3), random.random() < 0.5
    fast, slow = (delta(r, messages, num_new, reply=reply) for r in (short, whole))
    source = short.template.source
    assert (str(fast.text), fast.num_closing) == (str(slow.text), slow.num_closing), source
    assert fast.broken == slow.broken, source
    assert [(n, o + (fast.shift if o > HEAD else 0)) for n, o in fast.text.runs] == [
        *slow.text.runs
    ]
    return fast.broken is None


@pytest.mark.parametrize("source", FAR.values(), ids=FAR)
def test_far_reaching_templates_are_not_called_local(source: str) -> None:
    assert ChatTemplate(source).not_local_because is not None


@pytest.mark.parametrize("source", NEAR.values(), ids=NEAR)
def test_near_templates_are_called_local_and_are(source: str) -> None:
    random = Random(1)
    pair = renderers(source + ASK)
    for _ in range(40):
        check_window(*pair, random)


class Writer:
    """Small random templates: every construct that locality.py judges, in any combination."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def source(self) -> str:
        pick = self.random.choice
        head = "".join(pick(self.HEADS) for _ in range(self.random.randint(1, 4)))
        body = "".join(self.statement(2) for _ in range(self.random.randint(1, 4)))
        head += "".join(self.MACROS[used] for used in self.MACROS if used in body)
        target = pick(["messages", "messages", "rest", "messages[1:]", "again"])
        tail = pick(["", "", "{{ messages[0].role }}", "{% if rest %}r{% endif %}", "{{ kept }}"])
        loop = f"{{% for m in {target} %}}>{body}{{{{ m.content }}}};{{% endfor %}}"
        return head + pick(self.WRAPPERS) % loop + tail + ASK

    HEADS = (
        "{% set rest = messages[1:] %}",
        "{% set rest = messages %}",
        "{% if messages[0].role == 'user' %}{% set rest = messages[1:] %}{% else %}"
        "{% set rest = messages %}{% endif %}",
        "{% set again = rest[1:] %}",
        "{% set again = messages and messages[0].role == 'user' %}",
        "{% set kept = messages or 0 %}",
        "{% set ns = namespace(n=0) %}",
        "{% set it = tools[0].tags|map('upper') %}",
        "{% set kept = tools[0].tags|map('upper')|join %}",
    )
    MACROS = {  # noqa: RUF012
        "f(m.role)": "{% macro f(x) %}{% set mine = namespace(n=x) %}{% set mine.n = mine.n ~ 1 %}"
        "{{ mine.n }}{% endmacro %}",
        "call g()": "{% macro g() %}{{ caller() }}{% endmacro %}",
    }
    WRAPPERS = (
        "%s",
        "%s",
        "%s",
        "%s",
        "{%% set kept %%}%s{%% endset %%}",
        "{%% if messages[0].content or true %%}%s{%% endif %%}",
        "{%% filter upper %%}%s{%% endfilter %%}",
    )

    def statement(self, depth: int) -> str:
        pick = self.random.choice
        if depth and self.random.random() < 0.6:
            inner = self.statement(depth - 1)
            return pick(
                (
                    f"{{% if {self.condition()} %}}{inner}{{% endif %}}",
                    f"{{% if {self.condition()} %}}{inner}{{% else %}}{self.statement(0)}"
                    "{% endif %}",
                    f"{{% for c in m.content %}}{inner}{{% endfor %}}",
                    f"{{% call g() %}}{inner}{{% endcall %}}",
                )
            )
        return pick(
            (
                "x",
                "{{ m.role }}",
                "{{ f(m.role) }}",
                f"{{{{ {self.expression()} }}}}",
                "{% set y = m %}",
                "{% set ns.n = ns.n + 1 %}",
                "{{ it|first }}",
                "{% if it is defined %}{{ it|first }}{% endif %}",
                "{% continue %}",
                "{% break %}",
                "{{ kept }}",
            )
        )

    def condition(self) -> str:
        one = self.random.choice(
            (
                f"{self.expression()} == 'user'",
                f"{self.expression()} == 'tool'",
                "loop.last",
                "loop.first",
                "loop.index0 > 0",
                "loop.index == 1",
                "loop.index0 != 1",
                "rest",
                "not messages[1:]",
                "loop.previtem",
                "loop.nextitem is defined",
                "rest is defined",
                "m.content",
            )
        )
        joint = self.random.choice(("", "", " and ", " or "))
        return f"{one}{joint}{self.condition()}" if joint else one

    def expression(self) -> str:
        name = self.random.choice(("messages", "messages", "rest", "again", "messages[1:]"))
        index = self.random.choice(
            (
                "0",
                "loop.index0",
                "loop.index0 - 1",
                "loop.index0 + 1",
                "loop.index",
                "loop.index - 1",
                "loop.index + 1",
                "-1",
            )
        )
        return self.random.choice(
            (
                f"{name}[{index}].role",
                f"{name}[{index}].content",
                "loop.previtem.role",
                "loop.nextitem.content",
                "m.role",
                "messages[0].content",
                "loop.index",
            )
        )


def test_random_templates_that_are_called_local_are() -> None:
    random, environment = Random(20), TrackedEnvironment()
    num_local = num_unbroken = 0
    for _ in range(1500):
        source = Writer(random).source()
        if why_not_local(environment.parse(source)) is not None:
            continue
        try:
            pair = renderers(source)
        except TemplateError:  # `continue` in a caller
            continue
        num_local += 1
        for _ in range(6):
            try:
                num_unbroken += check_window(*pair, random)
            except TemplateError:  # names that this template never set
                break
    assert num_local > 150
    assert num_unbroken > 400


def test_what_is_not_json_is_refused_in_one_line() -> None:
    messages: list[Any] = [{"role": "user", "content": None}]
    with pytest.raises(TemplateError, match=r"^the chat template refuses these messages: [^\n]+$"):
        ChatTemplate(LOOP + "{{ m.content + 1 }}{% endfor %}").render(messages)
