"""Why each call of a log reused what it did: four layers reconciled, from the request to blocks."""

from collections.abc import Iterable, Iterator
from functools import cache
from heapq import heapify, heappop, heapreplace

from duramen.experiments.layouts.model import Model
from duramen.experiments.prices.book import Book
from duramen.experiments.prices.read import packaged_book
from duramen.experiments.trajectory import Session
from duramen.experiments.why.blocks import Blocks
from duramen.experiments.why.explained import ExplainedCall
from duramen.experiments.why.log import Log, Settings
from duramen.experiments.why.provider import provider_of
from duramen.experiments.why.walk import Judged, Walk

__all__ = ["Settings", "explain"]

USUAL = Settings()


def explain(
    sessions: Iterable[Session], model: Model, settings: Settings = USUAL
) -> Iterator[ExplainedCall]:
    """Every call of every session, session after session.

    The cache serves sessions one after another. Where it has a size and all calls have a recorded
    time it serves them in the order of time, since that decides what is evicted; then all sessions
    are read before the first is explained.
    """
    log = Log(model, settings)
    if settings.kv_tokens is not None:
        sessions = list(sessions)
        if all(map(_is_timed, sessions)):
            yield from finished(log, _interleaved(log, sessions))
            return
    yield from finished(log, _one_by_one(log, sessions))


def _one_by_one(log: Log, sessions: Iterable[Session]) -> Iterator[Walk]:
    for session in sessions:
        walk = Walk(session, log)
        while not walk.is_done:
            walk.step()
        yield walk


def _interleaved(log: Log, sessions: Iterable[Session]) -> list[Walk]:
    walks = [Walk(session, log) for session in sessions]
    waiting = [(walk.next_s, number) for number, walk in enumerate(walks) if not walk.is_done]
    heapify(waiting)
    while waiting:
        _, number = waiting[0]
        walk = walks[number]
        walk.step()
        if walk.is_done:
            heappop(waiting)
        else:
            heapreplace(waiting, (walk.next_s, number))
    return walks


def _is_timed(session: Session) -> bool:
    has_start = session.start_time_s is not None
    return has_start and all(call.time_s is not None for call in session.calls)


def finished(log: Log, walks: Iterable[Walk]) -> Iterator[ExplainedCall]:
    reports = False
    for walk in walks:
        name = walk.session.session_id
        reports = reports or any(call.call.usage.cached_tokens is not None for call in walk.judged)
        blocks = Blocks(log, name, walk.judged, _book(), reports)
        for call in walk.judged:
            yield _explained(log, name, call, blocks)


def _explained(log: Log, session_id: str, call: Judged, blocks: Blocks) -> ExplainedCall:
    reusable, sending = None, call.call.sending
    if call.num_tokens is not None and call.lcp is not None:
        reusable = log.reusable(call.lcp, call.num_tokens)
    return ExplainedCall(
        session_id,
        call.index,
        call.num_tokens,
        call.lcp,
        reusable,
        call.predicted,
        call.call.usage.cached_tokens,
        blocks.broken(call),
        call.refused,
        call.zones,
        reported_tokens=call.call.usage.prompt_tokens,
        model=sending.model,
        provider=None if provider_of(sending, _book()) is None else sending.provider,
    )


@cache
def _book() -> Book:
    return packaged_book()
