"""The working set: a small prompt in zones instead of a conversation that grows.

Root: the contract, up to and with the first user message. Trunk: the current version of each
artifact, a framed message each. Leaf: what left and what is superseded, in one message, then the
last k turns in their own roles; the result of a read says where its text stands. A turn is an
assistant message with all up to the next one, so no tool message stands without its call; one that
has no call at all goes as a user message. Older turns leave to the archive.

Each prompt is rendered and encoded whole, from the messages alone: replies are not kept as they
were sampled.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from duramen.experiments.history import Turn
from duramen.experiments.layouts.alignment import Aligner, Placed
from duramen.experiments.layouts.artifacts import WorkingSet
from duramen.experiments.layouts.catalogue import Change, Layout
from duramen.experiments.layouts.frames import artifact_message, pointer, tombstone
from duramen.experiments.layouts.model import Model, call_time_s
from duramen.experiments.layouts.sending import Sender, Zones
from duramen.experiments.trajectory import Call, Message, Session
from duramen.layout.transcript import Deviation
from duramen.layout.zones import Prompt

ALIGNED_NOTE = "a zone was ended at a whole unit, by moving text or by padding"
NOT_ALIGNED_NOTE = "zone ends are not aligned: the template takes no neighbouring user messages"


@dataclass(frozen=True)
class Archived:
    """What left the prompt: the first `num_turns` turns, whose text is `num_tokens` long."""

    num_turns: int = 0
    num_tokens: int = 0


@dataclass
class Zoned:
    """`archived` is that of the last prompt; `alignments` are the decisions that moved or padded,
    with their expected net benefit in tokens."""

    model: Model
    session: Session
    layout: Layout
    deviations: Sequence[Deviation] = ()
    num_deviating: int = 0
    archived: Archived = Archived()
    alignments: list[Placed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._working_set: WorkingSet | None = None
        self._aligner: Aligner | None = None
        self._sender: Sender | None = None
        self._archived_tokens: dict[int, int] = {}

    def prompt(self, turn: Turn, call: Call, index: int) -> Prompt:
        if self._sender is None or not turn.continues:
            self._begin(call_time_s(self.session, call, index))
        working_set, sender = self._working_set, self._sender
        assert working_set is not None
        assert sender is not None
        root = root_messages(turn.messages)
        working_set.advance(turn.messages, root)
        zones = self._zones(turn.messages, root, working_set)
        prompt = sender.send(zones, turn.tools)
        notes: tuple[str, ...] = ()
        if self._aligner is not None and sender.merges:
            notes = (NOT_ALIGNED_NOTE,)
        elif self._aligner is not None:
            known = len(self._aligner.decisions)
            aligned = self._aligner.aligned(
                zones, working_set.trunk, lambda given: sender.send(given, turn.tools), index
            )
            if aligned != zones:
                prompt = sender.send(aligned, turn.tools)
            made = self._aligner.decisions[known:]
            self.alignments += made
            notes = (ALIGNED_NOTE,) if made else ()
        self.num_deviating += sender.num_deviating
        return replace(prompt, notes=(*prompt.notes, *notes))

    def sampled(self, token_ids: Sequence[int], message: Message) -> None:
        pass  # the next prompt is encoded from text

    def _begin(self, time_s: float) -> None:
        """A new conversation, or one whose past was edited."""
        assert self.layout.change is not None
        merges = self._sender is not None and self._sender.merges
        self._working_set = WorkingSet(self.layout.change)
        self._aligner = None if self.layout.align is None else Aligner(self.layout.align)
        self._sender = Sender(self.model, time_s, merges)
        self._archived_tokens = {}

    def _zones(self, messages: Sequence[Message], root: int, working_set: WorkingSet) -> Zones:
        assert self.layout.k is not None
        assert self.layout.step is not None
        turns = [i for i in range(root, len(messages)) if messages[i].get("role") == "assistant"]
        num_old = max(len(turns) - self.layout.k, 0)
        num_archived = num_old - num_old % self.layout.step
        start = turns[num_archived] if num_archived else root
        self.archived = Archived(num_archived, self._num_tokens(messages[root:start], root))
        lines = [*self._archive_line(), *self._tombstones(working_set)]
        said = [{"role": "user", "content": "\n".join(lines)}] if lines else []
        first_call = turns[0] if turns else len(messages)
        leaf = [
            _in_leaf(messages[i], i, working_set, has_call=i > first_call)
            for i in range(start, len(messages))
        ]
        trunk = tuple(map(artifact_message, working_set.trunk))
        return Zones(tuple(messages[:root]), trunk, (*said, *leaf))

    def _archive_line(self) -> Iterator[str]:
        left = self.archived
        if left.num_turns:
            turns = "turn 1" if left.num_turns == 1 else f"turns 1 to {left.num_turns}"
            yield f"[left to the archive: {turns}, {left.num_tokens} tokens]"

    def _tombstones(self, working_set: WorkingSet) -> Iterator[str]:
        if self.layout.change is Change.TOMBSTONE:
            for version in working_set.trunk:
                if not working_set.is_current(version):
                    yield tombstone(version, working_set.current(version.key))

    def _num_tokens(self, messages: Sequence[Message], first: int) -> int:
        """Tokens of messages as JSON: of their text, without any template's frames."""
        for index, message in enumerate(messages, first):
            if index not in self._archived_tokens:
                text = json.dumps(message, ensure_ascii=False, default=str)
                valid = text.encode("utf-8", "replace").decode()
                size = len(self.model.tokenizer.encode_text(valid))
                self._archived_tokens[index] = size
        return sum(self._archived_tokens[first + i] for i in range(len(messages)))


def root_messages(messages: Sequence[Message]) -> int:
    """How many messages are root: up to and with the first user message, else, where a call or a
    result stands before it, those before the first assistant message."""
    first_assistant: int | None = None
    for i, message in enumerate(messages):
        if message.get("role") == "user":
            return i + 1
        if message.get("role") == "assistant" and first_assistant is None:
            first_assistant = i
        if message.get("role") == "tool" or message.get("tool_calls"):
            return i if first_assistant is None else first_assistant
    return len(messages) if first_assistant is None else first_assistant


def _in_leaf(message: Message, index: int, working_set: WorkingSet, *, has_call: bool) -> Message:
    version = working_set.results.get(index)
    if version is not None:
        current = working_set.current(version.key)
        stands = version in working_set.trunk
        return {**message, "content": pointer(version, current, stands=stands)}
    if message.get("role") == "tool" and not has_call:
        return {"role": "user", "content": message.get("content")}
    return message
