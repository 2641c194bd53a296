"""What a session remembers: a tree of prompts and replies, as ids.

    Turn (prompt) -> Reply -> Turn -> Reply -> ...        one agent, call after call
                  \\> Reply                                best of n: one prompt, several replies
                  \\> Reply -> Turn, Turn                  a client that edits: two turns behind one

Each holds only what it adds to its parent, so a session of n tokens takes n ids. A reply's chain of
ids is the prompt that a call behind it starts with. Nothing here changes once a reply has ended.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Key = bytes  # 16 bytes: a chained digest of all messages up to a place
Scope = bytes  # 16 bytes: tenant and model; nothing is found from another


def no_ids() -> "array[int]":
    return array("I")


@dataclass(slots=True, eq=False)
class Turn:
    """One prompt. `messages`: JSON list of the messages that it adds; `num_messages`: all of them
    up to its end, the parents' included. `spans`: see pack_spans; `hashes`: 16 bytes for each block
    that its ids complete. `head`: for a first turn what the rest is rendered with, JSON; else b"".
    `root`: digest of that head. `record`: JSON of what is known of the call, b"" until it ended.
    """

    turn_id: int
    session_id: str
    scope: Scope
    parent: "Reply | None"
    key: Key
    root: bytes
    head: bytes
    messages: bytes
    num_messages: int
    token_ids: "array[int]" = field(default_factory=no_ids)
    spans: bytes = b""
    hashes: bytes = b""
    record: bytes = b""
    created_s: float = 0.0  # wall clock
    replies: "list[Reply]" = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Reply:
    """What was sampled behind a turn. `message`: JSON of the message as the client got it, b""
    while it runs or where it broke off; then `pieces` are (ids so far, characters of content so
    far) of each piece that was forwarded, and `text` is that content.

    `finish`: OpenAI's finish_reason, "" while it runs or where it broke off. `key`: b"" without a
    message.
    """

    reply_id: int
    turn: Turn
    index: int  # which of n
    key: Key = b""
    token_ids: "array[int]" = field(default_factory=no_ids)
    hashes: bytes = b""
    message: bytes = b""
    finish: str = ""
    pieces: list[tuple[int, int]] = field(default_factory=list)
    text: str = ""
    turns: list[Turn] = field(default_factory=list)


def path_to(reply: Reply | None) -> list[Turn | Reply]:
    """From the first turn down to `reply`; empty for None."""
    found: list[Turn | Reply] = []
    while reply is not None:
        found += (reply, reply.turn)
        reply = reply.turn.parent
    return found[::-1]


def ids_of(path: "Sequence[Turn | Reply]") -> "array[int]":
    """All ids along a path."""
    ids = no_ids()
    for node in path:
        ids.extend(node.token_ids)
    return ids


def hashes_of(path: "Sequence[Turn | Reply]") -> bytes:
    """Those of all full blocks along a path."""
    return b"".join(node.hashes for node in path)


def walk(first: Turn) -> Iterator[Turn]:
    """`first` and every turn behind it, parents before children."""
    stack = [first]
    while stack:
        turn = stack.pop()
        yield turn
        stack += [child for reply in turn.replies for child in reply.turns]
