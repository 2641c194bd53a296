"""Mooncake traces: each call as the chained ids of its blocks, without text (importers.mooncake).

Ids count up from 0 in the order in which blocks appear. Equal ids mean equal prefixes: a block's
hash covers everything before it, and the last one, which may be partial, covers its own tokens.
Calls with another model or cache salt share no id. Timestamps are milliseconds after the earliest
recorded call; a session without a recorded start begins with it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from duramen.experiments.exporters.exported import (
    Exported,
    File,
    Losses,
    call_name,
    json_lines,
    offset_s,
)
from duramen.experiments.history import History, Turn
from duramen.experiments.importers.mooncake import UNIT_TOKENS
from duramen.experiments.layouts.model import Model, call_time_s
from duramen.experiments.layouts.whole import Whole
from duramen.experiments.trajectory import Call, Sending, Session
from duramen.layout.blocks import BlockHash, block_hashes, salted_root
from duramen.layout.errors import LayoutError


@dataclass(frozen=True)
class Encoded:
    """One call as token ids."""

    session: Session
    index: int
    token_ids: Sequence[int]
    num_output_tokens: int


@dataclass
class BlockNumbers:
    """Numbers blocks of `unit` tokens by all that stands before their end."""

    unit: int
    _numbers: dict[BlockHash, int] = field(default_factory=dict)

    def of(self, token_ids: Sequence[int], salt: str) -> list[int]:
        """ceil(len(token_ids) / unit) numbers."""
        hashes = [*block_hashes(token_ids, self.unit, salt)]
        if tail := token_ids[len(hashes) * self.unit :]:
            parent = hashes[-1] if hashes else salted_root(salt)
            hashes += block_hashes(tail, len(tail), parent=parent)
        return [self._numbers.setdefault(each, len(self._numbers)) for each in hashes]


def to_mooncake(sessions: Sequence[Session], model: Model, unit: int = UNIT_TOKENS) -> Exported:
    """One line a call, in the order of time. A recorded prompt's own ids hold; other prompts are
    rendered and encoded whole by `model`.

    Raises TrajectoryError if no call is left, LayoutError for a `unit` below 1.
    """
    losses = Losses()
    starts_s = [s.start_time_s for s in sessions if s.start_time_s is not None]
    first_s = min(starts_s, default=0.0)
    blocks = BlockNumbers(unit)
    lines: list[dict[str, Any]] = []
    for encoded in encode_calls(sessions, model, losses):
        session, call = encoded.session, encoded.session.calls[encoded.index]
        start_s = first_s if session.start_time_s is None else session.start_time_s
        if session.start_time_s is None or call.time_s is None:
            losses["calls without a recorded time: one second after the call before"] += 1
        at_s = start_s - first_s + offset_s(session, call, encoded.index)
        lines.append(
            {
                "timestamp": round(at_s * 1000),
                "input_length": len(encoded.token_ids),
                "output_length": encoded.num_output_tokens,
                "hash_ids": blocks.of(encoded.token_ids, _cache_of(call.sending)),
            }
        )
    losses.check(len(lines))
    lines.sort(key=lambda line: line["timestamp"])
    file = File("trace.jsonl", json_lines(lines, "the trace"))
    return Exported((file,), len(sessions), len(lines), losses.notes)


def encode_calls(sessions: Iterable[Session], model: Model, losses: Losses) -> Iterator[Encoded]:
    """Calls that cannot be encoded are left out and counted in `losses`."""
    for session in sessions:
        turns = History(session, live=False).turns()
        for index, (call, turn) in enumerate(zip(session.calls, turns, strict=True)):
            of_call = _with_options(model, call.sending)
            try:
                token_ids = _prompt_ids(of_call, session, call, turn, index)
                num_output = _num_output(of_call, session, call, turn, index)
            except LayoutError as error:
                losses[f"calls left out, the first {call_name(session, index)}: {error}"] += 1
                continue
            if token_ids:
                yield Encoded(session, index, token_ids, num_output)


def _prompt_ids(
    model: Model, session: Session, call: Call, turn: Turn, index: int
) -> Sequence[int]:
    if call.sending.token_ids is not None:
        return call.sending.token_ids
    return Whole(model, session).prompt(turn, call, index).token_ids


def _num_output(model: Model, session: Session, call: Call, turn: Turn, index: int) -> int:
    """As reported, else of the recorded ids, else as the tokenizer spells the recorded reply."""
    if call.usage.completion_tokens is not None:
        return call.usage.completion_tokens
    if call.sending.reply_ids is not None:
        return len(call.sending.reply_ids)
    if call.reply is None:
        return 0
    return len(model.recorded_reply(turn, call_time_s(session, call, index), call.reply))


def _with_options(model: Model, sending: Sending) -> Model:
    """The model with what the request itself told its chat template (vLLM: chat_template_kwargs,
    and reasoning_effort as one of them)."""
    given = sending.options.get("chat_template_kwargs")
    arguments = dict(given) if isinstance(given, dict) else {}
    if isinstance(effort := sending.options.get("reasoning_effort"), str):
        arguments["reasoning_effort"] = effort
    return replace(model, arguments={**model.arguments, **arguments}) if arguments else model


def _cache_of(sending: Sending) -> str:
    """What tells two caches apart; "" where nothing is recorded."""
    if sending.model is None and not sending.salt:
        return ""
    return f"{sending.model or ''}\n{sending.salt or ''}"
