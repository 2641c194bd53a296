"""From a request to the prompt that is sent, and from what comes back to what is remembered."""

import datetime
import secrets
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from duramen.layout.blocks import BlockHash, block_hashes, common_prefix, salted_root
from duramen.layout.chat_messages import template_tools
from duramen.layout.fingerprint import chain, head_digest, message_prints
from duramen.layout.stream import Sampled
from duramen.layout.template import ChatTemplate
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.transcript import (
    Deviation,
    Frozen,
    Transcript,
    partial_ids,
    reply_ids,
)
from duramen.layout.zones import Prompt, Zone
from duramen.serving.gateway.policies.align import pad_root
from duramen.serving.gateway.sessions.head import Head, began_at, head_of, root_digest
from duramen.serving.gateway.sessions.recognise import (
    Edit,
    Match,
    Message,
    Nearest,
    asked,
    nearest,
    recognise,
)
from duramen.serving.gateway.sessions.records import (
    Reply,
    Scope,
    Turn,
    hashes_of,
    ids_of,
    path_to,
)
from duramen.serving.gateway.sessions.spans import pack_spans
from duramen.serving.gateway.sessions.tree import Session, SessionTree
from duramen.serving.kv.seen import HASH_BYTES, split_hashes

Relation = Literal["new", "extends", "retries", "branches"]


@dataclass(frozen=True)
class Model:
    """How the served model reads messages. `history`: see layout.transcript. `digest`: of tokenizer
    and template, with which other ids were made than with any other."""

    tokenizer: Tokenizer
    template: ChatTemplate
    turn_end_ids: frozenset[int]
    block_size: int
    history: Literal["verbatim", "template"] = "verbatim"

    @cached_property
    def digest(self) -> bytes:
        made_with = msgspec.json.encode([self.tokenizer.spec, self.template.source])
        return blake2b(made_with, digest_size=16).digest()


@dataclass(frozen=True)
class ConversationRequest:
    """`suffix` goes behind the last message in this call; it is no part of what the client says.
    `align_unit`: end a new session's root at a multiple of it where that pays, 0: never."""

    scope: Scope
    salt: str
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    session: str | None = None
    suffix: str = ""
    align_unit: int = 0


@dataclass(frozen=True)
class Opened:
    """A call that can be sent. Its first `num_recorded` ids stood in this session before; `hashes`
    are those of the prompt's full blocks, concatenated."""

    turn: Turn
    prompt: Prompt
    num_recorded: int
    hashes: bytes
    relation: Relation
    edit: Edit | None
    other_head: Literal["tools", "arguments"] | None
    rewritten: bool
    root_padding: int
    deviations: tuple[Deviation, ...]
    zone_tokens: Mapping[Zone, int]

    @cached_property
    def blocks(self) -> list[BlockHash]:
        """`hashes` one by one."""
        return list(split_hashes(self.hashes))


