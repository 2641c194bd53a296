"""One conversation as an append-only list of token ids.

What was sent or sampled is never encoded again: sampled ids stay as the model gave them, and each
call adds only the text of its new messages. Where the template would now render the past
differently, the ids stay and the deviation is named.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from duramen.layout.blocks import common_prefix
from duramen.layout.delta import Break, Delta, DeltaRenderer, Reply, common_text
from duramen.layout.encode import Encoder
from duramen.layout.errors import LayoutError
from duramen.layout.rewrite import kept_head
from duramen.layout.seams import SeamProver
from duramen.layout.spans import Cut, Placed, message_cuts
from duramen.layout.stream import Sampled, TokenStream
from duramen.layout.template import ChatTemplate, Message
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tracked import Tracked
from duramen.layout.zones import Prompt, Zone

History = Literal["verbatim", "template"]


@dataclass(frozen=True)
class Deviation:
    """From `token` on, the template's own rendering differs from what is frozen here."""

    call: int
    token: int
    cause: str


@dataclass(frozen=True)
class Frozen:
    """A conversation up to the end of a sampled reply, as `Transcript.resume` takes it up again.

    `token_ids`: the prompt and the reply, the last `num_reply_ids` of them as `reply_ids` kept
    them. `messages`: as the transcript had them, the reply's message last. `root_tokens`: leading
    tokens in zone ROOT. `earlier`: the replies sampled before the last one, ascending; what is not
    named there counts as written by the template, which matters to history="template" alone.
    """

    token_ids: Sequence[int]
    messages: Sequence[Message]
    num_reply_ids: int
    generation_prompt: str
    root_tokens: int
    num_calls: int = 1
    earlier: Sequence[Sampled] = ()

    def __post_init__(self) -> None:
        num_prompt = len(self.token_ids) - self.num_reply_ids
        if self.num_reply_ids < 0 or not 0 <= self.root_tokens <= num_prompt:
            raise LayoutError(
                f"{len(self.token_ids)} ids cannot end with {self.num_reply_ids} of a reply behind "
                f"a root of {self.root_tokens}: give the ids of the prompt and of its reply"
            )
        if not self.messages or self.num_calls < 1:
            raise LayoutError("a conversation that is resumed has a call, and its reply's message")
        ends = [0, *(place for reply in self.earlier for place in (reply.start, reply.end))]
        if ends != sorted(ends) or ends[-1] > num_prompt:
            raise LayoutError(
                f"earlier replies must ascend within the prompt's {num_prompt} tokens: "
                f"their places are {ends[1:]}"
            )


