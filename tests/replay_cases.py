"""Sessions, targets and one call of Replay that several test files share."""

import asyncio
from collections.abc import Sequence
from typing import Any

from duramen.experiments.accounts import Accounts
from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.layouts.model import Model
from duramen.experiments.replay import Replay
from duramen.experiments.target import Outcome, RecordedReply, Target
from duramen.experiments.trajectory import Call, Message, Session, Tool
from duramen.serving.vllm.fake import FakeEngine

CLOCK, RECORDED, STABLE = ALL = [Layout.parse(n) for n in ("clock", "recorded", "stable")]


def said(text: str) -> Message:
    return {"role": "assistant", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def tool(name: str) -> Tool:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def growing(session_id: str, num_calls: int, root: str = "Be brief.") -> Session:
    """An append-only session: each call adds the last reply and one more question."""
    messages: list[Message] = [{"role": "system", "content": root}, user("Count with me.")]
    calls = []
    for number in range(num_calls):
        reply = said(f"That makes {number} for {session_id}.")
        calls.append(Call(tuple(messages), reply))
        messages += [reply, user(f"And after {number}?")]
    return Session(session_id, tuple(calls))


class Recorder:
    """A target that remembers what went through the one inside."""

    def __init__(self, inner: Target) -> None:
        self.inner = inner
        self.sent: list[tuple[list[int], Outcome]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def begin_layout(self, name: str) -> None:
        self.sent = []
        await self.inner.begin_layout(name)

    async def run(
        self, token_ids: Sequence[int], tools: Sequence[Tool], recorded: RecordedReply
    ) -> Outcome:
        outcome = await self.inner.run(token_ids, tools, recorded)
        self.sent.append((list(token_ids), outcome))
        return outcome


def replay(
    model: Model, sessions: Sequence[Session], target: Target, layout: Layout, **options: Any
) -> Accounts:
    run = Replay(sessions, model, target, **options)
    asyncio.run(run.run([layout]))
    return run.accounts[layout]


def fake_engine(model: Model, **sizes: int) -> FakeEngine:
    return FakeEngine(model.tokenizer.decode, **sizes)
