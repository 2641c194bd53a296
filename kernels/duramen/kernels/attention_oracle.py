"""Attention in plain torch, from its definition: the slow twin that every kernel must agree with.

Tokens come first in every tensor, as in vLLM. Sums run in float32, in float64 where the queries
are float64, and results have that dtype. Rows of a result are independent of each other, so a
prefill in chunks equals the whole, and parts of the keys can be attended to alone and merged.

Sources: paged KV, vLLM (arXiv 2309.06180); MLA and its absorbed form, DeepSeek-V2 (2405.04434);
merging by log-sum-exp, Milakov and Gimelshein (1805.02867) and FlashInfer's cascade (2501.01005);
soft cap, Gemma 2 (2408.00118); sinks, the gpt-oss model card (2508.10925).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rules:
    """Which tokens a token sees, and what a score counts. It sees itself and those before it.

    `scale` of scores: None is 1 / sqrt(head_dim). `window`: the last so many tokens, itself
    included. `chunk`: only tokens of its own chunk, chunks of so many being laid from position 0.
    `soft_cap`: a score s counts cap * tanh(s / cap).
    """

    scale: float | None = None
    window: int | None = None
    chunk: int | None = None
    soft_cap: float | None = None

    def __post_init__(self) -> None:
        for name in ("scale", "window", "chunk", "soft_cap"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0, not {value}")

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Of positions [num_new] and [num_keys]: bool [num_new, num_keys]."""
        query, key = queries[:, None], keys[None, :]
        seen = key <= query
        if self.window is not None:
            seen &= key > query - self.window
        if self.chunk is not None:
            seen &= key // self.chunk == query // self.chunk
        return seen

    def with_scale_of(self, head_dim: int) -> "Rules":
        return self if self.scale is not None else replace(self, scale=head_dim**-0.5)


CAUSAL = Rules()


@dataclass(frozen=True)
class KeyValues:
    """Of consecutive tokens, the first at position `start`.

    keys [num_tokens, num_kv_heads, head_dim], values [num_tokens, num_kv_heads, v_head_dim].
    """

    keys: Tensor
    values: Tensor
    start: int = 0

    def __post_init__(self) -> None:
        if self.keys.shape[:2] != self.values.shape[:2]:
            shapes = f"{list(self.keys.shape)} and {list(self.values.shape)}"
            raise ValueError(f"keys and values are of other tokens or heads: {shapes}")

    @property
    def positions(self) -> Tensor:
        end = self.start + len(self.keys)
        return torch.arange(self.start, end, device=self.keys.device)

    def part(self, begin: int, end: int) -> "KeyValues":
        """Of the positions [begin, end)."""
        inside = slice(begin - self.start, end - self.start)
        return KeyValues(self.keys[inside], self.values[inside], begin)


@dataclass(frozen=True)
class Attended:
    """output [num_new, num_heads, v_head_dim]; lse [num_new, num_heads], the log of the sum of
    exp(score). A query that saw no key has output 0 and lse -inf."""

    output: Tensor
    lse: Tensor


