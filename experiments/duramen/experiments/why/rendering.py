"""Each call rendered and encoded whole, as a client without ids does, but not all of it again.

Text in common with the session's last call has the same ids up to its last control token, because
nothing is encoded across one. Where the template is local, what new messages add is rendered alone.
"""

import datetime
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import is_
from typing import Any

import numpy as np
import numpy.typing as npt

from duramen.experiments.layouts.model import ASSUMED_START_S, Model, utc
from duramen.experiments.trajectory import Call, Message, Session, Tool
from duramen.layout.chat_messages import template_tools
from duramen.layout.delta import HEAD, DeltaRenderer, common_text
from duramen.layout.errors import TrajectoryError
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tracked import TEMPLATE, Tracked

Ids = npt.NDArray[np.uint32]
NOT_OF_TEMPLATE = {"messages", "tools", "add_generation_prompt", "tool_choice"}
NO_IDS: Ids = np.empty(0, np.uint32)


@dataclass(frozen=True)
class Setting:
    """What a prompt depends on beside its messages."""

    tools: Sequence[Tool] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    now: datetime.datetime | None = None


@dataclass(frozen=True)
class Rendered:
    """One call's whole text, its ids, and `anchors`: (character, token) behind each control token
    that the template wrote, ascending. `deltas`: what rendered it; None for raw text."""

    deltas: DeltaRenderer | None
    setting: Setting
    messages: Sequence[Message]  # the client's own
    prepared: Sequence[Message]
    text: Tracked
    token_ids: Ids
    anchors: Sequence[tuple[int, int]]

    def anchor(self, token: int) -> tuple[int, int]:
        """(character, token) behind the last control token that ends at or before `token`."""
        index = bisect_right(self.anchors, token, key=lambda each: each[1])
        return self.anchors[index - 1] if index else (0, 0)


@dataclass(frozen=True)
class Renderer:
    model: Model

    def setting(self, tools: Sequence[Tool], call: Call, time_s: float) -> Setting:
        """`time_s`: Unix time of the call. Options of another API's body are none of a template."""
        arguments = dict(self.model.arguments)
        if call.sending.provider is None:
            arguments |= template_arguments(call.sending.options)
        now = utc(time_s) if "strftime_now" in self.model.template.source else None
        return Setting(tools, arguments, now)

    def render(
        self, setting: Setting, messages: Sequence[Message], before: Rendered | None = None
    ) -> Rendered:
        """`before`: a call that is probably like this one. Raises TemplateError."""
        if before is None or not _is_same(before.setting, setting):
            before = None
        num_old = _num_same(before.messages, messages) if before else 0
        prepared = [
            *(before.prepared[:num_old] if before else ()),
            *self.model.template.prepared(messages[num_old:]),
        ]
        renderer = self._deltas(setting) if before is None else self._of(before)
        text = self._extended(renderer, before, prepared, num_old)
        if text is None:
            text = renderer.full(prepared, prompt=True)
            common = 0 if before is None else _common(before.text, text)
        else:
            assert before is not None
            common = len(before.text)
        ids, anchors = _encoded(self.model.tokenizer, text, before, common)
        return Rendered(renderer, setting, messages, prepared, text, ids, anchors)

    def reply_ids(self, rendered: Rendered, reply: Message) -> list[int]:
        """What a model would have sampled to say `reply`, up to the token that ends it. Raises
        TemplateError where the template does not let it say that."""
        [said] = self.model.template.prepared([reply])
        if self.model.template.is_local:
            text, start = self._of(rendered).reply_text(rendered.prepared, said)
        else:
            text = self.closed_text(rendered, reply)
            start = _common(rendered.text, text)
        return self.model.tokenizer.reply_ids(text, start)

    def closed_text(self, rendered: Rendered, reply: Message) -> Tracked:
        """The conversation with the reply behind it. Raises TemplateError."""
        said = self.model.template.prepared([reply])
        return self._of(rendered).full([*rendered.prepared, *said], prompt=False)

    def _of(self, rendered: Rendered) -> DeltaRenderer:
        return rendered.deltas or self._deltas(rendered.setting)

    def _deltas(self, setting: Setting) -> DeltaRenderer:
        return DeltaRenderer(
            self.model.template,
            template_tools(setting.tools),
            setting.now,
            setting.arguments,
            controls=self.model.tokenizer.controls,
        )

    def _extended(
        self,
        renderer: DeltaRenderer,
        before: Rendered | None,
        prepared: Sequence[Message],
        num_old: int,
    ) -> Tracked | None:
        """The text, if it is that of `before` and what new messages add to it."""
        if before is None or num_old < len(before.messages) or num_old == len(prepared):
            return None
        if not self.model.template.is_local:
            return None
        delta = renderer.after_history(before.prepared, prepared[num_old:])
        if delta.broken is not None:
            return None
        return _joined(before.text, _shifted(delta.text, delta.shift))


