"""One conversation as an append-only list of token ids.

What was sent or sampled is never encoded again: sampled ids stay as the model gave them, and each
call adds only the text of its new messages. Where the template would now render the past
differently, the ids stay and the deviation is named.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from duramen.layout.blocks import common_prefix
from duramen.layout.delta import Break, Delta, DeltaRenderer, Reply, common_text
from duramen.layout.encode import Encoder
from duramen.layout.errors import LayoutError
from duramen.layout.seams import SeamProver
from duramen.layout.spans import Cut, Placed, message_cuts
from duramen.layout.stream import TokenStream
from duramen.layout.template import ChatTemplate, Message
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.zones import Prompt


@dataclass(frozen=True)
class Deviation:
    """From `token` on, the template's own rendering differs from what is frozen here."""

    call: int
    token: int
    cause: str


@dataclass
class Transcript:
    """`tools`, `now` and `arguments` are fixed for the conversation; a change is another one.

    Use: prompt = start(messages); then per call sampled(...) if the engine's own reply becomes
    part of the conversation, and prompt = extend(new messages).
    """

    tokenizer: Tokenizer
    template: ChatTemplate
    tools: Sequence[Mapping[str, Any]] = ()
    now: datetime.datetime | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    independent_seams: bool = False
    turn_end_ids: frozenset[int] = frozenset()  # the engine's EOS ids, beside the tokenizer's

    def __post_init__(self) -> None:
        encoder = Encoder(SeamProver(self.tokenizer), self.independent_seams)
        self._stream = TokenStream(encoder)
        self._renderer = DeltaRenderer(
            self.template, self.tools, self.now, self.arguments, self.tokenizer.controls
        )
        self._reply: Reply | None = None
        self._sampled: list[int] = []
        self._said = ""
        self._generation_prompt = ""
        self.messages: list[Message] = []
        self.deviations: list[Deviation] = []
        self.num_calls = 0

    @property
    def token_ids(self) -> Sequence[int]:
        return self._stream.token_ids

    @property
    def num_deviating(self) -> int:
        """Ids that are not canonical because seams are independent."""
        return self._stream.num_deviating

    def start(self, messages: Sequence[Message], num_trunk: int = 0) -> Prompt:
        """The first prompt: everything rendered and encoded once. `num_trunk` messages behind the
        root are trunk. Raises TemplateError."""
        if self.num_calls:
            raise LayoutError("this transcript has started: use extend")
        text = self._renderer.full(messages, prompt=True)
        base = self._renderer.full(messages, prompt=False)
        generation_start = len(base) if text.startswith(base) else len(text)
        self._generation_prompt = str(text[generation_start:])
        placed = [Placed(i + 1, i, message) for i, message in enumerate(messages)]
        controls = self.tokenizer.controls(text)
        cuts = message_cuts(text, controls, placed, generation_start=generation_start)
        if not cuts or cuts[0].start:
            cuts.insert(0, Cut(0, "frame", None))
        self._stream.append(text, cuts, num_root_messages(messages), num_trunk)
        self.messages += messages
        self.num_calls = 1
        return self._stream.prompt()

    def sampled(
        self, token_ids: Sequence[int], message: Message, *, stop: str | None = None
    ) -> None:
        """The engine's reply to the last prompt: its ids, verbatim, and the message a client got.

        How it ended decides what `extend` adds. EOS and tool calls: the ids end with the control
        token that the template closes the turn with; what follows it is added. Length: the ids end
        anywhere and the template's whole closing is added. `stop`, a stop string: the client never
        saw it, so ids from the token that begins it on are dropped, and what the client did see of
        that token is encoded again.
        """
        if self._reply is not None or not self.num_calls:
            raise LayoutError("a reply needs a prompt that has none yet")
        kept = list(token_ids)
        seen = ""
        if stop is not None:
            kept, seen = self._without_stop(kept, stop)
        body, closer = self.tokenizer.split_closer(kept, self.turn_end_ids)
        text = self.tokenizer.decode(body)
        source = f"message {len(self.messages)} (assistant) text"
        tail = list(self.tokenizer.encode_text(seen)) if seen else []
        self._sampled = [*kept, *tail]
        self._said = text + seen + (closer or "")
        self._stream.append_sampled(self._sampled, text + seen, source)
        self._reply = Reply(message, closer, self._turn_ends())
        self.messages.append(message)

    def extend(self, new: Sequence[Message]) -> Prompt:
        """The next prompt: what was there, then `new` messages. Raises TemplateError."""
        if not self.num_calls:
            raise LayoutError("this transcript has not started: use start")
        if self._reply is not None:
            delta = self._renderer.after_reply(self.messages[:-1], self._reply, new)
        else:
            delta = self._renderer.after_history(self.messages, new)
        if delta.broken is not None:
            self._note_deviation(delta.broken, new)
        elif delta.rendered is not None:
            self._note_reply_deviation(delta.rendered)
        self._stream.freeze()
        self._stream.append(delta.text, self._cuts(delta, new))
        self.messages += new
        self._reply = None
        self.num_calls += 1
        return self._stream.prompt()

    def _cuts(self, delta: Delta, new: Sequence[Message]) -> list[Cut]:
        text, first = delta.text, len(self.messages)
        generation_start = len(text)
        if self._generation_prompt and text.endswith(self._generation_prompt):
            generation_start -= len(self._generation_prompt)
        placed = [
            Placed(first + i + 1 - delta.shift, first + i, message) for i, message in enumerate(new)
        ]
        cuts = message_cuts(
            text,
            self.tokenizer.controls(text),
            placed,
            start=delta.num_closing,
            generation_start=generation_start,
        )
        if not cuts or cuts[0].start:
            cuts.insert(0, Cut(0, f"message {first - 1} end", first - 1))
        return cuts

    def _without_stop(self, token_ids: list[int], stop: str) -> tuple[list[int], str]:
        """Ids before the token in which `stop` begins, and the visible text of that token."""
        text = self.tokenizer.decode(token_ids)
        # as vLLM looks for it: where the newest token can have completed it, leftmost first
        before = len(self.tokenizer.decode(token_ids[:-1]))
        found = text.find(stop, max(0, before - len(stop) + 1))
        visible = text[:found] if found >= 0 else text
        kept = self.tokenizer.token_prefix(token_ids, visible)
        return kept, visible[len(self.tokenizer.decode(kept)) :]

    def _turn_ends(self) -> frozenset[str]:
        ids = self.tokenizer.eos_ids | self.turn_end_ids
        return frozenset(self.tokenizer.token_text(i) for i in ids)

    def _note_reply_deviation(self, rendered: str) -> None:
        """Name the token at which the template would write the reply otherwise than it was."""
        if self._said == rendered:
            return
        said = self.tokenizer.decode(self._sampled)
        common = common_text(said, rendered)
        token = len(self.token_ids) - len(self._sampled)
        token += len(self.tokenizer.token_prefix(self._sampled, said[:common]))
        cause = (
            f"the template writes the reply as {rendered[common : common + 40]!r} "
            f"where the cache holds {said[common : common + 40]!r}"
        )
        self.deviations.append(Deviation(self.num_calls, token, cause))

    def _note_deviation(self, broken: Break, new: Sequence[Message]) -> None:
        """Name the first token at which the template, rendering all of it now, leaves the past."""
        past = self._renderer.full(
            self.messages[:-1] if self._reply else self.messages, prompt=True
        )
        present = self._renderer.full([*self.messages, *new], prompt=True)
        ids = [self.tokenizer.encode(text).token_ids for text in (past, present)]
        token = common_prefix(*ids)
        same = common_prefix(self.token_ids, ids[0][:token])
        if same < token:  # what is frozen spells the common text with other tokens
            text = self.tokenizer.decode(ids[0][same:token])
            frozen = list(self.token_ids[same:])
            token = same + len(self.tokenizer.token_prefix(frozen, text))
        cause = f"the template now writes {broken.after!r} where it had written {broken.before!r}"
        self.deviations.append(Deviation(self.num_calls, token, cause))


def num_root_messages(messages: Sequence[Message]) -> int:
    """Leading messages that are the contract: up to and with the first user message."""
    for i, message in enumerate(messages):
        if message.get("role") == "user":
            return i + 1
    return len(messages)
