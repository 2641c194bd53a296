"""Logs of requests: which of them belong to one session.

Those with the same session id; one without continues the session whose last request is the longest
proper prefix of it. Requests with a time each are put in the order of time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise

import msgspec

from duramen.experiments.trajectory import Call, Message, Origin, Sending, Session, Tool, Usage


@dataclass(frozen=True)
class Logged:
    """One request of a log and what came of it. `time_s`: Unix time; `tools`: None where the log
    does not say. `origins`: what the log says of itself."""

    messages: tuple[Message, ...]
    session_id: str | None = None
    tools: tuple[Tool, ...] | None = None
    reply: Message | None = None
    time_s: float | None = None
    usage: Usage = field(default_factory=Usage)
    sending: Sending = field(default_factory=Sending)
    origins: dict[str, Origin] = field(default_factory=dict)


def grouped(
    requests: Iterable[Logged], name: str, notes: tuple[str, ...] = ()
) -> Iterator[Session]:
    """The sessions, in the order of their first requests. One without an id is called after the
    number of that request. `notes` are of the file, and come with each."""
    grouping = Grouping()
    for index, request in enumerate(requests):
        grouping.add(request, f"{name}:{index + 1}")
    for session in grouping.sessions:
        yield replace(session.finish(), notes=notes)


class Texts:
    """Equal messages become one object, so that a log costs the memory of its text once."""

    def __init__(self) -> None:
        self._seen: dict[bytes, Message] = {}

    def shared(
        self, messages: Sequence[Message], digests: Sequence[bytes] | None = None
    ) -> tuple[Message, ...]:
        keys = digests_of(messages) if digests is None else digests
        pairs = zip(keys, messages, strict=True)
        return tuple(self._seen.setdefault(key, message) for key, message in pairs)


class Requests:
    """The requests of one session, in file order."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self._requests: list[Logged] = []
        self._messages: list[tuple[Message, ...]] = []
        self._texts = Texts()

    def add(self, request: Logged, digests: list[bytes]) -> None:
        shared = self._texts.shared(request.messages, digests)
        self._requests.append(replace(request, messages=()))
        self._messages.append(shared)

    def finish(self) -> Session:
        made = list(zip(self._requests, self._messages, strict=True))
        times = [request.time_s for request in self._requests if request.time_s is not None]
        if len(times) == len(made):
            made.sort(key=lambda item: item[0].time_s or 0.0)
        start = min(times, default=None)
        tools = made[0][0].tools or ()
        derived = [_reply_in(sent, after) for (_, sent), (_, after) in pairwise(made)] + [None]
        calls = tuple(
            Call(
                messages=messages,
                reply=request.reply or reply,
                time_s=None if request.time_s is None or start is None else request.time_s - start,
                usage=request.usage,
                tools=None if _same_tools(request.tools or (), tools) else request.tools or (),
                sending=request.sending,
            )
            for (request, messages), reply in zip(made, derived, strict=True)
        )
        origins = self._origins(calls) | self._requests[0].origins
        return Session(self.session_id, calls, tools, start, origins)

    def _origins(self, calls: tuple[Call, ...]) -> dict[str, Origin]:
        origins = {"messages": Origin.RECORDED, "tools": Origin.RECORDED}
        num_logged = sum(request.reply is not None for request in self._requests)
        num_replies = sum(call.reply is not None for call in calls)
        if num_replies:
            origins["reply"] = Origin.RECORDED if num_logged == num_replies else Origin.DERIVED
        if any(call.time_s is not None for call in calls):
            origins |= {"time_s": Origin.RECORDED, "start_time_s": Origin.RECORDED}
        if any(call.usage != Usage() for call in calls):
            origins["usage"] = Origin.RECORDED
        return origins


class Grouping:
    """Requests without a session id are found again by the digests of their leading messages."""

    def __init__(self) -> None:
        self.sessions: list[Requests] = []
        self._by_id: dict[str, Requests] = {}
        self._by_prefix: dict[bytes, Requests] = {}

    def add(self, request: Logged, new_id: str) -> None:
        digests = digests_of(request.messages)
        if request.session_id is not None:
            session = self._by_id.get(request.session_id) or self._open(request.session_id)
            self._by_id[request.session_id] = session
        else:
            prefixes = _prefix_digests(digests)
            session = self._continued(prefixes) or self._open(new_id)
            self._by_prefix[prefixes[-1]] = session
        session.add(request, digests)

    def _open(self, session_id: str) -> Requests:
        session = Requests(session_id)
        self.sessions.append(session)
        return session

    def _continued(self, prefixes: list[bytes]) -> Requests | None:
        for prefix in reversed(prefixes[:-1]):
            if prefix in self._by_prefix:
                return self._by_prefix.pop(prefix)
        return None


def digests_of(messages: Sequence[Message]) -> list[bytes]:
    """The same for two messages whose JSON text is the same."""
    return [blake2b(msgspec.json.encode(m), digest_size=16).digest() for m in messages]


def _prefix_digests(digests: list[bytes]) -> list[bytes]:
    running = blake2b(digest_size=16)
    prefixes = []
    for digest in digests:
        running.update(digest)
        prefixes.append(running.digest())
    return prefixes


def _reply_in(sent: tuple[Message, ...], after: tuple[Message, ...]) -> Message | None:
    """The reply to a request as the next one quotes it, if that continues it."""
    if len(after) <= len(sent) or after[: len(sent)] != sent:
        return None
    reply = after[len(sent)]
    return reply if reply["role"] == "assistant" else None


def _same_tools(left: tuple[Tool, ...], right: tuple[Tool, ...]) -> bool:
    """Equal with their keys in the same order: another order is another prompt."""
    return msgspec.json.encode(left) == msgspec.json.encode(right)
