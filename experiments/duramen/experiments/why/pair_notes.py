"""What is said of two requests beside a break: keys that come twice, and that nothing parts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from duramen.experiments.lint.finding import Source
from duramen.experiments.lint.json_places import NotJson, read_placed
from duramen.experiments.trajectory import Call
from duramen.experiments.why.explained import ExplainedCall
from duramen.layout.diagnose.media import media_change
from duramen.layout.errors import TrajectoryError


def repeated_keys(path: Path, text: str, value: Any) -> tuple[str, ...]:
    """At most one note, on the keys that an object of `text` has twice; `value` is what it spells.
    Raises TrajectoryError for JSON that is nested too deeply."""
    item = value[0] if isinstance(value, list) and value else value
    if not isinstance(item, dict):
        return ()
    try:
        repeated = read_placed(text).repeated
    except NotJson as error:
        raise TrajectoryError(f"{path}: {error}") from None
    if not repeated:
        return ()
    key_path, start, end = repeated[0]
    at = Source(path, text).span(start, end)
    every = f" (and {len(repeated) - 1} more)" if len(repeated) > 1 else ""
    return (
        f"{path}:{at.line}:{at.column}: the key {key_path[-1]!r} comes twice in one object{every}; "
        "the last one counts, as it does for engines",
    )


def what_is_shared(
    explained: Sequence[ExplainedCall], calls: Sequence[Call], unit_tokens: int
) -> tuple[str, ...]:
    """At most one note on two requests whose tokens do not part."""
    before, after = explained
    if after.broken is not None and after.broken.layer != "block":
        return ()
    if (note := _other_media(*calls)) is not None:
        return (note,)
    if after.broken is not None:
        return ()
    if after.num_tokens is None or before.num_tokens is None:
        return ("A and B show no difference, and the template renders no prompt of them",)
    if after.lcp == after.num_tokens == before.num_tokens:
        how = f"the prompts of A and B are equal, all {after.num_tokens:,} tokens"
    elif after.lcp == after.num_tokens:
        how = f"B is how A begins: {after.num_tokens:,} of its {before.num_tokens:,} tokens"
    else:
        how = f"B begins with all {before.num_tokens:,} tokens of A"
    return (f"{how}: {after.reusable or 0:,} can be reused, in whole units of {unit_tokens}",)


def _other_media(before: Call, after: Call) -> str | None:
    """Templates write the same tokens for any image; engines tell its blocks apart by its hash
    (vLLM's extra keys)."""
    for index, (old, new) in enumerate(zip(before.messages, after.messages, strict=False)):
        change = media_change(old.get("content"), new.get("content"))
        if change is not None:
            return (
                f"the tokens show no difference, but message {index}, {change.where}: "
                f"{change.evidence}; an engine reuses nothing from there on"
            )
    return None
