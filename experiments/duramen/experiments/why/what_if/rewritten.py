"""A session whose calls are rewritten by a plan, from some call on. Nothing is changed in place."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from duramen.experiments.history import Turn, is_same
from duramen.experiments.layouts.mistakes import pruned
from duramen.experiments.layouts.observations import tool_outputs
from duramen.experiments.layouts.whole import Moment, Rewrite
from duramen.experiments.trajectory import Call, Message, Session
from duramen.experiments.why.what_if.plan import Plan, PlanName
from duramen.layout.tokenizer import Tokenizer
from duramen.serving.gateway.message_text import texts, with_texts
from duramen.serving.gateway.policies.shape import shape
from duramen.serving.gateway.policies.tools import freeze
from duramen.serving.gateway.settings import PolicySettings

CUT_TEXT = "\n[rest of the tool output removed]"
LEAF = PolicySettings(volatile="leaf")


@dataclass(frozen=True)
class Rewriter:
    """`rewrite`: what the plan makes of one call that nothing was done to before."""

    plan: Plan
    rewrite: Rewrite

    @classmethod
    def of(cls, plan: Plan, tokenizer: Tokenizer) -> "Rewriter":
        match plan.name, plan.size:
            case PlanName.DROP_TOOL_OUTPUTS, int(num_kept):
                return cls(plan, pruned(num_kept))
            case PlanName.TRUNCATE, int(num_tokens):
                return cls(plan, _Cutter(tokenizer, num_tokens))
            case PlanName.MOVE_CLOCK, _:
                return cls(plan, moved_clock)
            case _:
                return cls(plan, _Sorter())

    def fresh(self, session: Session) -> Session:
        """Each call as it would be if the plan began with it."""
        calls = (self._first(session, index) for index in range(len(session.calls)))
        return replace(session, calls=tuple(calls))

    def always(self, session: Session) -> Session:
        """The plan as a rule from the first call on."""
        if self.plan.name is PlanName.MOVE_CLOCK:
            return self.begun_at(session, 0)
        calls = (self._call(session, call, index) for index, call in enumerate(session.calls))
        return replace(session, calls=tuple(calls))

    def begun_at(self, session: Session, first: int) -> Session:
        """The plan begun at call `first`. What it did to outputs then stays done, and outputs that
        come later stay as they are; in the root it is done in each call from there on."""
        calls = list(session.calls[:first])
        if self.plan.rewrites_outputs:
            calls += self._frozen(session, first)
        elif self.plan.name is PlanName.MOVE_CLOCK:
            calls += self._growing(session, first)
        else:
            rest = enumerate(session.calls[first:], first)
            calls += [self._call(session, call, index) for index, call in rest]
        return replace(session, calls=tuple(calls))

    def _first(self, session: Session, index: int) -> Call:
        """The call with which the plan begins: outputs that are new in it are not cut."""
        call = session.calls[index]
        done = self._call(session, call, index)
        if self.plan.name is not PlanName.TRUNCATE or done is call:
            return done
        before = session.calls[index - 1].messages if index else ()
        changes = _differing(call.messages, done.messages)
        return _with_messages(
            call, {i: changes[i] for i in same_at(before, call.messages, changes)}
        )

    def _call(self, session: Session, call: Call, index: int) -> Call:
        tools = session.tools_of(call)
        turn = Turn(call.messages, tools)
        done = self.rewrite(turn, Moment(session.session_id, index, 0.0))
        if done is turn:
            return call
        same_tools = done.tools is tools
        return replace(
            call,
            messages=tuple(done.messages),
            tools=call.tools if same_tools else tuple(done.tools),
        )

    def _frozen(self, session: Session, first: int) -> Iterator[Call]:
        old = session.calls[first]
        new = self._first(session, first)
        done = _differing(old.messages, new.messages)
        by_object = {id(old.messages[i]): b for i, b in done.items()}
        yield new
        for call in session.calls[first + 1 :]:
            same = set(same_at(old.messages, call.messages, range(len(old.messages))))
            placed = {i: message for i, message in done.items() if i in same}
            if len(same) < len(old.messages):  # the client edited its past: found by object
                for i, message in enumerate(call.messages):
                    if i not in same and id(message) in by_object:
                        placed[i] = by_object[id(message)]
            yield _with_messages(call, placed)

    def _growing(self, session: Session, first: int) -> Iterator[Call]:
        """Values that were put behind the newest message stay there in later calls."""
        before: Sequence[Message] = ()
        placed: dict[int, Message] = {}
        for index, call in enumerate(session.calls[first:], first):
            new = self._call(session, call, index)
            last = len(call.messages) - 1
            bare = [*new.messages[:last], *call.messages[last:]]  # without this call's values
            num_old = num_in_common(before, bare)
            placed = {i: message for i, message in placed.items() if i < num_old}
            if new is not call:
                placed[last] = new.messages[last]
            yield _with_messages(new, placed)
            before = bare


def _differing(old: Sequence[Message], new: Sequence[Message]) -> dict[int, Message]:
    """Those of `new` that are other objects."""
    return {i: b for i, (a, b) in enumerate(zip(old, new, strict=True)) if b is not a}


def _with_messages(call: Call, placed: Mapping[int, Message]) -> Call:
    if not placed:
        return call
    messages = [placed.get(i, message) for i, message in enumerate(call.messages)]
    return replace(call, messages=tuple(messages))


def num_in_common(old: Sequence[Message], new: Sequence[Message]) -> int:
    """Leading messages that say the same."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((i for i, (a, b) in pairs if not is_same(a, b)), min(len(old), len(new)))