def attend(query: Tensor, positions: Tensor, kv: KeyValues, rules: Rules = CAUSAL) -> Attended:
    """query [num_new, num_heads, head_dim], its tokens at `positions` [num_new], whichever.

    Query head h reads KV head h // (num_heads / num_kv_heads): MHA, GQA and MQA alike.
    Raises ValueError where heads or head sizes do not fit.
    """
    num_heads, head_dim = query.shape[1:]
    num_kv_heads = kv.keys.shape[1]
    if num_heads % num_kv_heads or head_dim != kv.keys.shape[2]:
        shapes = f"{list(query.shape)} and {list(kv.keys.shape)}"
        raise ValueError(f"queries and keys do not fit: {shapes}")
    dtype = _sum_dtype(query)
    keys, values = (
        each.to(dtype).repeat_interleave(num_heads // num_kv_heads, dim=1)
        for each in (kv.keys, kv.values)
    )
    scores = torch.einsum("qhd,khd->qhk", query.to(dtype), keys)
    scores = scores * rules.with_scale_of(head_dim).scale
    if rules.soft_cap is not None:
        scores = rules.soft_cap * torch.tanh(scores / rules.soft_cap)
    seen = rules.sees(positions, kv.positions)
    scores = scores.masked_fill(~seen[:, None, :], -torch.inf)
    lse = torch.logsumexp(scores, dim=-1)
    weights = _exp_relative(scores, lse[..., None])
    return Attended(torch.einsum("qhk,khd->qhd", weights, values), lse)


def merge(parts: Sequence[Attended]) -> Attended:
    """The same queries' attention over the union of disjoint sets of keys, from that over each."""
    lses = torch.stack([part.lse for part in parts])
    lse = torch.logsumexp(lses, dim=0)
    weights = _exp_relative(lses, lse)[..., None]
    outputs = torch.stack([part.output for part in parts])
    return Attended((weights * outputs).sum(dim=0), lse)


def with_sinks(attended: Attended, sinks: Tensor) -> Attended:
    """As if each head had seen one more key of logit `sinks` [num_heads] and value 0.

    The logit is neither scaled nor capped. Once, after all parts are merged.
    """
    lse = torch.logaddexp(attended.lse, sinks.to(attended.lse.dtype))
    return Attended(attended.output * torch.exp(attended.lse - lse)[..., None], lse)


def gather_pages(cache: Tensor, block_table: Tensor, num_tokens: int) -> Tensor:
    """cache [num_blocks, block_size, ...] -> [num_tokens, ...], in the order of `block_table`.

    The table may be longer than needed. Raises ValueError where it is too short.
    """
    block_size = cache.shape[1]
    num_blocks = -(-num_tokens // block_size)
    if num_blocks > len(block_table):
        raise ValueError(
            f"{num_tokens} tokens need {num_blocks} blocks of {block_size}, the block table has "
            f"{len(block_table)}"
        )
    return cache[block_table[:num_blocks]].flatten(0, 1)[:num_tokens]


@dataclass(frozen=True)
class Scheduled:
    """One sequence of a batch: `num_tokens` stand in the cache, the last `num_new` of them ask."""

    block_table: Tensor
    num_new: int
    num_tokens: int

    @property
    def positions(self) -> Tensor:
        begin = self.num_tokens - self.num_new
        return torch.arange(begin, self.num_tokens, device=self.block_table.device)


def attend_paged(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    batch: Sequence[Scheduled],
    rules: Rules = CAUSAL,
) -> Attended:
    """Each sequence over its own blocks; the rows of `query` are those of the batch in turn.

    key_cache [num_blocks, block_size, num_kv_heads, head_dim], value_cache alike.
    Raises ValueError where `query` has other rows than the batch, or a block table is too short.
    """
    lengths = [sequence.num_new for sequence in batch]
    if sum(lengths) != len(query):
        raise ValueError(f"{len(query)} queries, but the batch has {sum(lengths)} new tokens")
    attended = [
        attend(rows, sequence.positions, _paged(key_cache, value_cache, sequence), rules)
        for rows, sequence in zip(query.split(lengths), batch, strict=True)
    ]
    return Attended(
        torch.cat([each.output for each in attended]), torch.cat([each.lse for each in attended])
    )


def _paged(key_cache: Tensor, value_cache: Tensor, sequence: Scheduled) -> KeyValues:
    table, num_tokens = sequence.block_table, sequence.num_tokens
    return KeyValues(
        gather_pages(key_cache, table, num_tokens), gather_pages(value_cache, table, num_tokens)
    )


@dataclass(frozen=True)
class UpProjection:
    """From MLA's latent to each head. key [num_heads, qk_nope_head_dim, kv_lora_rank],
    value [num_heads, v_head_dim, kv_lora_rank]."""

    key: Tensor
    value: Tensor

    @classmethod
    def from_kv_b_proj(
        cls, weight: Tensor, num_heads: int, qk_nope_head_dim: int
    ) -> "UpProjection":
        """weight [num_heads * (qk_nope_head_dim + v_head_dim), kv_lora_rank], as checkpoints have
        it."""
        by_head = weight.unflatten(0, (num_heads, -1))
        return cls(by_head[:, :qk_nope_head_dim], by_head[:, qk_nope_head_dim:])

    def to(self, dtype: torch.dtype) -> "UpProjection":
        return UpProjection(self.key.to(dtype), self.value.to(dtype))


@dataclass(frozen=True)
class Latents:
    """What MLA caches of consecutive tokens, the first at position `start`:
    rows [num_tokens, kv_lora_rank + qk_rope_head_dim], the normalised latent and the rotated key.
    """

    rows: Tensor
    start: int = 0


def attend_mla(
    query: Tensor, positions: Tensor, latents: Latents, up: UpProjection, rules: Rules = CAUSAL
) -> Attended:
    """Keys and values are projected up for every head: MHA. What a prefill computes.

    query [num_new, num_heads, qk_nope_head_dim + qk_rope_head_dim], the latter part rotated.
    """
    up = up.to(_sum_dtype(query))
    num_heads, _, rank = up.key.shape
    rows = latents.rows.to(up.key.dtype)
    latent, rotated = rows[:, :rank], rows[:, rank:]
    keys = torch.einsum("tr,hdr->thd", latent, up.key)
    keys = torch.cat([keys, rotated[:, None, :].expand(-1, num_heads, -1)], dim=-1)
    values = torch.einsum("tr,hdr->thd", latent, up.value)
    return attend(query, positions, KeyValues(keys, values, latents.start), rules)


def attend_mla_absorbed(
    query: Tensor, positions: Tensor, latents: Latents, up: UpProjection, rules: Rules = CAUSAL
) -> Attended:
    """The same, with queries projected into the latent and its sums projected up: MQA of one KV
    head, over what is cached as it stands. What a decode computes."""
    up = up.to(_sum_dtype(query))
    _, nope_head_dim, rank = up.key.shape
    own, rotated = query.to(up.key.dtype).tensor_split([nope_head_dim], dim=-1)
    absorbed = torch.cat([torch.einsum("qhd,hdr->qhr", own, up.key), rotated], dim=-1)
    keys = latents.rows[:, None, :]
    kv = KeyValues(keys, keys[..., :rank], latents.start)
    attended = attend(absorbed, positions, kv, rules.with_scale_of(query.shape[2]))
    return Attended(torch.einsum("qhr,hdr->qhd", attended.output, up.value), attended.lse)


def _sum_dtype(query: Tensor) -> torch.dtype:
    return torch.promote_types(query.dtype, torch.float32)


def _exp_relative(logits: Tensor, lse: Tensor) -> Tensor:
    """exp(logits - lse), and 0 where nothing was seen: there both are -inf."""
    return torch.exp(logits - lse.masked_fill(lse.isneginf(), 0.0))
