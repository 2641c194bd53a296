"""Admission: who goes first, who is turned away, and that no slot or place is ever lost."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from duramen.layout.errors import DuramenError
from duramen.serving.gateway.admission import MAX_PRIORITY, Admission, Slot
from duramen.serving.gateway.errors import ApiError
from duramen.serving.gateway.settings import Limits


class Bench:
    """Calls by name at one Admission, on a clock that the test moves."""

    def __init__(self, **limits: Any) -> None:
        self.now_s = 100.0
        self.admission = Admission(Limits(**limits), lambda: self.now_s)
        self.slots: dict[str, Slot] = {}  # in the order in which they were given
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._tenants: dict[str, str] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def call(self, name: str, tenant: str = "t", tokens: int | None = 0) -> None:
        self._tenants[name] = tenant
        self._ends[name] = asyncio.Event()

        async def run() -> None:
            async with self.admission.admit(tenant, tokens) as slot:
                self.slots[name] = slot
                await self._ends[name].wait()

        self.tasks[name] = asyncio.create_task(run())
        await rest()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self.tasks[name]
        await rest()

    async def give_up(self, name: str) -> None:
        self.tasks[name].cancel()
        await rest()
        assert self.tasks[name].cancelled()

    async def refusal(self, name: str) -> ApiError:
        with pytest.raises(ApiError) as caught:
            await self.tasks[name]
        return caught.value

    @property
    def order(self) -> list[str]:
        return list(self.slots)

    @property
    def counts(self) -> tuple[int, int]:
        return self.admission.num_running, self.admission.num_queued

    @property
    def loads(self) -> dict[str, tuple[int, int]]:
        """Calls of each tenant that run and that wait."""
        present = [name for name, task in self.tasks.items() if not task.done()]
        running = Counter(self._tenants[name] for name in present if name in self.slots)
        waiting = Counter(self._tenants[name] for name in present if name not in self.slots)
        return {t: (running[t], waiting[t]) for t in {self._tenants[name] for name in present}}


async def rest() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_call_gets_a_slot_at_once_and_gives_it_back() -> None:
    bench = Bench()
    await bench.call("a", tokens=3)
    assert bench.slots == {"a": Slot(priority=100_006, queued_s=0.0)}
    assert bench.counts == (1, 0)
    await bench.end("a")
    assert bench.counts == (0, 0)


async def test_a_cold_call_is_overtaken_only_within_its_penalty() -> None:
    bench = Bench(max_running=1, uncached_token_ms=2.0)
    await bench.call("running")
    await bench.call("cold", tokens=1000)  # as if it had arrived 2 s later
    bench.now_s += 1.5
    await bench.call("within", tokens=10)
    bench.now_s += 1.0
    await bench.call("behind", tokens=10)
    for name in ("running", "within", "cold", "behind"):
        await bench.end(name)
    assert bench.order == ["running", "within", "cold", "behind"]
    assert bench.slots["cold"] == Slot(priority=102_000, queued_s=2.5)


async def test_fcfs_knows_arrivals_only() -> None:
    bench = Bench(max_running=1, scheduling="fcfs")
    await bench.call("running")
    await bench.call("cold", tokens=10**6)
    await bench.call("short", tokens=0)
    for name in ("running", "cold", "short"):
        await bench.end(name)
    assert bench.order == ["running", "cold", "short"]
    assert bench.slots["cold"].priority == 100_000


@pytest.mark.parametrize(
    ("tokens", "token_ms", "expected"),
    [
        (None, 2.0, 100_000),
        (-5, 2.0, 100_000),
        (3, 0.5, 100_002),
        (10**30, 2.0, MAX_PRIORITY),
        (10**6, 1e300, MAX_PRIORITY),
    ],
)
async def test_priority(tokens: int | None, token_ms: float, expected: int) -> None:
    bench = Bench(uncached_token_ms=token_ms)
    await bench.call("a", tokens=tokens)
    assert bench.slots["a"].priority == expected
    await bench.end("a")
    assert MAX_PRIORITY < 2**63


async def test_a_full_queue_says_when_to_come_again() -> None:
    bench = Bench(max_running=2, max_queued=3)
    for name in "abcde":
        await bench.call(name)
    for name in "ab":
        bench.now_s += 8.0
        await bench.end(name)
    await bench.call("f")
    await bench.call("g")
    await bench.call("h")
    refusal = await bench.refusal("h")
    assert refusal.body["error"] == {
        "message": "too many calls wait for the engine: try again in 24 s",
        "type": "requests",
        "param": None,
        "code": "rate_limit_exceeded",
    }
    assert (refusal.status, refusal.retry_after_s) == (429, 24.0)  # 3 calls, one ends each 8 s
    assert bench.counts == (2, 3)


async def test_the_pace_of_a_single_slot_outlives_its_calls() -> None:
    bench = Bench(max_running=1, max_queued=1)
    await bench.call("0")
    for number in range(1, 5):
        await bench.call(str(number))
        bench.now_s += 8.0 if number > 1 else 2.0
        await bench.end(str(number - 1))
    bench.now_s += 4.0
    await bench.call("waits")
    await bench.call("refused")
    assert (await bench.refusal("refused")).retry_after_s == 8.0  # 4 ended in 30 s


@pytest.mark.parametrize(("age_s", "expected"), [(0.0, 1.0), (0.2, 1.0), (7.4, 8.0), (9e9, 600.0)])
async def test_without_an_end_the_wait_is_as_long_as_it_has_lasted(
    age_s: float, expected: float
) -> None:
    bench = Bench(max_running=1, max_queued=0)
    await bench.call("idle before")
    bench.now_s += 5000.0
    await bench.end("idle before")
    bench.now_s += 5000.0
    await bench.call("a")
    bench.now_s += age_s
    await bench.call("b")
    assert (await bench.refusal("b")).retry_after_s == expected


async def test_a_tenant_has_limits_of_its_own() -> None:
    bench = Bench(tenant_max_running=1, tenant_max_queued=1)
    for name in ("a1", "a2", "a3", "b1"):
        await bench.call(name, tenant=name[0])
    assert bench.order == ["a1", "b1"]
    assert bench.loads == {"a": (1, 1), "b": (1, 0)}
    refusal = await bench.refusal("a3")
    assert refusal.status == 429
    assert str(refusal) == "too many of your calls wait for the engine: try again in 1 s"
    await bench.end("b1")
    assert bench.counts == (1, 1)  # a free slot is not a's to take
    await bench.end("a1")
    assert bench.order == ["a1", "b1", "a2"]


async def test_a_tenant_that_runs_slowly_is_told_its_own_pace() -> None:
    bench = Bench(max_running=9, tenant_max_running=1, tenant_max_queued=1)
    await bench.call("slow", tenant="a")
    await bench.call("waits", tenant="a")
    for _ in range(30):
        bench.now_s += 1.0
        await bench.call("quick", tenant="b")
        await bench.end("quick")
    await bench.call("refused", tenant="a")
    assert (await bench.refusal("refused")).retry_after_s == 30.0


async def test_slots_even_out_between_tenants() -> None:
    bench = Bench(max_running=4)
    for number in range(8):
        await bench.call(f"a{number}", tenant="a")
    for number in range(4):
        await bench.call(f"b{number}", tenant="b")
    for number in range(4):
        await bench.end(f"a{number}")
    assert bench.order[4:] == ["b0", "b1", "a4", "a5"]
    assert bench.loads == {"a": (2, 2), "b": (2, 2)}


async def test_with_one_slot_tenants_take_turns() -> None:
    bench = Bench(max_running=1)
    for name in ("a0", "a1", "a2", "a3", "b0", "b1", "c0"):
        await bench.call(name, tenant=name[0])
    for place in range(7):
        await bench.end(bench.order[place])
    assert bench.order == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]


async def test_a_flood_cannot_keep_others_out_of_the_queue() -> None:
    bench = Bench(max_running=1, max_queued=4)
    for number in range(5):
        await bench.call(f"a{number}", tenant="a", tokens=number)
    for number in range(3):
        await bench.call(f"b{number}", tenant="b")
    for pushed_out in ("a4", "a3", "b2"):  # then both have two places: nothing more to even out
        assert (await bench.refusal(pushed_out)).status == 429
    assert bench.loads == {"a": (1, 2), "b": (0, 2)}


async def test_a_client_that_goes_away_frees_its_place_and_its_slot() -> None:
    bench = Bench(max_running=1, max_queued=1)
    await bench.call("a")
    await bench.call("b")
    await bench.give_up("b")
    assert bench.counts == (1, 0)
    await bench.call("c")
    await bench.give_up("a")
    assert bench.order == ["a", "c"]
    assert bench.counts == (1, 0)


@pytest.mark.parametrize("first", ["slot", "cancel"])
async def test_a_slot_that_is_given_while_its_client_goes_is_passed_on(first: str) -> None:
    bench = Bench(max_running=1)
    for name in "abc":
        await bench.call(name)
    acts: list[Callable[[], object]] = [bench._ends["a"].set, bench.tasks["b"].cancel]
    for act in acts if first == "slot" else acts[::-1]:
        act()
    await rest()
    assert bench.tasks["b"].cancelled()
    assert bench.order == ["a", "c"]
    await bench.end("c")
    assert bench.counts == (0, 0)


async def test_an_error_in_the_block_gives_the_slot_back() -> None:
    bench = Bench()
    with pytest.raises(ZeroDivisionError):
        async with bench.admission.admit("t", 0):
            raise ZeroDivisionError
    assert bench.counts == (0, 0)


async def test_closing_turns_away_all_but_those_that_run() -> None:
    bench = Bench(max_running=1)
    for name in ("a", "b", "c"):
        await bench.call(name, tenant=name)
    bench.admission.close()
    await bench.call("d")
    for name in "bcd":
        refusal = await bench.refusal(name)
        assert (refusal.status, refusal.code) == (503, "shutting_down")
        assert str(refusal) == "the gateway is shutting down"
    assert bench.counts == (1, 0)
    await bench.end("a")
    assert bench.counts == (0, 0)


@pytest.mark.parametrize(
    ("limits", "line"),
    [
        ({"max_running": 0}, "limit max_running is 0: set at least 1"),
        ({"tenant_max_running": -1}, "limit tenant_max_running is -1: set at least 1"),
        ({"max_queued": -1}, "limit max_queued is -1: set 0 or more"),
        ({"uncached_token_ms": float("nan")}, "limit uncached_token_ms is nan: set 0 or more"),
        ({"uncached_token_ms": float("inf")}, "limit uncached_token_ms is inf: set 0 or more"),
        ({"deadline_s": 0.0}, "limit deadline_s is 0.0: set seconds above 0"),
    ],
)
def test_a_limit_that_makes_no_sense(limits: dict[str, Any], line: str) -> None:
    with pytest.raises(DuramenError) as caught:
        Limits(**limits)
    assert str(caught.value) == line


Waiting = tuple[str, tuple[int, int], str]  # tenant, order, name


@dataclass
class Plain:
    """The obvious twin: two lists, counted anew each time."""

    limits: Limits
    running: list[tuple[str, str]] = field(default_factory=list)  # tenant, name
    waiting: list[Waiting] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)  # tenants that got a slot

    def arrive(self, tenant: str, order: tuple[int, int], name: str) -> str | None:
        """Which call is refused, if any."""
        self.waiting.append((tenant, order, name))
        self.let_in()
        lengths = Counter(each[0] for each in self.waiting)
        refused = None
        if lengths[tenant] > self.limits.tenant_max_queued:
            refused = name
        elif len(self.waiting) > self.limits.max_queued:
            own = lengths[tenant] - 1
            others = [w for w in self.waiting if lengths[w[0]] > own + 1 and w[0] != tenant]
            refused = max(others, key=lambda w: (lengths[w[0]], w[1]), default=("", (), name))[2]
        self.leave(refused)
        return refused

    def leave(self, name: str | None) -> None:
        self.running = [each for each in self.running if each[-1] != name]
        self.waiting = [each for each in self.waiting if each[-1] != name]
        self.let_in()
        present = {each[0] for each in [*self.running, *self.waiting]}
        self.turns = [tenant if tenant in present else "" for tenant in self.turns]

    def let_in(self) -> None:
        while True:
            slots = Counter(tenant for tenant, _ in self.running)
            last = {tenant: turn for turn, tenant in enumerate(self.turns)}
            ready = [w for w in self.waiting if slots[w[0]] < self.limits.tenant_max_running]
            if not ready or len(self.running) >= self.limits.max_running:
                return
            chosen = min(ready, key=lambda w: (slots[w[0]], last.get(w[0], -1), w[1]))
            self.waiting.remove(chosen)
            self.running.append((chosen[0], chosen[2]))
            self.turns.append(chosen[0])


acts = st.one_of(
    st.tuples(st.sampled_from("abc"), st.integers(0, 5)),  # a call of a tenant, its tokens
    st.integers(0, 20),  # one that runs or waits leaves
)


@given(
    max_running=st.integers(1, 4),
    max_queued=st.integers(0, 6),
    tenant_max_running=st.integers(1, 3),
    tenant_max_queued=st.integers(0, 4),
    script=st.lists(acts, max_size=40),
)
def test_admission_as_its_twin(script: list[Any], **limits: Any) -> None:
    async def follow() -> None:
        bench, plain = Bench(**limits), Plain(Limits(**limits))
        for number, act in enumerate(script):
            bench.now_s += 0.001
            present = [each[-1] for each in [*plain.running, *plain.waiting]]
            if isinstance(act, tuple):
                (tenant, tokens), name = act, f"{act[0]}{number}"
                await bench.call(name, tenant, tokens)
                arrived_ms = int(bench.now_s * 1000)
                refused = plain.arrive(tenant, (arrived_ms + 2 * tokens, number), name)
                if refused is not None:
                    assert (await bench.refusal(refused)).status == 429
            elif present:
                name = present[act % len(present)]
                await (bench.end if name in bench.slots else bench.give_up)(name)
                plain.leave(name)
            held = [name for name in bench.slots if not bench.tasks[name].done()]
            assert held == [name for _, name in plain.running]
            assert bench.counts == (len(plain.running), len(plain.waiting))
        for task in bench.tasks.values():
            task.cancel()
        await asyncio.gather(*bench.tasks.values(), return_exceptions=True)
        assert (bench.counts, bench.admission._lanes) == ((0, 0), {})

    asyncio.run(follow())


@pytest.mark.parametrize("seed", range(5))
async def test_nothing_leaks_under_random_cancels(seed: int) -> None:
    """400 calls of 4 tenants that end, fail, are refused or given up at any step."""
    chance = random.Random(seed)
    limits = Limits(max_running=5, max_queued=10, tenant_max_running=3, tenant_max_queued=4)
    admission = Admission(limits)
    most: Counter[str] = Counter()
    running: Counter[str] = Counter()
    ends: Counter[str] = Counter()

    async def call(tenant: str) -> None:
        async with admission.admit(tenant, chance.randrange(100)):
            running[tenant] += 1
            most["running"] = max(most["running"], admission.num_running)
            most["tenant"] = max(most["tenant"], *running.values())
            try:
                for _ in range(chance.randrange(12)):
                    await asyncio.sleep(0)
                if chance.random() < 0.1:
                    raise ZeroDivisionError
            finally:
                running[tenant] -= 1
            ends["done"] += 1

    tasks = []
    for _ in range(400):
        tasks.append(asyncio.create_task(call(chance.choice("abcd"))))
        if chance.random() < 0.4:
            chance.choice(tasks[-20:]).cancel()
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if result is not None:
            ends[type(result).__name__] += 1
            assert isinstance(result, ApiError | ZeroDivisionError | asyncio.CancelledError)
    assert (admission.num_running, admission.num_queued, admission._lanes) == (0, 0, {})
    assert (most["running"], most["tenant"]) == (5, 3)
    assert min(ends[end] for end in ("done", "ApiError", "CancelledError")) > 0
