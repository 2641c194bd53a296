"""What a log as a whole shows of the settings that it is explained with: a line for each that does
not seem to fit."""

from collections.abc import Iterator, Sequence
from math import gcd

from duramen.experiments.why.explained import ExplainedCall

MIN_COUNTS = 3  # different ones, before their common unit is told
FEW_TOKENS = 8  # by which a server may count otherwise: BOS, what opens a reply


def notices(
    calls: Sequence[ExplainedCall], unit_tokens: int, model: str, *, is_default: bool
) -> Iterator[str]:
    """`model`: whose tokenizer and template were used. `is_default`: nobody named it."""
    own = [call for call in calls if call.provider is None]
    yield from _unit(own, unit_tokens)
    others = list(dict.fromkeys(call.model for call in calls if call.model))
    if is_default and others:
        more = "" if len(others) == 1 else f" and {len(others) - 1:,} more"
        mend = "name the folder of that model's files with --model DIR"
        yield (
            f"tokens and text are those of {model}, the default; the requests name "
            f"{others[0]!r}{more}: {mend if own else 'sizes are approximate'}"
        )
    yield from _lengths(own, model)


def _unit(calls: Sequence[ExplainedCall], unit_tokens: int) -> Iterator[str]:
    counts = {call.delivered for call in calls if call.delivered}
    unit = gcd(*counts)
    if len(counts) >= MIN_COUNTS and unit > unit_tokens:
        yield f"every delivered count is a multiple of {unit:,}: is --unit {unit} meant?"


def _lengths(calls: Sequence[ExplainedCall], model: str) -> Iterator[str]:
    known = [
        (call.reported_tokens, call.num_tokens)
        for call in calls
        if call.reported_tokens is not None and call.num_tokens is not None
    ]
    apart = [each for each in known if abs(each[0] - each[1]) > FEW_TOKENS]
    if 2 * len(apart) > len(known):
        reported, ours = apart[0]
        yield (
            f"{len(apart):,} of {len(known):,} calls report another prompt length than tokenizer "
            f"and template of {model} give, the first {reported:,} tokens and not {ours:,}: name "
            "those that served the log (--model DIR, or --tokenizer DIR --chat-template FILE)"
        )
