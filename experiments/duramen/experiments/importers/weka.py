"""Weka's kv-cache-tester traces: one session per document, prompts as block hash ids, no text.

{"id", "block_size", "hash_id_scope", "requests": [...]}, where a request is
{"t": seconds, "type": "n" or "s", "model", "in": tokens, "out": tokens, "hash_ids": [...]}
or a subagent: {"type": "subagent", "t": seconds, "requests": [...]}. Type s was streamed, n was not
(callanjfox/kv-cache-tester, docs/trace_replay_tester.md); both are served alike. The clock of a
subagent starts at 0, so its requests come at its own t plus theirs, among the parent's.

A hash id stands for one full block and everything before it. A rest of less than a block bears no
id in the published files; an id for it is taken where there is one. Ids of scope `local`, also
where no scope is given, mean something inside their session only, those of scope `global`
everywhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.messages import check_object, fail
from duramen.experiments.importers.mooncake import Chains
from duramen.layout.errors import TrajectoryError

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
Positive = Annotated[int, msgspec.Meta(ge=1, lt=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
FormT = TypeVar("FormT")


class _Head(msgspec.Struct):
    block_size: Positive
    requests: list[Any]
    hash_id_scope: Literal["local", "global"] | None = None


class _Subagent(msgspec.Struct):
    t: Seconds
    requests: list[Any]


class _Request(msgspec.Struct):
    t: Seconds
    type: Literal["n", "s"]
    model: str
    hash_ids: list[int]
    num_tokens: Positive = msgspec.field(name="in")
    num_output_tokens: Count = msgspec.field(name="out")


@dataclass(frozen=True, slots=True)
class WekaRequest:
    """`hash_ids` cover the full blocks of the prompt, or all of it. Time is the session's own."""

    time_s: float
    model: str
    num_tokens: int
    num_output_tokens: int
    hash_ids: list[int]


@dataclass(frozen=True)
class WekaSession:
    """One agent with its subagents; `requests` in the order of time."""

    where: str
    block_size: int
    has_global_ids: bool
    requests: tuple[WekaRequest, ...]


def is_weka(value: Any) -> bool:
    return isinstance(value, dict) and {"requests", "block_size"} <= value.keys()


def read_weka(documents: Iterator[Document], global_chains: Chains) -> Iterator[WekaSession]:
    """Yield the sessions. `global_chains` knows the ids of scope `global` from other files.

    Raises TrajectoryError, with the request's place, at one that is broken or whose ids do not
    chain as those before did.
    """
    for where, value in documents:
        head = _convert(value, _Head, where, "no Weka trace")
        is_global = head.hash_id_scope == "global"
        chains = global_chains if is_global else Chains()
        requests = []
        for field, request in _requests(head.requests, where, "requests", 0.0):
            _check_blocks(request, head.block_size, where, field)
            chains.check(request.hash_ids, f"{where}: {field}")
            requests.append(request)
        requests.sort(key=lambda request: request.time_s)
        yield WekaSession(where, head.block_size, is_global, tuple(requests))


def _requests(
    items: list[Any], where: str, field: str, start_s: float
) -> Iterator[tuple[str, WekaRequest]]:
    for index, item in enumerate(items):
        place = f"{field}[{index}]"
        if check_object(item, where, place).get("type") == "subagent":
            subagent = _convert(item, _Subagent, where, f"{place} is no subagent")
            inner = f"{place}.requests"
            yield from _requests(subagent.requests, where, inner, start_s + subagent.t)
            continue
        request = _convert(item, _Request, where, f"{place} is no request")
        yield (
            place,
            WekaRequest(
                start_s + request.t,
                request.model,
                request.num_tokens,
                request.num_output_tokens,
                request.hash_ids,
            ),
        )


def _check_blocks(request: WekaRequest, block_size: int, where: str, field: str) -> None:
    num_full, rest = divmod(request.num_tokens, block_size)
    if len(request.hash_ids) not in {num_full, num_full + (rest > 0)}:
        raise fail(
            where,
            f"{field}.hash_ids",
            request.hash_ids,
            f"{num_full} ids for the full blocks of {block_size} in {request.num_tokens} tokens, "
            f"not {len(request.hash_ids)}",
        )


def _convert(value: Any, form: type[FormT], where: str, problem: str) -> FormT:
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        raise TrajectoryError(f"{where}: {problem}: {error}") from error
