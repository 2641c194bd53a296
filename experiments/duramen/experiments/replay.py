"""Sends recorded sessions through a target, one layout after another, and accounts for each call.

Closed loop: a session's next call is sent when its last one has answered; `concurrency` sessions
run at once. Open loop: see arrival.py. Between runs of layouts nothing stays cached.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from duramen.experiments.accounts import Accounts
from duramen.experiments.arrival import Send, check_time_scale, send_on_time
from duramen.experiments.history import History, is_same
from duramen.experiments.layout_run import LayoutRun, Overflow, Place, Sent, not_told
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.model import Model
from duramen.experiments.open_loop import prepare
from duramen.experiments.target import Target
from duramen.experiments.trajectory import Message, Session
from duramen.layout.errors import DuramenError

Progress = Callable[[Layout, Accounts], None]

WARM_UP_TOKENS = 512


@dataclass(frozen=True)
class Replied:
    """The reply to the last call that was sent, which had `num_messages` messages."""

    num_messages: int
    message: Message

    def stands_in(self, messages: Sequence[Message]) -> bool:
        """Whether a conversation goes on with it, where it was said."""
        later = messages[self.num_messages : self.num_messages + 1]
        return any(is_same(message, self.message) for message in later)


@dataclass
class Replay:
    """`live_replies`: the model's own replies go into the conversation, else the recorded ones.

    `time_scale`: open loop, in seconds of replay per recorded second; None is closed loop.
    `num_warm_ups` calls go before the first layout and are never counted. Each layout runs
    `num_repeats` times, in turn with the others and with an empty cache each time. `runs` has the
    sums of each in order; they fill as calls finish and stay valid when a run is cut short.
    `sent` is told of each call when it has been answered.

    Raises DuramenError for an open loop whose calls would have to wait for replies.
    """

    sessions: Sequence[Session]
    model: Model
    target: Target
    live_replies: bool = False
    overflow: Overflow = Overflow.SKIP
    concurrency: int = 1
    time_scale: float | None = None
    num_warm_ups: int = 0
    num_repeats: int = 1
    progress: Progress = lambda layout, accounts: None
    sent: Sent = not_told
    runs: dict[Layout, list[Accounts]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.time_scale is None:
            return
        check_time_scale(self.time_scale)
        if self.live_replies or self.target.samples_the_record:
            raise DuramenError(
                "calls at recorded times do not wait for replies: they need a live engine "
                "and conversations that go on with the recorded replies"
            )

    @property
    def accounts(self) -> dict[Layout, Accounts]:
        """Of each layout's last run."""
        return {layout: runs[-1] for layout, runs in self.runs.items()}

    async def run(self, layouts: Sequence[Layout]) -> None:
        for number in range(self.num_warm_ups):
            await self.target.warm_up(self._random_ids(number))
        for number in range(self.num_repeats):
            first = number % max(len(layouts), 1)  # no layout is always the one that runs first
            for layout in [*layouts[first:], *layouts[:first]]:
                await self._run_layout(layout)

    def _random_ids(self, seed: int) -> list[int]:
        """Ordinary tokens, in an order that means nothing."""
        tokenizer = self.model.tokenizer
        added = {token.id for token in tokenizer.added}
        plain = [i for i in range(tokenizer.full.get_vocab_size()) if i not in added]
        limit = self.target.max_model_len or WARM_UP_TOKENS + 1
        return random.Random(seed).choices(plain, k=max(min(WARM_UP_TOKENS, limit - 1), 1))

    async def _run_layout(self, layout: Layout) -> None:
        target, accounts = self.target, Accounts(self.target.unit_tokens)
        await target.begin_layout(layout.label)
        self.runs.setdefault(layout, []).append(accounts)
        run = LayoutRun(
            layout, self.model, target, accounts, self.live_replies, self.overflow, self.sent
        )
        sends: list[tuple[float, Send]] | None = None
        if self.time_scale is not None:
            progress = partial(self.progress, layout, accounts)
            sends = await prepare(run, self.sessions, self.time_scale, progress)
        before, clock = await target.times(), asyncio.get_running_loop().time
        started_s, settled_s = clock(), target.settling_s
        try:
            await (self._closed_loop(run) if sends is None else send_on_time(sends))
        finally:
            if not target.samples_the_record:
                settling_s = target.settling_s - settled_s
                accounts.makespan_s = clock() - started_s - settling_s
        after = await target.times()
        accounts.engine_times = after.since(before) if before and after else None
        accounts.is_complete = True

    async def _closed_loop(self, run: LayoutRun) -> None:
        waiting = iter(self.sessions)

        async def worker() -> None:
            for session in waiting:
                await self._run_session(run, session)

        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(self.concurrency, len(self.sessions))):
                    workers.create_task(worker())
        except BaseExceptionGroup as group:  # the others were cancelled when the first one failed
            raise group.exceptions[0] from None

    async def _run_session(self, run: LayoutRun, session: Session) -> None:
        conversation = run.begin(session)
        history = History(session, live=self.live_replies)
        replied: Replied | None = None
        for index, (call, turn) in enumerate(zip(session.calls, history.turns(), strict=True)):
            place = Place(session, index, call, turn)
            prompt = run.prompt(conversation, place)
            if prompt is not None:
                has_reply = replied is not None and replied.stands_in(turn.messages)
                outcome = await run.send(place, prompt, has_reply=has_reply)
                replied = None
                if run.goes_on_with(outcome):
                    replied = Replied(len(turn.messages), outcome.message)
                    history.replied(outcome.message)
                    conversation.sampled(outcome.token_ids, outcome.message)
            self.progress(run.layout, run.accounts)
        run.end(session, conversation)