def template_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """What of a request's options a chat template gets: vLLM hands it chat_template_kwargs,
    documents and reasoning_effort (0.32, entrypoints/openai/chat_completion/protocol.py)."""
    kwargs = options.get("chat_template_kwargs")
    found = {**options, **(kwargs if isinstance(kwargs, Mapping) else {})}
    found.pop("chat_template_kwargs", None)
    return {
        key: value
        for key, value in found.items()
        if key not in NOT_OF_TEMPLATE and value is not None
    }


def encode_text(tokenizer: Tokenizer, text: str) -> Rendered:
    """Raw text as an engine's completion endpoint takes it: control tokens count wherever they
    stand, and no template has a part in it."""
    tracked = Tracked(text, ((len(text), TEMPLATE),) if text else ())
    ids, anchors = _encoded(tokenizer, tracked, None, 0)
    return Rendered(None, Setting(), (), (), tracked, ids, anchors)


def array_of(token_ids: Sequence[int]) -> Ids:
    """Raises TrajectoryError for what is no token id."""
    try:
        return np.asarray(token_ids, np.uint32) if len(token_ids) else NO_IDS
    except (OverflowError, TypeError, ValueError):
        wrong = [i for i in token_ids if type(i) is not int or not 0 <= i < 2**32]
        raise TrajectoryError(f"{wrong[:1]} among recorded token ids is none") from None


def start_s(session: Session) -> float:
    """Unix time from which a session's times count."""
    return ASSUMED_START_S if session.start_time_s is None else session.start_time_s


def _is_same(a: Setting, b: Setting) -> bool:
    """Whether both write equal messages alike; another order of keys is another text."""
    if a.now != b.now or a.arguments.keys() != b.arguments.keys():
        return False
    same_tools = a.tools is b.tools or (
        len(a.tools) == len(b.tools) and all(map(is_, a.tools, b.tools))
    )
    return same_tools and repr(a.arguments) == repr(b.arguments)


def _num_same(old: Sequence[Message], new: Sequence[Message]) -> int:
    """Leading messages that are the same objects."""
    if len(old) <= len(new) and all(map(is_, old, new)):
        return len(old)
    pairs = enumerate(zip(old, new, strict=False))
    return next((index for index, (a, b) in pairs if a is not b), min(len(old), len(new)))


def _joined(head: Tracked, tail: Tracked) -> Tracked:
    """As tracked.concat, which looks at every run of both."""
    runs = head.runs + tail.runs
    if head.runs and tail.runs and head.runs[-1][1] == tail.runs[0][1]:
        (first, origin), (second, _) = head.runs[-1], tail.runs[0]
        runs = (*head.runs[:-1], (first + second, origin), *tail.runs[1:])
    return Tracked(str.__add__(head, tail), runs)


def _tail(text: Tracked, start: int) -> Tracked:
    """text[start:], found from its end."""
    runs: list[tuple[int, int]] = []
    missing = len(text) - start
    for length, origin in reversed(text.runs):
        if missing <= 0:
            break
        runs.append((min(length, missing), origin))
        missing -= length
    return Tracked(str.__getitem__(text, slice(start, None)), tuple(reversed(runs)))


def _shifted(text: Tracked, shift: int) -> Tracked:
    """Origins counted in the whole conversation instead of in a window of it (see Delta)."""
    if not shift:
        return text
    runs = tuple((length, o + shift if o > HEAD else o) for length, o in text.runs)
    return Tracked(str.__getitem__(text, slice(None)), runs)


def _common(a: Tracked, b: Tracked) -> int:
    """Characters from the start that are equal and of the same origin."""
    position = 0
    for run_a, run_b in zip(a.runs, b.runs, strict=False):
        position += min(run_a[0], run_b[0]) if run_a[1] == run_b[1] else 0
        if run_a != run_b:
            break
    return min(position, common_text(a, b))


def _encoded(
    tokenizer: Tokenizer, text: Tracked, before: Rendered | None, common: int
) -> tuple[Ids, Sequence[tuple[int, int]]]:
    """Ids and anchors; of `before`, whose first `common` characters are the same, what can stay."""
    num_kept = 0
    if before is not None:
        # A longer control token, or blanks that one swallows, may reach beyond what is common.
        limit = common - max(map(len, tokenizer.control), default=0)
        num_kept = bisect_right(before.anchors, limit, key=lambda each: each[0])
    kept = before.anchors[:num_kept] if before is not None else ()
    character, token = kept[-1] if kept else (0, 0)
    sections = tokenizer.encode(_tail(text, character), at_start=character == 0).sections
    ends = accumulate((len(section.token_ids) for section in sections), initial=token)
    next(ends)
    anchors = [
        (character + section.end, end)
        for section, end in zip(sections, ends, strict=True)
        if section.control
    ]
    new = array_of([token_id for section in sections for token_id in section.token_ids])
    head = before.token_ids[:token] if before is not None else NO_IDS
    return np.concatenate([head, new]), [*kept, *anchors]
