"""A study's results as JSON (the contract of the page, too) and as Parquet."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.study.arms import Arm
from duramen.experiments.study.compare import dollars, spread, uncached
from duramen.experiments.study.results import ArmSums, LayoutResult
from duramen.experiments.trajectory import Session

MAX_LANES = 12  # sessions that are shown call by call


@dataclass(frozen=True)
class Report:
    """`facts`: engine, model, device ... as every result names them. `prices`: provider/model ->
    what the book says of it. `kv_bytes_per_token`: None where the model's shape is not known."""

    facts: Mapping[str, Any]
    sessions: Sequence[Session]
    arms: Sequence[Arm]
    results: Sequence[LayoutResult]
    prices: Mapping[str, Mapping[str, Any]]
    break_even: Mapping[str, Any]
    kv_bytes_per_token: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            **self.facts,
            "sessions": [_session_json(session) for session in self.sessions],
            "arms": [arm.label for arm in self.arms],
            "prices": self.prices,
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "layouts": {result.label: self._layout_json(result) for result in self.results},
            "lanes": self._lanes(),
            "break_even": self.break_even,
        }

    def _lanes(self) -> dict[str, Any]:
        """Calls of a few sessions of all sizes, as [prompt, cached (first arm), what broke]."""
        shown = set(_of_all_sizes(self.results[0])) if self.results else set()
        lanes: dict[str, Any] = {}
        for result in self.results:
            for row in result.calls:
                name = result.sessions[row.session].session_id
                if name in shown:
                    lane = lanes.setdefault(name, {}).setdefault(result.label, [])
                    lane.append([row.prompt_tokens, row.cached[0], row.broke_at])
        return lanes

    def _layout_json(self, result: LayoutResult) -> dict[str, Any]:
        kv_bytes = self.kv_bytes_per_token
        return {
            "is_assumed": result.is_assumed,
            "num_calls": result.num_calls,
            "has_effect": result.has_effect,
            "num_refused": result.num_refused,
            "prompt_tokens": result.prompt_tokens,
            "output_tokens": result.output_tokens,
            "min_uncached_tokens": result.min_uncached_tokens,
            "bounds": {"content": result.content, "token": result.token},
            "gaps": result.gaps,
            "alignment": self._alignment_json(result),
            "num_breaks": sum(session.num_breaks for session in result.sessions),
            "num_deviating_tokens": result.num_deviating,
            "notes": result.notes,
            "kv_token_seconds": result.kv_token_seconds,
            "kv_byte_seconds": None if kv_bytes is None else result.kv_token_seconds * kv_bytes,
            "arms": {label: _arm_json(sums) for label, sums in result.arms.items()},
            "usd": {model: str(result.usd(model)) for model in self.prices},
            "usage": result.usage,
            "against": {
                other.label: self._against(result, other)
                for other in self.results
                if other is not result
            },
            "sessions": [
                {
                    "session_id": session.session_id,
                    "num_calls": session.num_calls,
                    "prompt_tokens": session.prompt_tokens,
                    "output_tokens": session.output_tokens,
                    "min_uncached_tokens": session.prompt_tokens - session.content,
                    "num_breaks": session.num_breaks,
                    "num_trunk_changes": session.num_trunk_changes,
                    "uncached_tokens": {
                        arm.label: session.prompt_tokens - cached
                        for arm, cached in zip(self.arms, session.cached, strict=True)
                    },
                    "usd": session.usd,
                }
                for session in result.sessions
            ],
        }

    def _alignment_json(self, result: LayoutResult) -> dict[str, Any] | None:
        """`net_tokens`: what the same layout without alignment computes more, at that unit; None
        where the study has no such layout or arm."""
        if result.alignment is None:
            return None
        layout = Layout.parse(result.label)
        assert layout.align is not None
        arm = Arm(layout.align).label
        plain = replace(layout, align=None).label
        twin = next((other for other in self.results if other.label == plain), None)
        net = None
        if twin is not None and arm in result.arms:
            net = twin.arms[arm].uncached_tokens - result.arms[arm].uncached_tokens
        return {**msgspec.structs.asdict(result.alignment), "unit": layout.align, "net_tokens": net}

    def _against(self, result: LayoutResult, other: LayoutResult) -> dict[str, Any]:
        """Session by session, as a share of the other layout's cost."""
        return {
            "uncached_tokens": spread(result, other, uncached(0)).as_json(),
            "usd": {
                model: spread(result, other, dollars(model)).as_json() for model in self.prices
            },
        }

    def write_parquet(self, calls: Path, costs: Path) -> None:
        """`calls`: one row per layout and call, cached tokens in a column per arm. `costs`: one row
        per layout, session and provider/model, as a number and as exact decimal text. Each file is
        written whole or not at all."""
        for table, file in ((self._calls_table(), calls), (self._costs_table(), costs)):
            part = file.with_name(f".{file.name}.{os.getpid()}")
            pq.write_table(table, part, compression="zstd")
            part.replace(file)

    def _calls_table(self) -> pa.Table:
        rows = [
            {
                "layout": result.label,
                "session_id": result.sessions[row.session].session_id,
                "call": row.call,
                "time_s": row.time_s,
                "prompt_tokens": row.prompt_tokens,
                "output_tokens": row.output_tokens,
                "root_tokens": row.root_tokens,
                "trunk_tokens": row.trunk_tokens,
                "content_tokens": row.content,
                "token_tokens": row.token,
                "broke_at": row.broke_at,
                **{
                    f"cached_tokens ({arm.label})": hit
                    for arm, hit in zip(self.arms, row.cached, strict=True)
                },
            }
            for result in self.results
            for row in result.calls
        ]
        return pa.Table.from_pylist(rows)

    def _costs_table(self) -> pa.Table:
        schema = pa.schema(
            [
                ("layout", pa.string()),
                ("session_id", pa.string()),
                ("model", pa.string()),
                ("usd", pa.float64()),
                ("usd_exact", pa.string()),
            ]
        )
        rows = [
            {
                "layout": result.label,
                "session_id": session.session_id,
                "model": model,
                "usd": float(usd),
                "usd_exact": usd,
            }
            for result in self.results
            for session in result.sessions
            for model, usd in session.usd.items()
        ]
        return pa.Table.from_pylist(rows, schema=schema)


def _of_all_sizes(result: LayoutResult) -> list[str]:
    """At most MAX_LANES session ids, evenly over the sessions by prompt tokens."""
    ordered = sorted(result.sessions, key=lambda each: (each.prompt_tokens, each.session_id))
    num_shown = min(MAX_LANES, len(ordered))
    last = len(ordered) - 1
    places = {round(i * last / max(num_shown - 1, 1)) for i in range(num_shown)}
    return [ordered[place].session_id for place in sorted(places)]


def _session_json(session: Session) -> dict[str, Any]:
    return {
        "session_id": session.session_id,
        "num_calls": len(session.calls),
        "origins": {name: origin.value for name, origin in session.origins.items()},
    }


def _arm_json(sums: ArmSums) -> dict[str, Any]:
    return {
        "num_calls": sums.num_calls,
        "num_skipped": {"larger_than_pool": sums.num_skipped} if sums.num_skipped else {},
        "prompt_tokens": sums.prompt_tokens,
        "cached_tokens": sums.cached_tokens,
        "uncached_tokens": sums.uncached_tokens,
        "hit_rate": sums.hit_rate,
        "unit_bound": sums.unit,
        "gaps": sums.gaps,
        "devices": sums.devices,
    }
