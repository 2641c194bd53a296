"""Rules on the cache breakpoints (cache_control) of a body for Anthropic; figures from the price
book. Servers of other models take the same form and cache without being asked: they are left out.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from duramen.experiments.importers.anthropic_body import is_anthropic_body
from duramen.experiments.importers.body import MARK
from duramen.experiments.lint.json_places import Path
from duramen.experiments.prices.book import Book
from duramen.experiments.prices.read import packaged_book
from duramen.experiments.prices.rules import CacheRules
from duramen.experiments.trajectory import Sending
from duramen.experiments.why.provider import provider_of

Placed = tuple[str, Path, str]  # rule, path, message
CHARS_PER_TOKEN = 8  # more than any text has, so that a prompt this long is surely cached
REPLY = "(of the assistant)"  # no key of the API
Block = tuple[Path, Mapping[str, Any]]


def seen_in_marks(body: Mapping[str, Any], sending: Sending) -> Iterator[Placed]:
    model = (sending.model or "claude").lower()
    if not is_anthropic_body(body) or "claude" not in model:
        return
    provider = provider_of(sending, _book())
    if provider is None:
        return
    rules = provider.rules[0]
    blocks = list(_blocks(body))
    marked = [i for i, (_, block) in enumerate(blocks) if isinstance(block.get(MARK), dict)]
    is_automatic = isinstance(body.get(MARK), dict)
    if is_automatic and blocks:
        marked = sorted({*marked, len(blocks) - 1})
    least = min(rule.min_tokens for rule in provider.rules)
    yield from _too_many(body, blocks, marked, rules, is_automatic)
    yield from _far(blocks, marked, rules)
    sizes = [_num_chars(block) for _, block in blocks]
    if not marked and sum(sizes) >= CHARS_PER_TOKEN * max(r.min_tokens for r in provider.rules):
        what = f"no cache_control in a body of {sum(sizes):,} characters"
        yield "cache-mark-missing", (), what
    if marked and (num_bytes := sum(_num_bytes(b) for _, b in blocks[: marked[-1] + 1])) < least:
        what = f"{num_bytes} bytes up to the last breakpoint are less than {least} tokens"
        yield "cache-below-minimum", blocks[marked[-1]][0], what


def _too_many(
    body: Mapping[str, Any],
    blocks: list[Block],
    marked: list[int],
    rules: CacheRules,
    is_automatic: bool,
) -> Iterator[Placed]:
    num = sum(isinstance(b.get(MARK), dict) for _, b in blocks) + is_automatic
    if num > rules.max_breakpoints and marked:
        at = marked[min(rules.max_breakpoints, len(marked) - 1)]
        what = f"{num} cache breakpoints; the API takes {rules.max_breakpoints}"
        yield "cache-marks-too-many", blocks[at][0], what


def _far(blocks: list[Block], marked: list[int], rules: CacheRules) -> Iterator[Placed]:
    """The prompt of the call before ended in front of the newest reply. Where that call marked its
    last block, a breakpoint of this one must stand within reach of it, itself counted."""
    reach = rules.lookback_positions
    if reach is None or not marked:
        return
    num_behind = len(blocks) - 1 - marked[-1]
    if num_behind >= reach:
        what = f"{num_behind} blocks stand behind the last breakpoint"
        yield "cache-mark-far", blocks[marked[-1]][0], what
        return
    ended = _end_before_reply(blocks)
    behind = [at for at in marked if ended is not None and at >= ended]
    if ended is not None and behind and behind[0] - ended >= reach:
        what = f"{behind[0] - ended} blocks are new up to the breakpoint, which looks back {reach}"
        yield "cache-mark-far", blocks[behind[0]][0], what


def _end_before_reply(blocks: list[Block]) -> int | None:
    """The last block before the newest reply of the assistant; None if there is none."""
    replies = [path[1] for path, block in blocks if block.get(REPLY)]
    if not replies:
        return None
    return (
        next(i for i, (path, _) in enumerate(blocks) if path[:2] == ("messages", replies[-1])) - 1
    )


def _blocks(body: Mapping[str, Any]) -> Iterator[Block]:
    """Tools, system blocks and content blocks, in the order of the prompt."""
    for index, tool in enumerate(_list(body.get("tools"))):
        if isinstance(tool, dict):
            yield ("tools", index), tool
    yield from _content(("system",), body.get("system"))
    for index, message in enumerate(_list(body.get("messages"))):
        if isinstance(message, dict):
            is_reply = message.get("role") == "assistant"
            for path, block in _content(("messages", index, "content"), message.get("content")):
                yield path, {**block, REPLY: True} if is_reply else block


def _content(path: Path, content: Any) -> Iterator[Block]:
    if isinstance(content, str):
        yield path, {"type": "text", "text": content}
    for index, block in enumerate(_list(content)):
        if isinstance(block, dict):
            yield (*path, index), block


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _num_chars(value: Any) -> int:
    """Of all text in it."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_num_chars(item) for item in value.values())
    return sum(map(_num_chars, value)) if isinstance(value, list) else 0


def _num_bytes(value: Any) -> int:
    """At most so many tokens: a token stands for a byte at least. Keys, marks and what the provider
    adds around a block are counted generously."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace")) + 16
    if isinstance(value, dict):
        return 64 + sum(len(str(key)) + 16 + _num_bytes(item) for key, item in value.items())
    return 16 + sum(map(_num_bytes, value)) if isinstance(value, list) else 16


@cache
def _book() -> Book:
    return packaged_book()
