"""The first token that differs, the slow and obvious way: encode both calls whole and compare."""

from collections.abc import Sequence
from typing import NamedTuple

from duramen.experiments.injection.cases import Case
from duramen.experiments.injection.lab import Lab


class Part(NamedTuple):
    """Where a call parts from the earlier one that it has most in common with, the latest of
    equals: its session, its index, and the first token that differs."""

    session: str
    call: int
    token: int


def part_of(lab: Lab, case: Case) -> Part | None:
    """None where the call goes on with all of that earlier call, or is the beginning of it, or
    where a template refuses one of them. A first call is compared with those of other sessions."""
    name, index = case.at
    own = next(session for session in case.sessions if session.session_id == name)
    ids = lab.prompt_ids(case.model, own, index)
    earlier = [(own, number) for number in range(index)]
    if not earlier:
        others = case.sessions[: case.sessions.index(own)]
        earlier = [(session, number) for session in others for number in range(len(session.calls))]
    found: Part | None = None
    num_whole = 0
    for session, number in earlier:
        prompt = lab.prompt_ids(case.model, session, number)
        if ids is None or prompt is None:
            return None
        whole = [*prompt, *lab.reply_ids(case.model, session, number)]
        token = first_difference(whole, ids)
        if found is None or token >= found.token:
            found, num_whole = Part(session.session_id, number, token), len(whole)
    if found is None or ids is None or found.token in (num_whole, len(ids)):
        return None
    return found


def first_difference(a: Sequence[int], b: Sequence[int]) -> int:
    """Index of the first difference; the shorter one's length where one begins the other."""
    for index, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return index
    return min(len(a), len(b))
