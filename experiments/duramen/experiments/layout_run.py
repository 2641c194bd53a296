"""One run of one layout: calls become prompts, prompts are sent, and each is accounted for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from duramen.experiments.accounts import Accounts
from duramen.experiments.history import Turn
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.conversation import Conversation, begin
from duramen.experiments.layouts.model import Model, call_time_s
from duramen.experiments.target import Outcome, Target
from duramen.experiments.trajectory import Call, Message, Session
from duramen.layout.errors import LayoutError, TemplateError
from duramen.layout.segment_cache import text_digest
from duramen.layout.zones import Prompt, cut_front


class Overflow(Enum):
    """What becomes of a call that is longer than the model's context."""

    SKIP = "skip"
    TRUNCATE = "truncate"  # the newest tokens stay
    FAIL = "fail"


@dataclass(frozen=True)
class Place:
    """One call of a session, and how it is sent."""

    session: Session
    index: int
    call: Call
    turn: Turn


Sent = Callable[[Layout, Place, Prompt, Outcome], None]


def not_told(layout: Layout, place: Place, prompt: Prompt, outcome: Outcome) -> None:
    """For runs that nobody follows call by call."""


@dataclass
class LayoutRun:
    """`live_replies`: the model's own replies go into the conversation, else the recorded ones.
    `sent`: is told of each call when it has been answered."""

    layout: Layout
    model: Model
    target: Target
    accounts: Accounts
    live_replies: bool
    overflow: Overflow
    sent: Sent = not_told

    def begin(self, session: Session) -> Conversation:
        return begin(self.layout, self.model, session)

    def prompt(self, conversation: Conversation, place: Place) -> Prompt | None:
        """The call's prompt; None, and counted, where it cannot be sent."""
        accounts = self.accounts
        try:
            prompt = conversation.prompt(place.turn, place.call, place.index)
        except TemplateError as error:
            accounts.num_skipped["refused_by_template"] += 1
            accounts.notes[str(error)] += 1
            return None
        limit = self.target.max_model_len
        if limit is None or len(prompt.token_ids) < limit:
            return prompt
        if self.overflow is Overflow.FAIL:
            raise LayoutError(
                f"session {place.session.session_id}, call {place.index}: "
                f"{len(prompt.token_ids)} tokens leave no room: {self.target.limit_reason}, "
                f"{limit}; --overflow skip leaves them out"
            )
        if self.overflow is Overflow.TRUNCATE and limit > 1:
            return cut_front(prompt, limit - 1)
        accounts.num_skipped[self.target.limit_reason] += 1
        return None

    async def send(
        self, place: Place, prompt: Prompt, *, has_reply: bool = False, due_s: float | None = None
    ) -> Outcome:
        """Run one prompt. `has_reply`: it goes on with the reply to the session's last call.
        `due_s`: when it was due on the event loop's clock, None if whenever it is sent."""

        def recorded() -> tuple[Sequence[int], Message]:
            return self._recorded(place)

        accounts, session = self.accounts, place.session
        bounds = accounts.sending(session, place.index, prompt, has_reply=has_reply)
        accounts.notes.update(prompt.notes)
        outcome = await self.target.run(prompt.token_ids, place.turn.tools, recorded)
        if due_s is not None and outcome.sent_s is not None:
            outcome = replace(outcome, late_s=max(outcome.sent_s - due_s, 0.0))
        digest = self._spoken(outcome.token_ids) if self.goes_on_with(outcome) else None
        accounts.finished(session, prompt, bounds, outcome, digest)
        self.sent(self.layout, place, prompt, outcome)
        return outcome

    def goes_on_with(self, outcome: Outcome) -> bool:
        """Whether what the target sampled, if anything, is what the conversation goes on with."""
        takes_replies = self.live_replies or self.target.samples_the_record
        return takes_replies and bool(outcome.token_ids)

    def end(self, session: Session, conversation: Conversation) -> None:
        """All calls of a session have ended."""
        self.accounts.num_sessions += 1
        self.accounts.num_deviating += conversation.num_deviating
        self.accounts.deviations += [
            {"session": session.session_id, **vars(found)} for found in conversation.deviations
        ]

    def _recorded(self, place: Place) -> tuple[Sequence[int], Message]:
        reply = place.call.reply
        if reply is None:
            return (), {"role": "assistant", "content": ""}
        try:
            time_s = call_time_s(place.session, place.call, place.index)
            return self.model.recorded_reply(place.turn, time_s, reply), reply
        except TemplateError as error:  # no model with this template said that
            self.accounts.notes[str(error)] += 1
            return (), reply

    def _spoken(self, token_ids: Sequence[int]) -> bytes:
        tokenizer = self.model.tokenizer
        body, _ = tokenizer.split_closer(token_ids, self.model.turn_end_ids)
        return text_digest(tokenizer.decode(body))