class Conversations:
    """Reads and writes the tree of sessions. Not for several threads."""

    def __init__(self, model: Model, tree: SessionTree) -> None:
        self.model = model
        self.tree = tree
        self._held: dict[int, Session] = {}  # by turn

    def open(self, request: ConversationRequest, now: datetime.datetime) -> Opened:
        """Recognise the request and lay its prompt out. Raises LayoutError."""
        self.model.tokenizer.cache.owner = request.scope
        root = root_digest(request.tools, request.arguments, request.salt)
        question = asked(request.scope, root, request.messages, request.session)
        match = recognise(self.tree, question)
        near = nearest(self.tree, match, question)
        relation = _relation(match, near, question.keys[-1])
        parent = match.reply
        if parent is not None and match.seen is not None:
            parent = self._as_seen(parent, match, request, question.keys)
        new = _with_suffix(request.messages[match.num_messages :], request.suffix)
        past_ids = ids_of(path_to(parent))
        padding, num_past = 0, len(past_ids)
        past_messages: list[Message] = []
        if parent is None:
            began = began_at(near.turn, now)
            head, transcript, prompt = self._start(request, new, began)
            padded = self._padded(request, new, prompt)
            if padded is not None:
                num_before, new = len(prompt.token_ids), padded
                head, transcript, prompt = self._start(request, new, began)
                padding = len(prompt.token_ids) - num_before
        else:
            head, transcript, past_messages = self._resume(parent, past_ids)
            prompt = transcript.extend(self.model.template.prepared(new))
        session_id = _session_of(near.turn, parent) or request.session
        recorded = common_prefix(list(prompt.token_ids), _ids_to(near.turn, parent, past_ids))
        rewritten = recorded < num_past
        if rewritten:  # by the template: a first turn of its own
            parent, new, num_past = None, [*past_messages, *new], 0
        head.generation_prompt = str.__str__(transcript.generation_prompt)
        past = hashes_of(path_to(parent))
        turn = Turn(
            turn_id=_new_id(),
            session_id=session_id or f"s-{secrets.token_hex(8)}",
            scope=request.scope,
            parent=parent,
            key=question.keys[-1],
            root=root,
            head=b"" if parent is not None else msgspec.json.encode(head),
            messages=msgspec.json.encode(new),
            num_messages=len(request.messages),
            token_ids=array("I", prompt.token_ids[num_past:]),
            spans=pack_spans(s for s in prompt.spans if s.end > num_past or not num_past),
            hashes=self._hashes(prompt.token_ids, past, request.salt),
            created_s=now.timestamp(),
        )
        return Opened(
            turn=turn,
            prompt=prompt,
            num_recorded=recorded,
            hashes=past + turn.hashes,
            relation=relation,
            edit=near.edit,
            other_head=_other_head(match, request),
            rewritten=rewritten,
            root_padding=padding,
            deviations=tuple(transcript.deviations),
            zone_tokens=_zone_tokens(prompt),
        )

    @contextmanager
    def held(self, opened: Opened) -> Iterator[None]:
        """Its session stays in memory while the call waits and runs."""
        turn = opened.turn
        self._held[turn.turn_id] = self.tree.hold(turn.scope, turn.session_id)
        try:
            yield
        finally:
            self.tree.let_go(self._held.pop(turn.turn_id))

    def record(self, opened: Opened, tenant: str) -> Session:
        """A call that is held goes out: its turn is part of the session."""
        parent = opened.turn.parent
        if parent is not None and parent not in parent.turn.replies:  # see _as_seen
            self.tree.add_reply(parent)
            self.tree.finish(parent)
        self.tree.add_turn(opened.turn, tenant)
        return self._held[opened.turn.turn_id]

    def ended(self, opened: Opened, record: bytes) -> None:
        """The call has ended; `record`: JSON of what is known of it."""
        opened.turn.record = record
        self.tree.call_ended(opened.turn)

    def scope_of(self, tenant: str, model_name: str) -> Scope:
        """Where a tenant's sessions are found."""
        named = msgspec.json.encode([tenant, model_name, self.model.digest.hex()])
        return blake2b(named, digest_size=16).digest()

    def num_tokens(self, scope: Scope, text: str) -> int:
        self.model.tokenizer.cache.owner = scope
        return len(self.model.tokenizer.encode_text(text))

    def session_tools(
        self, scope: Scope, messages: Sequence[Mapping[str, Any]], session: str | None
    ) -> list[dict[str, Any]] | None:
        """The tools of the conversation that `messages` go on with, whatever the request's are."""
        match = recognise(self.tree, asked(scope, None, messages, session))
        if match.reply is None:
            return None
        return head_of(match.reply.turn).tools

    def begin_reply(self, turn: Turn, index: int) -> Reply:
        reply = Reply(_new_id(), turn, index)
        self.tree.add_reply(reply)
        return reply

    def add_piece(self, reply: Reply, token_ids: Sequence[int], content: str) -> None:
        """Ids that were sampled and the content that they added; write them before sending."""
        reply.token_ids.extend(token_ids)
        reply.text += content
        reply.pieces.append((len(reply.token_ids), len(reply.text)))
        self.tree.store.add_piece(reply, token_ids, content)

    def finish(self, reply: Reply, message: Message, finish: str, stop: str | int | None) -> None:
        """The reply is whole: from now on requests are recognised behind it. `stop`: the stop
        string or token that ended it and that the client does not see."""
        turn = reply.turn
        self.model.tokenizer.cache.owner = turn.scope
        ids = list(reply.token_ids)
        if isinstance(stop, str):
            ids = reply_ids(self.model.tokenizer, ids, stop)
        elif stop is not None and ids[-1:] == [stop] and not self._ends_turns(stop):
            ids.pop()
        reply.token_ids = array("I", ids)
        reply.key = chain(message_prints([message]), before=turn.key)[0]
        reply.message = msgspec.json.encode(message)
        reply.finish = finish
        reply.pieces, reply.text = [], ""
        self._hash_reply(reply)
        self.tree.finish(reply)

    def _ends_turns(self, token_id: int) -> bool:
        return token_id in self.model.tokenizer.control_ids | self.model.turn_end_ids

    def _as_seen(
        self, broken: Reply, match: Match, request: ConversationRequest, keys: Sequence[bytes]
    ) -> Reply:
        """The part of a reply that the client has, as a reply of its own; part of the session from
        `record` on."""
        assert match.seen is not None
        reply = Reply(_new_id(), broken.turn, broken.index)
        reply.token_ids = array("I", self._seen_ids(broken, match.said, match.seen))
        reply.key = keys[match.num_messages - 1]
        reply.message = msgspec.json.encode(request.messages[match.num_messages - 1])
        reply.finish = "broken_off"
        self._hash_reply(reply)
        return reply

    def _seen_ids(self, reply: Reply, said: str, end: int) -> list[int]:
        """The ids of the first `end` characters of what the reply `said`."""
        ids, tokenizer = list(reply.token_ids), self.model.tokenizer
        if reply.message:  # its pieces are forgotten
            spelled = tokenizer.decode(ids)
            return partial_ids(tokenizer, ids, spelled[: spelled.find(said)] + said[:end])
        num_ids = num_characters = 0
        for ids_so_far, characters_so_far in reply.pieces:
            if characters_so_far > end or num_characters == end:
                break
            num_ids, num_characters = ids_so_far, characters_so_far
        shown = tokenizer.decode(ids[:num_ids]).rstrip("\ufffd")
        return partial_ids(tokenizer, ids[:num_ids], shown + said[num_characters:end])

    def _start(
        self,
        request: ConversationRequest,
        messages: Sequence[Mapping[str, Any]],
        now: datetime.datetime,
    ) -> tuple[Head, Transcript, Prompt]:
        tools = [dict(tool) for tool in request.tools]
        head = Head(tools, dict(request.arguments), request.salt, now.isoformat())
        transcript = self._transcript(head)
        prompt = transcript.start(self.model.template.prepared(messages))
        head.root_tokens = sum(s.num_tokens for s in prompt.spans if s.zone is Zone.ROOT)
        return head, transcript, prompt

    def _padded(
        self, request: ConversationRequest, messages: Sequence[Mapping[str, Any]], prompt: Prompt
    ) -> list[Mapping[str, Any]] | None:
        """`messages` with a root that ends at a boundary, None where that does not pay."""
        if not request.align_unit or not prompt.spans:
            return None
        count = self.model.tokenizer.encode_text
        return pad_root(
            messages, shared_tokens(prompt), request.align_unit, lambda text: len(count(text))
        )

    def _resume(self, parent: Reply, ids: "array[int]") -> tuple[Head, Transcript, list[Message]]:
        """The transcript up to the reply, all of whose ids are `ids`, and its messages as they were
        sent."""
        path = path_to(parent)
        head = head_of(parent.turn)
        messages: list[Message] = []
        replies: list[Sampled] = []
        end = 0
        for node in path:
            start, end = end, end + len(node.token_ids)
            if isinstance(node, Turn):
                messages += msgspec.json.decode(node.messages)
            else:
                replies.append(Sampled(len(messages), start, end))
                messages.append(msgspec.json.decode(node.message))
        transcript = self._transcript(head)
        transcript.resume(
            Frozen(
                token_ids=ids,
                messages=self.model.template.prepared(messages),
                num_reply_ids=len(parent.token_ids),
                generation_prompt=head.generation_prompt,
                root_tokens=head.root_tokens,
                num_calls=len(path) // 2,
                earlier=replies[:-1] if self.model.history == "template" else (),
            )
        )
        return head, transcript, messages

    def _transcript(self, head: Head) -> Transcript:
        return Transcript(
            self.model.tokenizer,
            self.model.template,
            tools=template_tools(head.tools),
            now=datetime.datetime.fromisoformat(head.now),
            arguments=head.arguments,
            turn_end_ids=self.model.turn_end_ids,
            history=self.model.history,
        )

    def _hashes(self, token_ids: Sequence[int], past: bytes, salt: str) -> bytes:
        """Of the full blocks behind those that `past` has."""
        size = self.model.block_size
        rest = token_ids[len(past) // HASH_BYTES * size :]
        last = BlockHash(past[-HASH_BYTES:]) if past else salted_root(salt)
        return b"".join(block_hashes(rest, size, parent=last))

    def _hash_reply(self, reply: Reply) -> None:
        path = path_to(reply)
        salt = head_of(reply.turn).salt
        reply.hashes = self._hashes(ids_of(path), hashes_of(path[:-1]), salt)


def _relation(match: Match, near: Nearest, key: bytes) -> Relation:
    """`key`: of the request's last message."""
    if near.edit is not None:
        return "branches"
    if match.reply is None:
        if near.turn is None:
            return "new"
        return "retries" if near.turn.key == key else "extends"
    return "retries" if match.reply.turns else "extends"


def _ids_to(turn: Turn | None, reply: Reply | None, past_ids: "array[int]") -> list[int]:
    """All ids up to the end of `turn`, or else of `reply`: those are `past_ids`."""
    if turn is None:
        return past_ids.tolist()
    before = past_ids if turn.parent is reply else ids_of(path_to(turn.parent))
    return (before + turn.token_ids).tolist()


def _other_head(match: Match, request: ConversationRequest) -> Literal["tools", "arguments"] | None:
    """What keeps a conversation from going on that has the same messages."""
    if match.other_root is None or match.reply is not None:
        return None
    before = head_of(match.other_root.turn)
    return (
        "tools" if head_digest(before.tools, {}) != head_digest(request.tools, {}) else "arguments"
    )


def _session_of(turn: Turn | None, reply: Reply | None) -> str | None:
    found = reply.turn if reply is not None else turn
    return found.session_id if found is not None else None


def _with_suffix(messages: Sequence[Message], suffix: str) -> list[Mapping[str, Any]]:
    if not suffix or not messages:
        return list(messages)
    last = messages[-1]
    content = last.get("content")
    if isinstance(content, list):
        longer: Any = [*content, {"type": "text", "text": suffix}]
    else:
        longer = (content or "") + suffix
    return [*messages[:-1], {**last, "content": longer}]


def shared_tokens(prompt: Prompt) -> int:
    """Of a first prompt: what other sessions with the same system message and tools begin with."""
    return next((s.start for s in prompt.spans if s.source.endswith("(user)")), 0)


def _zone_tokens(prompt: Prompt) -> dict[Zone, int]:
    sizes = dict.fromkeys(Zone, 0)
    for span in prompt.spans:
        sizes[span.zone] += span.num_tokens
    return sizes


def _new_id() -> int:
    return secrets.randbits(63)
