"""One session's calls, in order: what each had in common with what was there, and where it broke.

What became of blocks is judged elsewhere, when all calls of the session are known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from duramen.experiments.study.keys import common_ids
from duramen.experiments.trajectory import Call, Message, Session
from duramen.experiments.why.around import around, character_of, zone_of
from duramen.experiments.why.explained import ExplainedBreak
from duramen.experiments.why.laid import Laid
from duramen.experiments.why.log import Heard, Log, first_call, unexplained
from duramen.experiments.why.past import Nearest, Past
from duramen.experiments.why.pool import Keys
from duramen.experiments.why.rendering import NO_IDS, Ids, Setting, array_of, start_s
from duramen.experiments.why.replies import num_continued, quoted
from duramen.experiments.why.roots import Root, are_first_questions, is_other_conversation, root_of
from duramen.experiments.why.zone_starts import zone_starts
from duramen.layout.diagnose.causes import CAUSES
from duramen.layout.diagnose.diagnose import diagnose
from duramen.layout.diagnose.sent import Finding, Request, Sent
from duramen.layout.errors import TemplateError
from duramen.serving.kv.block_causes import Evidence, block_loss

# Somebody wrote another text or took another agent: nothing that a client does by accident.
ANOTHER_ROOT = ("history-edited", "history-pruned", "compaction", "unknown")


@dataclass(frozen=True)
class Judged:
    """One call. Tokens; None is "not known".

    `vs`: the call of this session that it is measured against, which had sent and sampled `known`
    tokens and `computed` of them. `num_reply`: sampled behind the prompt, as far as that is on
    record or a later call goes on with it. `other`: for a first call, one of another session that
    it begins like. `num_removed`: blocks that the pool had evicted before. `refused`: why the
    template would not render it. `zones`: the tokens at which trunk and leaf begin.
    """

    index: int
    call: Call
    time_s: float
    num_tokens: int | None = None
    lcp: int | None = None
    vs: int | None = None
    other: Heard | None = None
    known: int = 0
    computed: int = 0
    num_reply: int = 0
    predicted: int | None = None
    num_removed: int = 0
    broken: ExplainedBreak | None = None
    refused: str | None = None
    zones: tuple[int, int] | None = None


@dataclass
class Walk:
    """`given`: calls that are laid out already, by their index. `always`: calls are measured
    against each other however little they have in common."""

    session: Session
    log: Log
    given: Mapping[int, Laid] = field(default_factory=dict)
    always: bool = False
    judged: list[Judged] = field(default_factory=list)
    _past: Past = field(default_factory=Past)
    _last: Laid | None = None
    _changed: dict[int, Message] = field(default_factory=dict)  # replies that came back changed

    def __post_init__(self) -> None:
        named = (call.sending.model for call in self.session.calls if call.sending.model)
        self._keys = Keys(self.log.settings.unit_tokens, next(named, ""))

    @property
    def is_done(self) -> bool:
        return len(self.judged) == len(self.session.calls)

    @property
    def next_s(self) -> float:
        """Unix time of the next call, the start's where none is recorded."""
        time_s = self.session.calls[len(self.judged)].time_s
        if time_s is None:
            return self.judged[-1].time_s if self.judged else start_s(self.session)
        return start_s(self.session) + time_s

    def step(self) -> None:
        """Judge the next call."""
        index, time_s = len(self.judged), self.next_s
        laid = self._laid(index, time_s, self._last)
        ids = laid.token_ids
        if ids is None:
            judged = self._by_request(laid, time_s)
        else:
            judged = self._compared(laid, ids, time_s)
            judged = replace(self._served(judged, laid, ids), zones=self._zones(judged, laid))
        self.judged.append(judged)
        self._last = laid

    def _laid(self, index: int, time_s: float, before: Laid | None = None) -> Laid:
        if index in self.given:
            return self.given[index]
        call = self.session.calls[index]
        recorded = call.sending.token_ids
        ids = None if recorded is None else array_of(recorded)
        if not call.messages:
            return Laid(index, call, None, None, ids)
        tools, sending = self.session.tools_of(call), call.sending
        request = Request(call.messages, tools, sending.options, sending.keys)
        setting: Setting = self.log.renderer.setting(tools, call, time_s)
        alike = before.rendered if before else None
        try:
            rendered = self.log.renderer.render(setting, call.messages, alike)
        except TemplateError as error:
            return Laid(index, call, request, None, ids, str(error))
        return Laid(index, call, request, rendered, ids)

    def _compared(self, laid: Laid, ids: Ids, time_s: float) -> Judged:
        near = self._past.nearest(ids)
        if near is None and self._last is not None and self._last.token_ids is not None:
            near = Nearest(self._last.index, 0)
        before = None if near is None else self._again(near.call)
        if near is None or before is None or self._are_apart(before, laid):
            return self._first(laid, ids, time_s)
        was = self.judged[near.call]
        known = (was.num_tokens or 0) + was.num_reply
        judged = Judged(
            laid.index,
            laid.call,
            time_s,
            num_tokens=len(ids),
            lcp=near.lcp,
            vs=near.call,
            known=known,
            computed=known - bool(was.num_reply),
        )
        if near.lcp in (known, len(ids)):
            return replace(judged, broken=self._back_and_forth(judged, laid, ids))
        broken = self._break(judged, before, laid, ids)
        if broken.cause in ANOTHER_ROOT and self._ask_anew(before, laid):
            return self._first(laid, ids, time_s)
        return replace(judged, broken=broken)

    def _back_and_forth(self, judged: Judged, laid: Laid, ids: Ids) -> ExplainedBreak | None:
        """A call that goes on with what the one before said, and with the tokens of an older one:
        what changed for the one before has changed back."""
        last = self._last
        if last is None or judged.vs in (None, last.index):
            return None
        older = self.session.calls[judged.vs or 0]
        if num_continued(last.call, laid.call) <= num_continued(older, laid.call):
            return None
        broken = self._break(judged, last, laid, ids)
        return broken if broken.lost_tokens else None

    def _break(self, judged: Judged, before: Laid, after: Laid, ids: Ids) -> ExplainedBreak:
        """What parts a call from `before`; what it still can reuse is another's, or of this one."""
        tokenizer, was = self.log.tokenizer, self._past.token_ids(before.index)
        lcp = common_ids(was, ids)
        sent = self._sent(before, was, lcp)
        finding = diagnose(sent, after.sent(tokenizer), tokenizer) or unexplained(lcp)
        computed = len(was) - bool(self.judged[before.index].num_reply)
        lost = self.log.lost(computed, judged.lcp or 0, len(ids))
        vs = (self.session.session_id, before.index)
        broken = self.log.broken(finding, vs, lcp, lost, len(ids))
        return self._placed(broken, was, after, ids, self._num_past(before.index))

    def _num_past(self, vs: int) -> int:
        """Messages that were there when an earlier call had been answered."""
        return len(self.session.calls[vs].messages) + bool(self.judged[vs].num_reply)

    def _zones(self, judged: Judged, laid: Laid) -> tuple[int, int] | None:
        if laid.rendered is None or not laid.is_ours:
            return None
        num_past = 0 if judged.vs is None else self._num_past(judged.vs)
        return zone_starts(self.log.tokenizer, laid.rendered, num_past)

    def _placed(
        self, broken: ExplainedBreak, was: Ids, after: Laid, ids: Ids, num_past: int
    ) -> ExplainedBreak:
        """With its zone and the text around it. The first `num_past` messages were there before."""
        token, tokenizer = broken.token or 0, self.log.tokenizer
        zone = None
        if after.rendered is not None and after.is_ours:
            character = character_of(tokenizer, after.rendered, token)
            zone = zone_of(after.rendered, character, num_past)
        at = _id_at(was, token), _id_at(ids, token)
        return replace(broken, zone=zone, around=around(tokenizer, was, ids, token), ids=at)

    def _sent(self, before: Laid, was: Ids, lcp: int) -> Sent:
        """The earlier call. A reply that the client sends back changed is one of its messages."""
        num_tokens = self.judged[before.index].num_tokens or 0
        reply = self._changed.get(before.index)
        if reply is None or before.rendered is None or before.request is None or lcp < num_tokens:
            return before.sent(self.log.tokenizer, was[num_tokens:])
        request = replace(before.request, messages=[*before.request.messages, reply])
        try:
            text = self.log.renderer.closed_text(before.rendered, reply)
        except TemplateError:
            return before.sent(self.log.tokenizer, was[num_tokens:])
        return Sent(request, text, was.tolist())

    def _first(self, laid: Laid, ids: Ids, time_s: float) -> Judged:
        """A call that goes on from none of its session: measured against the whole log."""
        log, name = self.log, self.session.session_id
        near = log.past.nearest(ids)
        lcp = 0 if near is None else near.lcp
        judged = Judged(laid.index, laid.call, time_s, num_tokens=len(ids), lcp=lcp)
        other = None if near is None else log.heard[near.call]
        if other is not None and lcp in (other.num_tokens, len(ids)):
            return replace(judged, other=other)  # it goes on with what another session began
        root = None
        if laid.rendered is not None and laid.request is not None and laid.is_ours:
            root = root_of(name, laid.index, laid.rendered, laid.request)
        like = None if root is None else log.roots.most_like(root)
        if root is not None:
            log.roots.add(root)
        if root is None or like is None:
            return replace(judged, broken=first_call(lcp))
        finding = diagnose(like.sent, root.sent, log.tokenizer)
        if finding is None:
            return replace(judged, other=other, broken=self._too_short(like, root, judged))
        if finding.cause in ANOTHER_ROOT:
            return replace(judged, broken=first_call(lcp))
        was = np.asarray(like.sent.token_ids, np.uint32)
        token = finding.token if finding.token is not None else lcp
        lost = log.lost(like.num_tokens, token, len(ids))
        broken = log.broken(finding, (like.session, like.call), token, lost, len(ids))
        return replace(judged, broken=self._placed(broken, was, laid, ids, 0))

    def _too_short(self, like: Root, root: Root, judged: Judged) -> ExplainedBreak | None:
        """Sessions that begin alike, with less than one unit."""
        num_tokens = judged.num_tokens or 0
        shared = max(min(like.num_tokens, root.num_tokens), judged.lcp or 0)
        loss = block_loss(Evidence(num_tokens, shared, shared, self.log.settings.unit_tokens))
        if loss is None or loss.cause != "shorter-than-unit":
            return None
        finding = Finding("block", loss.cause, 1.0, loss.evidence, CAUSES[loss.cause].mend)
        return self.log.broken(finding, (like.session, like.call), shared, 0, num_tokens)

    def _by_request(self, laid: Laid, time_s: float) -> Judged:
        """Without ids: against the call before, by what the client sent alone."""
        judged = Judged(laid.index, laid.call, time_s, refused=laid.refused)
        before = self._last
        if before is None or before.request is None or laid.request is None:
            return judged
        finding: Finding | None = diagnose(
            Sent(before.request), Sent(laid.request), self.log.tokenizer
        )
        if finding is None:
            return judged
        vs = (self.session.session_id, before.index)
        return replace(judged, vs=before.index, broken=self.log.broken(finding, vs, None, 0, 0))

    def _served(self, judged: Judged, laid: Laid, ids: Ids) -> Judged:
        """With what the pool gives it; its ids and its reply are known from here on."""
        reply = self._reply(laid)
        whole = np.concatenate([ids, reply])
        self._past.add(judged.index, whole)
        self.log.past.add(len(self.log.heard), whole)
        predicted, num_removed = None, 0
        if len(ids):
            keys = self._keys.of(whole, laid.call.sending)
            num_computed = len(whole) - bool(len(reply))
            predicted, num_removed = self.log.pools.serve(
                keys, len(ids), num_computed, laid.call.sending.replica
            )
        is_timed = self.session.start_time_s is not None and laid.call.time_s is not None
        self.log.heard.append(
            Heard(
                self.session.session_id,
                laid.index,
                len(whole),
                laid.call.sending,
                judged.time_s if is_timed else None,
                num_removed,
            )
        )
        return replace(judged, num_reply=len(reply), predicted=predicted, num_removed=num_removed)

    def _reply(self, laid: Laid) -> Ids:
        """What was sampled, where that is recorded or a later call goes on with it."""
        call, quote = laid.call, quoted(self.session.calls, laid.index)
        if quote is not None and quote.changed and call.reply is not None:
            self._changed[laid.index] = call.reply
        if call.sending.reply_ids is not None:
            return array_of(call.sending.reply_ids)
        if quote is None or call.reply is None or laid.rendered is None or not laid.is_ours:
            return NO_IDS
        try:
            return array_of(self.log.renderer.reply_ids(laid.rendered, call.reply))
        except TemplateError:  # no model with this template said that
            return NO_IDS

    def _again(self, index: int) -> Laid:
        """An earlier call, laid out again if it is not the last one."""
        if self._last is not None and self._last.index == index:
            return self._last
        return self._laid(index, self.judged[index].time_s)

    def _are_apart(self, before: Laid, after: Laid) -> bool:
        """Whether two calls of one session have nothing to do with each other."""
        if self.always or before.rendered is None or after.rendered is None:
            return False
        return is_other_conversation(before.rendered, after.rendered, before.call.reply)

    def _ask_anew(self, before: Laid, after: Laid) -> bool:
        """Whether both are first questions of one agent, which no client edited."""
        if self.always or before.rendered is None or after.rendered is None:
            return False
        return are_first_questions(before.rendered, after.rendered)


def _id_at(ids: Ids, token: int) -> int | None:
    return int(ids[token]) if token < len(ids) else None
