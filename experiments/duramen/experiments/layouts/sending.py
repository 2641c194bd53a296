"""Messages in zones to a prompt whose spans bear these zones, for any chat template.

A template that refuses neighbouring user messages gets them merged into one, with a blank line
between them; its span is cut where each of them begins, as far as that can be told from its tokens.
Some templates (Mistral's) write the system text and the tools into the last user message: what
stands before them is then one span, taken for root, and the prompt says so in a note.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from duramen.experiments.layouts.model import Model
from duramen.experiments.layouts.observations import message_text
from duramen.experiments.trajectory import Message, Tool
from duramen.layout.errors import TemplateError
from duramen.layout.segment_cache import text_digest
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.transcript import Transcript
from duramen.layout.zones import Prompt, Span, Zone

MERGED_NOTE = "the chat template refuses neighbouring user messages: they were merged into one"
MOVED_NOTE = "the chat template moves the system text or the tools: zones cannot be told apart"


@dataclass(frozen=True)
class Zones:
    root: tuple[Message, ...]
    trunk: tuple[Message, ...]
    leaf: tuple[Message, ...]

    @property
    def messages(self) -> list[tuple[Zone, Message]]:
        zones = ((Zone.ROOT, self.root), (Zone.TRUNK, self.trunk), (Zone.LEAF, self.leaf))
        return [(zone, message) for zone, messages in zones for message in messages]


@dataclass
class Sender:
    """`merges`: the template was found to refuse neighbouring user messages."""

    model: Model
    time_s: float
    merges: bool = False
    num_deviating: int = 0

    def send(self, zones: Zones, tools: Sequence[Tool]) -> Prompt:
        """Raises TemplateError if the template refuses the messages, merged ones too."""
        single = [[each] for each in zones.messages]
        merged = _merged(zones.messages)
        if not self.merges:
            try:
                return self._start(single, tools)
            except TemplateError as refused:
                if len(merged) == len(single):
                    raise
                try:
                    prompt = self._start(merged, tools)
                except TemplateError:
                    raise refused from None
                self.merges = True
        else:
            prompt = self._start(merged, tools)
        if len(merged) == len(single):
            return prompt
        return replace(prompt, notes=(*prompt.notes, MERGED_NOTE))

    def _start(self, groups: list[list[tuple[Zone, Message]]], tools: Sequence[Tool]) -> Prompt:
        transcript: Transcript = self.model.transcript(tools, self.time_s)
        messages = [_merged_message([message for _, message in group]) for group in groups]
        prompt = transcript.start(self.model.template.prepared(messages))
        self.num_deviating = transcript.num_deviating
        spans: list[Span] = []
        zone, index = Zone.ROOT, None
        for span in prompt.spans:
            if found := re.match(r"message (\d+) ", span.source):
                index = int(found[1])
                zone = groups[index][0][0]
            elif span.source == "generation prompt":
                zone, index = Zone.LEAF, None
            placed = replace(span, zone=zone)
            if found and index is not None and len(groups[index]) > 1:
                spans += split(placed, prompt.token_ids, groups[index], self.model.tokenizer)
                zone = groups[index][-1][0]
            else:
                spans.append(placed)
        notes = (*prompt.notes, MOVED_NOTE) if _are_mixed(spans, groups) else prompt.notes
        return replace(prompt, spans=tuple(spans), notes=notes)


def _are_mixed(spans: Sequence[Span], groups: Sequence[Sequence[tuple[Zone, Message]]]) -> bool:
    """Whether the trunk has no span of its own, or the tools stand behind it: their sizes are then
    those of what the template put together."""
    has_trunk = any(zone is Zone.TRUNK for group in groups for zone, _ in group)
    is_told = any(span.zone is Zone.TRUNK for span in spans)
    tools_moved = any(span.source == "tools" and span.zone is not Zone.ROOT for span in spans)
    return tools_moved or (has_trunk and not is_told)


def end_of_trunk(prompt: Prompt) -> int:
    """Token at which the leaf begins."""
    starts = (span.start for span in prompt.spans if span.zone is Zone.LEAF)
    return next(starts, len(prompt.token_ids))


def message_starts(prompt: Prompt) -> dict[int, int]:
    """Message index -> the token at which it begins, where the template wrote it."""
    starts: dict[int, int] = {}
    for span in prompt.spans:
        if found := re.match(r"message (\d+) ", span.source):
            starts.setdefault(int(found[1]), span.start)
    return starts


def split(
    span: Span,
    token_ids: Sequence[int],
    group: Sequence[tuple[Zone, Message]],
    tokenizer: Tokenizer,
) -> list[Span]:
    """The span of a merged message cut where its parts begin; whole if they are not found."""
    ids = list(token_ids[span.start : span.end])
    controls = [i for i, token_id in enumerate(ids) if token_id in tokenizer.control_ids]
    edges = [-1, *controls, len(ids)]
    first, last = max(((a + 1, b) for a, b in pairwise(edges)), key=lambda e: e[1] - e[0])
    text = tokenizer.decode(ids[first:last])
    starts = tokenizer.token_starts(text)
    is_same = len(starts) == last - first  # else what stands around it has a part in its ids
    cuts = [span.start]
    position = 0
    for _, message in group:
        part = (message_text(message) or "").strip()
        position = text.find(part, position)
        if position < 0:
            return [span]
        num_before = (
            sum(start < position for start in starts)
            if is_same
            else len(tokenizer.token_prefix(ids[first:last], text[:position]))
        )
        cuts.append(span.start + first + num_before)
        position += len(part)
    del cuts[1]  # the first part begins with the frame
    pieces = zip(cuts, [*cuts[1:], span.end], group, strict=True)
    return [
        Span(start, end, zone, f"{span.source} part {i}", text_digest(message_text(message) or ""))
        for i, (start, end, (zone, message)) in enumerate(pieces)
    ]


def _merged(messages: Sequence[tuple[Zone, Message]]) -> list[list[tuple[Zone, Message]]]:
    groups: list[list[tuple[Zone, Message]]] = []
    for zone, message in messages:
        joins = groups and message.get("role") == groups[-1][-1][1].get("role") == "user"
        if joins:
            groups[-1].append((zone, message))
        else:
            groups.append([(zone, message)])
    return groups


def _merged_message(messages: Sequence[Message]) -> Message:
    if len(messages) == 1:
        return messages[0]
    texts = [message_text(message) for message in messages]
    if all(text is not None for text in texts):
        return {**messages[0], "content": "\n\n".join(text or "" for text in texts)}
    parts: list[object] = []
    for message in messages:
        content = message.get("content") or ""
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**messages[0], "content": parts}
