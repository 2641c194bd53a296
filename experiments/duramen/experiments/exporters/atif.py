"""ATIF, the Agent Trajectory Interchange Format of Harbor (RFC 0001, v1.6), a file per trajectory.

A trajectory only grows: each call of the model is an agent step behind all that was sent. So a
session becomes one trajectory for each stretch of calls that go on with what the call before sent;
where a client edits the past, or sends other tools, a new one starts with that past as copied
context, and the one before names it in continued_trajectory_ref.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from duramen.experiments.exporters.aiperf import plain_name
from duramen.experiments.exporters.atif_steps import Steps
from duramen.experiments.exporters.exported import Exported, File, Losses, goes_on, json_text
from duramen.experiments.trajectory import Call, Session
from duramen.layout.errors import TrajectoryError

SCHEMA = "ATIF-v1.6"
UNKNOWN = "unknown"  # required names that a recording may lack
NO_REPLY = "calls without a reply left out: a step is what the model said"


def to_atif(sessions: Sequence[Session]) -> Exported:
    """Raises TrajectoryError if no call is left."""
    losses = Losses()
    files: list[File] = []
    num_calls = 0
    for number, session in enumerate(sessions):
        stretches = list(_stretches(session, losses))
        names = [_name(number, session, part, len(stretches)) for part in range(len(stretches))]
        for part, calls in enumerate(stretches):
            trajectory = _trajectory(session, calls, part, losses)
            if part + 1 < len(stretches):
                trajectory["continued_trajectory_ref"] = names[part + 1]
            files.append(File(names[part], json_text(trajectory, names[part]) + "\n"))
            num_calls += len(calls)
    losses.check(num_calls)
    return Exported(tuple(files), len(sessions), num_calls, losses.notes)


def _stretches(session: Session, losses: Losses) -> Iterator[list[Call]]:
    calls = [call for call in session.calls if call.reply is not None]
    if len(calls) < len(session.calls):
        losses[NO_REPLY] += len(session.calls) - len(calls)
    stretch = calls[:1]
    for before, after in pairwise(calls):
        if not goes_on(session, before, after):
            yield stretch
            stretch = []
        stretch.append(after)
    if stretch:
        yield stretch


def _name(number: int, session: Session, part: int, num_parts: int) -> str:
    suffix = f".{part:03d}" if num_parts > 1 else ""
    return f"{number:06d}-{plain_name(session.session_id)}{suffix}.json"


def _trajectory(
    session: Session, calls: Sequence[Call], part: int, losses: Losses
) -> dict[str, Any]:
    steps = Steps(losses)
    num_known = 0
    for call in calls:
        assert call.reply is not None
        for message in call.messages[num_known:]:
            steps.add(message)
        steps.add_call(call, call.reply, _timestamp(session, call))
        num_known = len(call.messages) + 1
    agent: dict[str, Any] = {"name": UNKNOWN, "version": UNKNOWN}
    if model := calls[0].sending.model:
        agent["model_name"] = model
    if tools := session.tools_of(calls[0]):
        agent["tool_definitions"] = list(tools)
    return {
        "schema_version": SCHEMA,
        "session_id": session.session_id + (f"-cont-{part}" if part else ""),
        "agent": agent,
        "steps": steps.steps,
        "final_metrics": _sums(calls) | {"total_steps": len(steps.steps)},
    }


def _timestamp(session: Session, call: Call) -> str | None:
    """ISO 8601 in UTC; None where it was not recorded. Raises TrajectoryError beyond a calendar."""
    if session.start_time_s is None or call.time_s is None:
        return None
    time_s = session.start_time_s + call.time_s
    try:
        return datetime.fromtimestamp(time_s, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        raise TrajectoryError(
            f"session {session.session_id!r}: time {time_s:.0f} s is beyond any calendar"
        ) from None


def _sums(calls: Sequence[Call]) -> dict[str, Any]:
    """Totals of what all calls report; what one of them does not is left out."""
    sums = {}
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
        values = [getattr(call.usage, name) for call in calls]
        if None not in values:
            sums[f"total_{name}"] = sum(values)
    return sums