@dataclass
class Transcript:
    """`tools`, `now` and `arguments` are fixed for the conversation; a change is another one.

    Use: prompt = start(messages), or resume(frozen); then per call sampled(...) if the engine's own
    reply becomes part of the conversation, and prompt = extend(new messages).

    `history` says what happens where the template would now write the past otherwise. "verbatim":
    the ids stay. "template": from the last control token before that place on, all of it is
    written as the template now writes it. Both name the deviation.
    """

    tokenizer: Tokenizer
    template: ChatTemplate
    tools: Sequence[Mapping[str, Any]] = ()
    now: datetime.datetime | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    independent_seams: bool = False
    turn_end_ids: frozenset[int] = frozenset()  # the engine's EOS ids, beside the tokenizer's
    history: History = "verbatim"

    def __post_init__(self) -> None:
        encoder = Encoder(SeamProver(self.tokenizer), self.independent_seams)
        self._stream = TokenStream(encoder)
        self._renderer = DeltaRenderer(
            self.template, self.tools, self.now, self.arguments, self.tokenizer.controls
        )
        self._reply: Reply | None = None
        self._sampled: list[int] = []
        self._said = ""
        self._replies: list[Sampled] = []
        self._num_root = 0
        self._generation_prompt = ""
        self.messages: list[Message] = []
        self.deviations: list[Deviation] = []
        self.num_calls = 0

    @property
    def token_ids(self) -> Sequence[int]:
        return self._stream.token_ids

    @property
    def generation_prompt(self) -> str:
        """What the template writes to ask for a reply; "" before the first prompt."""
        return self._generation_prompt

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
        cuts = self._whole_cuts(text, messages)
        self._stream.append(text, cuts, num_root_messages(messages), num_trunk)
        self.messages += messages
        self._num_root = num_root_messages(messages)
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
        self._take_reply(reply_ids(self.tokenizer, token_ids, stop), message)

    def resume(self, frozen: Frozen) -> None:
        """Take up a conversation from its ids: what `extend` gives from here on is what it would
        have given in the transcript they are from. Nothing of the past is rendered or encoded.

        The past's spans are coarse: root, history and replies. Deviations and ids that were not
        canonical are counted anew. Raises LayoutError if this transcript has started.
        """
        if self.num_calls:
            raise LayoutError("this transcript has started: resume in a new one")
        num_prompt = len(frozen.token_ids) - frozen.num_reply_ids
        prompt_ids, said = frozen.token_ids[:num_prompt], frozen.token_ids[num_prompt:]
        self._stream.restore(prompt_ids, frozen.root_tokens, frozen.earlier)
        self.messages += frozen.messages[:-1]
        self.num_calls = frozen.num_calls
        self._generation_prompt = frozen.generation_prompt
        self._num_root = num_root_messages(self.messages)
        self._replies += frozen.earlier
        self._take_reply(list(said), frozen.messages[-1])

    def _take_reply(self, token_ids: list[int], message: Message) -> None:
        body, closer = self.tokenizer.split_closer(token_ids, self.turn_end_ids)
        text = self.tokenizer.decode(body)
        start, index = len(self.token_ids), len(self.messages)
        self._sampled = token_ids
        self._said = text + (closer or "")
        self._stream.append_sampled(token_ids, text, f"message {index} (assistant) text")
        self._replies.append(Sampled(index, start, len(self.token_ids)))
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
            past, present = self._rendered_now(new)
            self._note_deviation(delta.broken, past, present)
            if self.history == "template":
                return self._written_anew(past, present, new)
        elif delta.rendered is not None:
            self._note_reply_deviation(delta.rendered)
        self._stream.freeze()
        self._stream.append(delta.text, self._delta_cuts(delta, new))
        self.messages += new
        self._reply = None
        self.num_calls += 1
        return self._stream.prompt()

    def _delta_cuts(self, delta: Delta, new: Sequence[Message]) -> list[Cut]:
        first = len(self.messages)
        placed = [
            Placed(first + i + 1 - delta.shift, first + i, message) for i, message in enumerate(new)
        ]
        cuts = self._cuts(delta.text, placed, delta.num_closing)
        if not cuts or cuts[0].start:
            cuts.insert(0, Cut(0, f"message {first - 1} end", first - 1))
        return cuts

    def _whole_cuts(self, text: Tracked, messages: Sequence[Message], start: int = 0) -> list[Cut]:
        """Cuts of the whole conversation's text, counted from character `start` on."""
        placed = [Placed(i + 1, i, message) for i, message in enumerate(messages)]
        cuts = [Cut(0, "frame", None), *self._cuts(text, placed)]
        first = [cut for cut in cuts if cut.start <= start][-1]
        rest = [replace(cut, start=cut.start - start) for cut in cuts if cut.start > start]
        return [replace(first, start=0), *rest]

    def _cuts(self, text: Tracked, placed: Sequence[Placed], start: int = 0) -> list[Cut]:
        generation_start = len(text)
        if self._generation_prompt and text.endswith(self._generation_prompt):
            generation_start -= len(self._generation_prompt)
        controls = self.tokenizer.controls(text)
        return message_cuts(text, controls, placed, start=start, generation_start=generation_start)

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

    def _rendered_now(self, new: Sequence[Message]) -> tuple[Tracked, Tracked]:
        """The whole text before `new` messages and with them; without what closes a reply."""
        past = self.messages[:-1] if self._reply else self.messages
        return (
            self._renderer.full(past, prompt=True),
            self._renderer.full([*self.messages, *new], prompt=True),
        )

    def _written_anew(self, past: Tracked, present: Tracked, new: Sequence[Message]) -> Prompt:
        """The prompt with as much of the frozen ids as `present` has in common with `past`."""
        limit = self._renderer.common(past, present)
        head = kept_head(self.tokenizer, self.token_ids, self._replies, past, limit)
        self._stream.freeze()
        self._stream.rewind(head.num_tokens)
        self._replies = [r for r in self._replies if r.end <= head.num_tokens]
        spans = self._stream.spans
        num_root = self._num_root if not spans or spans[-1].zone is Zone.ROOT else 0
        cuts = self._whole_cuts(present, [*self.messages, *new], head.num_characters)
        num_trunk = len(self.messages) - num_root
        self._stream.append(present[head.num_characters :], cuts, num_root, num_trunk)
        self.messages += new
        self._reply = None
        self.num_calls += 1
        return self._stream.prompt()

    def _note_deviation(self, broken: Break, past: Tracked, present: Tracked) -> None:
        """Name the first token at which the template, rendering all of it now, leaves the past."""
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


def reply_ids(tokenizer: Tokenizer, token_ids: Sequence[int], stop: str | None) -> list[int]:
    """What a conversation keeps of a reply's sampled ids: all, or what is before a stop string.

    Ids from the token that begins `stop` on are dropped; what a client did see of that token is
    encoded again. `stop` is looked for as vLLM does: where the newest token can have completed it,
    leftmost first.
    """
    given = list(token_ids)
    if stop is None:
        return given
    text = tokenizer.decode(given)
    before = len(tokenizer.decode(given[:-1]))
    found = text.find(stop, max(0, before - len(stop) + 1))
    return _spelling(tokenizer, given, text[:found] if found >= 0 else text)


def partial_ids(tokenizer: Tokenizer, token_ids: Sequence[int], visible: str) -> list[int]:
    """What a conversation keeps of a reply that broke off when a client had seen `visible` of it.

    The longest head of `token_ids` that spells a beginning of `visible`, then the rest of it
    encoded as text. Never ends with a control token, which would close the turn.
    """
    return _spelling(tokenizer, list(token_ids), visible, closed=False)


def _spelling(
    tokenizer: Tokenizer, token_ids: list[int], text: str, *, closed: bool = True
) -> list[int]:
    """Ids for `text`, as many as possible from the head of `token_ids`."""
    kept = tokenizer.token_prefix(token_ids, text)
    while not closed and kept and kept[-1] in tokenizer.control_ids:
        kept.pop()
    return [*kept, *tokenizer.encode_text(text[len(tokenizer.decode(kept)) :])]
