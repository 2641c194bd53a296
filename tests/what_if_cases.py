"""Sessions, plans and payers that the tests of `why --what-if` share."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

from why_cases import SYSTEM, TOOLS, chat, ids_of

from duramen.experiments.layouts.model import Model
from duramen.experiments.prices.book import Entry
from duramen.experiments.prices.money import Prices, Tariff
from duramen.experiments.prices.own_gpu import packaged_gpus
from duramen.experiments.prices.rules import CacheRules
from duramen.experiments.trajectory import Call, Message, Session
from duramen.experiments.why.what_if.bills import Bill, Engine, Payers, bills, steps
from duramen.experiments.why.what_if.moments import Begun, begun
from duramen.experiments.why.what_if.net import Tried
from duramen.experiments.why.what_if.plan import Plan
from duramen.experiments.why.what_if.rewritten import Rewriter
from duramen.experiments.why.what_if.what_if import Considered, in_step, what_if
from duramen.layout.blocks import common_prefix

UNIT = 16
DROP, CUT = Plan.parse("drop-tool-outputs:k=1"), Plan.parse("truncate:tokens=20")
CLOCK, SORT = Plan.parse("move-clock"), Plan.parse("sort-tools")


def priced(name: str, kind: Any = "automatic", **rules: Any) -> Entry:
    """Of no real model: 4 USD per million input tokens, 0.20 read from the cache."""
    prices = Prices(Decimal(4), Decimal(20), Decimal("0.20"), write_1h=Decimal(8))
    return Entry(name, "2026-12-01", Tariff(name, prices), CacheRules(kind, ttl_s=3600, **rules))


AUTOMATIC = priced("us/automatic")
MARKED = priced("us/marked", "breakpoints", write="write_1h")
PAYERS = Payers([AUTOMATIC, MARKED], packaged_gpus(), UNIT)


def output(number: int, num_lines: int) -> str:
    return "".join(
        f"{number}.{line}: the lamp of pier {line * 7 % 11}\n" for line in range(num_lines)
    )


def agent(sizes: Sequence[int], *, gap_s: float = 10.0, **more: Any) -> Session:
    """A call, and one more behind each tool output of so many lines."""
    messages: list[Message] = [SYSTEM, {"role": "user", "content": "Read all the files."}]
    calls = []
    for number, size in enumerate([*sizes, 0]):
        used = {"name": "read", "arguments": f'{{"path": "{number}.txt"}}'}
        reply: Message = {
            "role": "assistant",
            "content": f"I read file {number}.",
            "tool_calls": [{"id": f"c{number}", "type": "function", "function": used}],
        }
        calls.append(Call(tuple(messages), reply, time_s=gap_s * number))
        result: Message = {
            "role": "tool",
            "tool_call_id": f"c{number}",
            "content": output(number, size),
        }
        messages += [reply, result]
    return Session("agent", tuple(calls), tools=TOOLS, start_time_s=0.0, **more)


def clocked(num_calls: int) -> Session:
    """The system message tells the time of each call."""
    session = chat(num_calls, start_time_s=0.0, tools=TOOLS)
    calls = []
    for number, call in enumerate(session.calls):
        text = f"Current time: 2026-12-01 10:00:{number:02}.\n{SYSTEM['content']}"
        messages = ({"role": "system", "content": text}, *call.messages[1:])
        calls.append(replace(call, messages=messages, time_s=10.0 * number))
    return replace(session, calls=tuple(calls))


def shuffled(num_calls: int) -> Session:
    session = chat(num_calls, start_time_s=0.0, tools=TOOLS)
    calls = [
        replace(call, tools=(*TOOLS[i % 3 :], *TOOLS[: i % 3]), time_s=10.0 * i)
        for i, call in enumerate(session.calls)
    ]
    return replace(session, calls=tuple(calls))


SESSIONS = {
    "drop": (DROP, agent([20, 30, 4, 25, 6, 12])),
    "cut": (CUT, agent([20, 30, 4, 25, 6, 12])),
    "clock": (CLOCK, clocked(6)),
    "sort": (SORT, shuffled(6)),
}


def served(session: Session, model: Model) -> list[Bill]:
    return list(bills(steps(session, model), PAYERS))


def moments_of(plan: Plan, session: Session, model: Model) -> list[Begun]:
    rewriter = Rewriter.of(plan, model.tokenizer)
    pairs = in_step(steps(session, model), steps(rewriter.fresh(session), model))
    always = {bill.call: bill for bill in served(rewriter.always(session), model)}
    base = served(session, model)
    return list(begun(plan.rewrites_outputs, pairs, Engine(PAYERS), base, always))


def considered_of(
    plan: Plan, session: Session, model: Model, payers: Payers = PAYERS
) -> Considered:
    [found] = what_if(plan, [session], model, payers)
    return found


def breaks(session: Session, model: Model) -> list[int]:
    """Calls whose prompt does not begin with the one before."""
    sent = [ids_of(model, call.messages, session.tools_of(call)) for call in session.calls]
    ends = [len(ids) - 3 for ids in sent]  # without what opens the reply
    pairs = enumerate(pairwise(sent), 1)
    return [i for i, (a, b) in pairs if common_prefix(a, b) < ends[i - 1]]


def worse(tried: Tried) -> int:
    return tried.total(UNIT)["num_calls_that_compute_more"]
