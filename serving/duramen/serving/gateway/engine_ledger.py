"""The ledger of one engine's cache on the gateway's clock, fed by its KV mirror and by the calls
that are sent to it."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from duramen.layout.blocks import BlockHash
from duramen.layout.errors import ModelError
from duramen.layout.tokenizer_files import read_json
from duramen.serving.gateway.serve_config import ServeConfig
from duramen.serving.gateway.sessions.conversation import Opened
from duramen.serving.gateway.sessions.records import Scope
from duramen.serving.kv.arch import Architecture
from duramen.serving.kv.footprint import Footprint, KvDtype
from duramen.serving.kv.held import Chain
from duramen.serving.kv.ledger import Held, Ledger, Owner
from duramen.serving.kv.pages import lay_out
from duramen.serving.kv.step_time import StepTime
from duramen.serving.vllm.protocol import EngineInfo


@dataclass(frozen=True)
class EngineLedger:
    """Watches a mirror. `pool_bytes`: of the whole cache, None if it is not known; `step_time`:
    what steps take on this engine, None if it is not known."""

    ledger: Ledger
    pool_bytes: int | None
    step_time: StepTime | None

    def stored(self, block: BlockHash, parent: BlockHash | None) -> None:
        self.ledger.store(block, parent, time.monotonic())

    def removed(self, block: BlockHash) -> None:
        self.ledger.remove(block, time.monotonic())

    def cleared(self) -> None:
        self.ledger.clear(time.monotonic())

    def sent(self, opened: Opened, tenant: str) -> Chain:
        session = (opened.turn.scope, opened.turn.session_id)
        now_s = time.monotonic()
        return self.ledger.sent(session, tenant, opened.blocks, opened.zone_tokens, now_s)

    def ended(self, chain: Chain) -> None:
        self.ledger.ended(chain, time.monotonic())

    def leave(self, scope: Scope, session_id: str) -> None:
        self.ledger.leave((scope, session_id), time.monotonic())

    def held(self) -> dict[Owner, Held]:
        return self.ledger.held(time.monotonic())

    def page(self, scope: Scope, session_id: str) -> dict[str, Any]:
        """Of a session, as JSON."""
        session, now_s = (scope, session_id), time.monotonic()
        return {
            "zones": {
                zone.value: {"bytes": round(held.num_bytes), "byte_seconds": held.byte_seconds}
                for zone, held in self.ledger.held_by(session, now_s).items()
            },
            "idle": self._idle(session, now_s),
        }

    def _idle(self, session: tuple[Scope, str], now_s: float) -> dict[str, Any] | None:
        warmth = self.ledger.warmth(session, now_s)
        if warmth is None:
            return None
        times, pool = self.step_time, self.pool_bytes
        return {
            "seconds": warmth.idle_s,
            "own_bytes": round(warmth.own_bytes),
            "own_byte_seconds": warmth.idle_byte_seconds,
            "cost_s": warmth.idle_cost_s(pool) if pool else None,
            "prefill_s": warmth.prefill_s(times) if times else None,
            "break_even_s": warmth.break_even_s(times, pool) if times and pool else None,
        }


def open_ledger(info: EngineInfo, block_size: int, config: ServeConfig) -> EngineLedger | None:
    """An empty one; None where the bytes of a block are not known."""
    num_bytes = block_bytes(read_json(config.model_dir / "config.json"), block_size, info.kv_dtype)
    if num_bytes is None:
        return None
    itl = config.vllm.itl if config.vllm else None
    return EngineLedger(
        Ledger(block_size, num_bytes),
        pool_bytes=info.num_kv_blocks * num_bytes if info.num_kv_blocks else None,
        step_time=itl.load_timing().step if itl else None,
    )


def block_bytes(config: Mapping[str, Any], block_size: int, kv_dtype: str) -> int | None:
    """Of one block in all layers, however many GPUs they stand on; None where the model is not
    understood, or keeps several kinds of blocks."""
    try:
        footprint = Footprint.of(Architecture.from_config(config), kv_dtype=KvDtype(kv_dtype))
        pages = lay_out(footprint, block_size)
    except (ModelError, ValueError):  # ValueError: a format that is not known here
        return None
    return pages.bytes_per_block if len(pages.groups) == 1 else None


def held_in_all(ledgers: Iterable[EngineLedger]) -> dict[Owner, Held]:
    total: dict[Owner, Held] = {}
    for ledger in ledgers:
        for owner, held in ledger.held().items():
            before = total.get(owner, Held(0.0, 0.0))
            total[owner] = Held(
                before.num_bytes + held.num_bytes, before.byte_seconds + held.byte_seconds
            )
    return total
