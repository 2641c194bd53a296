"""What a plan is said to cost, against the engine: the same prompts served live hit as much."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from what_if_cases import AUTOMATIC, CUT, DROP, SESSIONS, agent
from why_live_cases import UNIT, cached, complete

from duramen.experiments.layouts.model import Model
from duramen.experiments.opening import load_model
from duramen.experiments.trajectory import Session
from duramen.experiments.why.what_if.bills import Bill, Payers, bills, steps
from duramen.experiments.why.what_if.net import Tried
from duramen.experiments.why.what_if.plan import Plan
from duramen.experiments.why.what_if.rewritten import Rewriter
from duramen.experiments.why.what_if.what_if import what_if
from duramen.serving.vllm.engine import VllmEngine

PAYERS = Payers([AUTOMATIC], {}, UNIT)


def with_clock(session: Session) -> Session:
    """The system message begins with the time of each call."""
    calls = []
    for number, call in enumerate(session.calls):
        head = call.messages[0]
        text = f"It is 2026-12-01 10:00:{number:02}. {head['content']}"
        calls.append(replace(call, messages=({**head, "content": text}, *call.messages[1:])))
    return replace(session, calls=tuple(calls))


CLOCKED = with_clock(agent([20, 30, 4, 25, 6, 12]))
PLANS = {**SESSIONS, "cut beside a clock": (CUT, CLOCKED), "drop beside a clock": (DROP, CLOCKED)}


def served(session: Session, model: Model) -> list[Bill]:
    return list(bills(steps(session, model), PAYERS))


async def served_live(engine: VllmEngine, session: Session, model: Model) -> list[int]:
    """Cached tokens of each call, from an empty cache; the replies are those of the recording."""
    assert await engine.reset_prefix_cache()
    hits = []
    for step in steps(session, model):
        prompt, reply = list(step.prompt.token_ids), list(step.reply_ids)
        hits.append(cached(await complete(engine, prompt, 1)))
        if len(reply) > 1:
            await complete(engine, [*prompt, *reply[:-1]], 1)
    return hits


@pytest.mark.live
@pytest.mark.parametrize("name", PLANS)
async def test_a_plan_hits_live_what_it_is_said_to_hit(
    live_engine: VllmEngine, smollm2: Path, notice: Callable[[str], None], name: str
) -> None:
    model = load_model(smollm2, None)
    plan, session = PLANS[name]
    rewriter = Rewriter.of(plan, model.tokenizer)
    fewer = []
    for changed in (session, rewriter.begun_at(session, 3), rewriter.always(session)):
        said = served(changed, model)
        assert await served_live(live_engine, changed, model) == [bill.cached for bill in said]
        fewer.append(sum(bill.computed for bill in said))
    notice(f"what-if, live: {name} computes {fewer} tokens: as it is, begun at call 3, as a rule")


@pytest.mark.parametrize("plan", [CUT, DROP], ids=lambda plan: plan.name.value)
def test_beside_a_clock_the_best_call_is_the_best_of_all(smollm2: Path, plan: Plan) -> None:
    """Nothing is read from the cache there: what is left out is saved in full from then on."""
    model = load_model(smollm2, None)
    rewriter, base = Rewriter.of(plan, model.tokenizer), served(CLOCKED, model)
    [found] = what_if(plan, [CLOCKED], model, PAYERS)
    tried = [
        Tried(call, base, served(rewriter.begun_at(CLOCKED, call), model))
        for call in range(len(CLOCKED.calls))
    ]
    assert found.best[AUTOMATIC.name].net == max(each.net(AUTOMATIC.name).net for each in tried) > 0
