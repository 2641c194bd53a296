"""The rules of `duramen lint`. A rule that is named like a cause of `duramen why` fires on recorded
calls, where that cause was seen at work; every other one fires on what can be seen before a call.
"""

from dataclasses import dataclass

from duramen.experiments.lint.finding import Severity
from duramen.layout.diagnose.causes import CAUSES, Cause

NOT_RULES: frozenset[Cause] = frozenset(["first-call", "last-token"])  # nothing is amiss
_NOTES: frozenset[Cause] = frozenset(
    [
        "draft-drop",
        "in-flight",
        "eviction",
        "below-minimum",
        "compaction",
        "not-reported",
        "unknown",
    ]
)


@dataclass(frozen=True)
class Rule:
    """`what` is wrong, what it `costs`, the `mend`. Notes do not make a run fail."""

    name: str
    severity: Severity
    what: str
    costs: str
    mend: str


_HEAD = "everything behind it is computed again in each call, tools and history included"
_SPELLED = "other tokens for the same text: a copy that is spelled otherwise shares no prefix"

BEFORE_A_CALL = (
    Rule(
        "clock-in-root",
        "warning",
        "a date or time stands at the head of the prompt",
        f"once it moves on, {_HEAD}",
        CAUSES["clock"].mend,
    ),
    Rule(
        "id-in-root",
        "warning",
        "an id that looks as if it were new in each request stands at the head of the prompt",
        _HEAD,
        CAUSES["uuid-or-hash"].mend,
    ),
    Rule(
        "counter-in-root",
        "warning",
        "a number that counts calls, steps or tokens stands at the head of the prompt",
        _HEAD,
        CAUSES["counter"].mend,
    ),
    Rule(
        "volatile-placeholder",
        "warning",
        "a placeholder of a prompt template is filled with a time, an id, a counter or chance",
        _HEAD,
        "take it out of the template and give the value in the newest message",
    ),
    Rule(
        "volatile-in-tools",
        "warning",
        "a tool's description holds a time, an id or a counter",
        "tools stand in front of everything, so that the whole prompt is computed again",
        "describe the tool in words that stay; give the value in the newest message",
    ),
    Rule(
        "crlf",
        "note",
        "lines end in CR LF",
        _SPELLED,
        "write LF; in git: `*.md text eol=lf` in .gitattributes",
    ),
    Rule(
        "trailing-blanks",
        "note",
        "lines end in blanks",
        "editors, YAML and templates strip them; then it is other text, without a common prefix",
        "take the blanks out",
    ),
    Rule(
        "not-nfc",
        "note",
        "text is not in Unicode's composed form",
        _SPELLED,
        CAUSES["unicode-normalisation"].mend,
    ),
    Rule(
        "bos-in-text",
        "warning",
        "a text spells the token that begins a prompt",
        "template or tokenizer put it there too, so that it comes twice or as plain characters",
        "take it out of the text",
    ),
    Rule(
        "system-late",
        "warning",
        "a system message stands inside the conversation",
        "some templates move it to the head, and the whole history is computed again",
        CAUSES["system-hoist"].mend,
    ),
    Rule(
        "system-several",
        "note",
        "the conversation begins with several system messages",
        "templates join them, keep the first or refuse; servers do so differently",
        "send one",
    ),
    Rule(
        "content-forms-mixed",
        "warning",
        "messages of one role have content as text here and as a list of one text there",
        "templates render the two forms differently, and the list form may come back as text",
        CAUSES["content-parts-vs-string"].mend,
    ),
    Rule(
        "arguments-rewritten",
        "warning",
        "the arguments of a tool call are no longer the text that the model wrote",
        "spelled otherwise (True for true, other blanks), they end what the next call can reuse",
        CAUSES["re-serialised-arguments"].mend,
    ),
    Rule(
        "duplicate-key",
        "error",
        "an object has the same key twice",
        "which one counts depends on who reads it: client, gateway and server may differ",
        "keep one",
    ),
    Rule(
        "cut-off",
        "error",
        "a .json file ends in the middle",
        "nothing in it was looked at",
        "write it whole, or keep it out of the folder",
    ),
    Rule(
        "tools-last",
        "note",
        "the body has its messages or input before its tools",
        "a server that renders or hashes bodies in their order puts what grows before what stays",
        CAUSES["input-before-tools"].mend,
    ),
    Rule(
        "cache-mark-missing",
        "warning",
        "a body for Anthropic asks for no cache at all",
        "every token of it is billed in full in each call",
        "set cache_control on the last block that stays, or on the body",
    ),
    Rule(
        "cache-marks-too-many",
        "error",
        "a body for Anthropic has more cache breakpoints than the API takes",
        "the request is refused",
        "keep one on the tools or the system text, and those on the newest messages",
    ),
    Rule(
        "cache-mark-far",
        "warning",
        "more content blocks are new since the last call, or stand behind the last breakpoint, "
        "than the provider looks back over",
        "the next call does not find the entry, and writes the whole prompt anew",
        CAUSES["lookback-exceeded"].mend,
    ),
    Rule(
        "cache-below-minimum",
        "note",
        "what stands before a body's last cache breakpoint is shorter than the provider caches",
        "the breakpoint does nothing, silently",
        CAUSES["below-minimum"].mend,
    ),
    Rule(
        "short-prefix",
        "warning",
        "system text and tools are shorter than the engine's match unit (`--unit`)",
        "sessions that share nothing but them never hit, silently",
        CAUSES["shorter-than-unit"].mend,
    ),
)


def _of_cause(cause: Cause) -> Rule:
    about = CAUSES[cause]
    severity: Severity = "note" if cause in _NOTES else "warning"
    return Rule(cause, severity, about.what, "the tokens that the finding names", about.mend)


IN_RECORDED_CALLS = tuple(_of_cause(cause) for cause in CAUSES if cause not in NOT_RULES)
RULES = {rule.name: rule for rule in (*BEFORE_A_CALL, *IN_RECORDED_CALLS)}