def same_at(old: Sequence[Message], new: Sequence[Message], places: Iterable[int]) -> Iterator[int]:
    """Those of `places` at which both say the same, whatever stands before."""
    num_both = min(len(old), len(new))
    return (i for i in places if i < num_both and is_same(old[i], new[i]))


def moved_clock(turn: Turn, moment: Moment) -> Turn:
    """As the gateway's policy does it; the values stand behind the newest message."""
    shaped = shape(list(turn.messages), [], LEAF, tools_of_session=lambda messages: None, count=len)
    if not shaped.suffix:
        return turn
    last = shaped.messages[-1]
    content = last["content"]
    longer = (
        content + shaped.suffix
        if isinstance(content, str)
        else [*content, {"type": "text", "text": shaped.suffix}]
    )
    return replace(turn, messages=[*shaped.messages[:-1], {**last, "content": longer}])


class _Sorter:
    def __call__(self, turn: Turn, moment: Moment) -> Turn:
        tools, line = freeze(list(turn.tools), None)
        return turn if line is None else replace(turn, tools=tools)


@dataclass
class _Cutter:
    """Cuts each tool output to `num_tokens` of its own, where that and the line behind it are
    shorter than the whole."""

    tokenizer: Tokenizer
    num_tokens: int
    _known: dict[int, tuple[Message, Message]] = field(default_factory=dict)  # by id, old and new

    def __call__(self, turn: Turn, moment: Moment) -> Turn:
        messages = list(turn.messages)
        for i in tool_outputs(turn.messages):
            messages[i] = self._cut(messages[i])
        changes = _differing(turn.messages, messages)
        return replace(turn, messages=messages) if changes else turn

    def _cut(self, message: Message) -> Message:
        known = self._known.get(id(message))
        if known is None:
            known = self._known[id(message)] = (message, self._made(message))
        return known[1]

    def _made(self, message: Message) -> Message:
        left, new = self.num_tokens, []
        for text in texts(message):
            new.append(self._beginning(text, left))
            left = max(left - len(self.tokenizer.encode_text(text)), 0)
        return with_texts(message, new)

    def _beginning(self, text: str, num_tokens: int) -> str:
        token_ids = self.tokenizer.encode_text(text)
        if len(token_ids) <= num_tokens:
            return text
        kept = self.tokenizer.decode(list(token_ids[:num_tokens])).rstrip("\ufffd")
        cut = kept + CUT_TEXT
        return cut if len(self.tokenizer.encode_text(cut)) < len(token_ids) else text
