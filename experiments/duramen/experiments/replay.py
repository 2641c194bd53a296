"""Sends recorded sessions through a target, one layout after another, and accounts for each call.

Closed loop: a session's next call is sent when its last one has answered; `concurrency` sessions
run at once. Between layouts nothing stays cached.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from duramen.experiments.accounts import Accounts
from duramen.experiments.history import History, Turn, is_same
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.conversation import Conversation, begin
from duramen.experiments.layouts.model import Model, call_time_s
from duramen.experiments.target import Outcome, Target
from duramen.experiments.trajectory import Call, Message, Session
from duramen.layout.errors import LayoutError, TemplateError
from duramen.layout.segment_cache import text_digest
from duramen.layout.zones import Prompt, cut_front

Progress = Callable[[Layout, Accounts], None]
Place = tuple[int, Call, Turn]  # index of a call in its session, the call, and how it is sent


class Overflow(Enum):
    """What becomes of a call that is longer than the model's context."""

    SKIP = "skip"
    TRUNCATE = "truncate"  # the newest tokens stay
    FAIL = "fail"


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

    `accounts` fills as calls finish and stays valid when a run is cut short.
    """

    sessions: Sequence[Session]
    model: Model
    target: Target
    live_replies: bool = False
    overflow: Overflow = Overflow.SKIP
    concurrency: int = 1
    progress: Progress = lambda layout, accounts: None
    accounts: dict[Layout, Accounts] = field(default_factory=dict)

    async def run(self, layouts: Sequence[Layout]) -> None:
        for layout in layouts:
            await self.target.begin_layout(layout.label)
            self.accounts[layout] = Accounts(self.target.unit_tokens)
            started_s, settled_s = time.perf_counter(), self.target.settling_s
            try:
                await self._run_layout(layout)
            finally:
                if not self.target.samples_the_record:
                    elapsed_s = time.perf_counter() - started_s
                    settling_s = self.target.settling_s - settled_s
                    self.accounts[layout].makespan_s = elapsed_s - settling_s

    async def _run_layout(self, layout: Layout) -> None:
        waiting = iter(self.sessions)

        async def worker() -> None:
            for session in waiting:
                await self._run_session(layout, session)

        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(self.concurrency, len(self.sessions))):
                    workers.create_task(worker())
        except BaseExceptionGroup as group:  # the others were cancelled when the first one failed
            raise group.exceptions[0] from None

    async def _run_session(self, layout: Layout, session: Session) -> None:
        accounts = self.accounts[layout]
        conversation = begin(layout, self.model, session)
        history = History(session, live=self.live_replies)
        replied: Replied | None = None
        for index, (call, turn) in enumerate(zip(session.calls, history.turns(), strict=True)):
            prompt = self._prompt(accounts, conversation, (index, call, turn), session)
            if prompt is not None:
                has_reply = replied is not None and replied.stands_in(turn.messages)
                outcome = await self._send(
                    accounts, session, (index, call, turn), prompt, has_reply
                )
                replied = None
                if self._goes_on_with(outcome):
                    replied = Replied(len(turn.messages), outcome.message)
                    history.replied(outcome.message)
                    conversation.sampled(outcome.token_ids, outcome.message)
            self.progress(layout, accounts)
        accounts.num_sessions += 1
        accounts.num_deviating += conversation.num_deviating
        accounts.deviations += [
            {"session": session.session_id, **vars(found)} for found in conversation.deviations
        ]

    def _goes_on_with(self, outcome: Outcome) -> bool:
        """Whether what the target sampled, if anything, is what the conversation goes on with."""
        takes_replies = self.live_replies or self.target.samples_the_record
        return takes_replies and bool(outcome.token_ids)

    def _prompt(
        self, accounts: Accounts, conversation: Conversation, place: Place, session: Session
    ) -> Prompt | None:
        """The call's prompt; None, and counted, where it cannot be sent."""
        index, call, turn = place
        try:
            prompt = conversation.prompt(turn, call, index)
        except TemplateError as error:
            accounts.num_skipped["refused_by_template"] += 1
            accounts.notes[str(error)] += 1
            return None
        limit = self.target.max_model_len
        if limit is None or len(prompt.token_ids) < limit:
            return prompt
        if self.overflow is Overflow.FAIL:
            raise LayoutError(
                f"session {session.session_id}, call {index}: {len(prompt.token_ids)} tokens leave "
                f"no room: {self.target.limit_reason}, {limit}; --overflow skip leaves them out"
            )
        if self.overflow is Overflow.TRUNCATE and limit > 1:
            return cut_front(prompt, limit - 1)
        accounts.num_skipped[self.target.limit_reason] += 1
        return None

    async def _send(
        self,
        accounts: Accounts,
        session: Session,
        place: Place,
        prompt: Prompt,
        has_reply: bool,
    ) -> Outcome:
        index, call, turn = place

        def recorded() -> tuple[Sequence[int], Message]:
            if call.reply is None:
                return (), {"role": "assistant", "content": ""}
            try:
                time_s = call_time_s(session, call, index)
                return self.model.recorded_reply(turn, time_s, call.reply), call.reply
            except TemplateError as error:  # no model with this template said that
                accounts.notes[str(error)] += 1
                return (), call.reply

        bounds = accounts.sending(session, index, prompt, has_reply=has_reply)
        accounts.notes.update(prompt.notes)
        outcome = await self.target.run(prompt.token_ids, turn.tools, recorded)
        digest = self._spoken(outcome.token_ids) if self._goes_on_with(outcome) else None
        accounts.finished(session, prompt, bounds, outcome, digest)
        return outcome

    def _spoken(self, token_ids: Sequence[int]) -> bytes:
        tokenizer = self.model.tokenizer
        body, _ = tokenizer.split_closer(token_ids, self.model.turn_end_ids)
        return text_digest(tokenizer.decode(body))
