"""The causes by which a prefix is lost, each with the layer at which it is seen.

A call is four things, each made from the one before: request, rendered text, token ids, blocks. A
break belongs to the first of them that is not what it should be.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Layer = Literal["request", "text", "token", "block"]

Cause = Literal[
    "clock",
    "uuid-or-hash",
    "counter",
    "json-key-order",
    "tool-order",
    "tool-set-changed",
    "whitespace",
    "unicode-normalisation",
    "content-parts-vs-string",
    "role-merge",
    "system-hoist",
    "thinking-stripped",
    "empty-thinking",
    "template-option",
    "re-serialised-arguments",
    "input-before-tools",
    "history-edited",
    "history-pruned",
    "compaction",
    "retokenisation",
    "bos-twice",
    "salt-or-model-changed",
    "shorter-than-unit",
    "last-token",
    "draft-drop",
    "eviction",
    "in-flight",
    "other-replica",
    "first-call",
    "below-minimum",
    "ttl-expired",
    "lookback-exceeded",
    "breakpoint-moved",
    "not-reported",
    "unknown",
]


class About(NamedTuple):
    """`what` happened, for a reader who has not met it; `mend`: what to change, in general."""

    what: str
    mend: str


CAUSES: Mapping[Cause, About] = {
    "clock": About(
        "a date or time in the prompt has moved on",
        "move it out of the prompt's head into the newest message, or give it once a session",
    ),
    "uuid-or-hash": About(
        "an id that is new in each request stands in the prompt",
        "send it as a header or in metadata instead of in the prompt",
    ),
    "counter": About(
        "a number in the prompt counts up from call to call",
        "move it into the newest message",
    ),
    "json-key-order": About(
        "the same JSON was written with its keys in another order",
        "sort the keys, or keep the text of the first call and send it again",
    ),
    "tool-order": About(
        "the same tools were sent in another order",
        "sort the tools by name, once, where the request is built",
    ),
    "tool-set-changed": About(
        "tools were added, removed or changed",
        "send every tool in every call and forbid some by tool_choice or in the newest message",
    ),
    "whitespace": About(
        "the same text was written with other blanks or line ends",
        "keep the text as it was sent; strip it before the first call or never",
    ),
    "unicode-normalisation": About(
        "the same characters were sent in another Unicode form",
        "normalise text (NFC) where it enters, once",
    ),
    "content-parts-vs-string": About(
        "content was sent as a text in one call and as a list of parts in the other",
        "use one form for all calls",
    ),
    "role-merge": About(
        "neighbouring messages of one role became one message",
        "merge them in every call or in none",
    ),
    "system-hoist": About(
        "a system message from inside the conversation was moved to its head",
        "send it as a user message, or put it into the first system message before the first call",
    ),
    "thinking-stripped": About(
        "thinking that the cache holds is left out of the next prompt",
        "keep it: by the template's option, a mended template, or by sending its ids verbatim",
    ),
    "empty-thinking": About(
        "an empty thinking block is written in one prompt and not in the other",
        "use one setting of thinking for the whole session, or a mended template",
    ),
    "template-option": About(
        "an option of the chat template has another value",
        "keep the options of the first call for the whole session",
    ),
    "re-serialised-arguments": About(
        "the arguments of a tool call were read and written again, and are spelled otherwise",
        "send the argument text back as the model wrote it",
    ),
    "input-before-tools": About(
        "messages stand before the tool definitions, so that each new one moves the tools",
        "put the tools first",
    ),
    "history-edited": About(
        "an earlier message has another text",
        "append a correction instead of rewriting what was sent",
    ),
    "history-pruned": About(
        "earlier messages or tool outputs were taken out",
        "prune rarely and much at once, from the end backwards; see --what-if",
    ),
    "compaction": About(
        "earlier messages were replaced by a summary",
        "compact rarely; what stands before the summary stays cached only while it is untouched",
    ),
    "retokenisation": About(
        "the same text became other token ids",
        "send the sampled ids back verbatim instead of encoding their text again",
    ),
    "bos-twice": About(
        "the prompt begins with BOS twice in one of the calls",
        "let either the template or the tokenizer add it: add_special_tokens=false",
    ),
    "salt-or-model-changed": About(
        "cache salt, model, adapter or weights are others, which share no block",
        "one salt per tenant and model version for the whole session",
    ),
    "shorter-than-unit": About(
        "what both calls share is shorter than the engine's match unit, so it can never hit",
        "a smaller block size, or a shared prefix of at least one unit",
    ),
    "last-token": About(
        "all of the prompt was known; its last token, and so its last unit, is always computed",
        "nothing to mend",
    ),
    "draft-drop": About(
        "the draft model gives up the last unit that matches",
        "nothing to mend, or serve without the draft model",
    ),
    "eviction": About(
        "the blocks had left the cache before the call was scheduled",
        "more KV memory, fewer sessions at once, or a higher cache priority for this one",
    ),
    "in-flight": About(
        "the call with the same prefix was still being computed",
        "send the second call once the first has begun to answer",
    ),
    "other-replica": About(
        "another replica served the call",
        "route by session or by a hash of the prefix",
    ),
    "first-call": About("nothing like it was sent before", "nothing to mend"),
    "below-minimum": About(
        "the prefix is shorter than the provider caches",
        "nothing to mend, or move stable text in front of the breakpoint",
    ),
    "ttl-expired": About(
        "the provider's cache entry had expired",
        "a longer time to live, or calls that come sooner",
    ),
    "lookback-exceeded": About(
        "more content blocks came since the last breakpoint than the provider looks back over",
        "set one more breakpoint within that distance",
    ),
    "breakpoint-moved": About(
        "the cache breakpoint stands elsewhere, and no entry ends where this one looks",
        "keep a breakpoint at the end of the previous call's messages",
    ),
    "not-reported": About(
        "the answer does not say how many tokens were cached, which is not 0",
        "vLLM: --enable-prompt-tokens-details",
    ),
    "unknown": About("none of the known causes explains it", "send it in as an issue"),
}
