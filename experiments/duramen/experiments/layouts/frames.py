"""How artifacts, tombstones and padding stand in messages.

An artifact's text stays as it is, since agents quote it in edits. So that it cannot close its frame
the frame's name is chosen for the text: `artifact`, or `artifact-N` with the smallest N whose
closing tag the text does not hold, in any case or spacing. Names inside frames and lines are
escaped and cannot leave their quotes or their line.
"""

import html
import re
from hashlib import blake2b

from duramen.experiments.layouts.artifacts import Version
from duramen.experiments.trajectory import Message

MAX_NAME_CHARS = 160
_CLOSING = re.compile(r"<\s*/\s*artifact(?:-(\d{1,9}))?(?![\w-])", re.I)
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029\[\]]")


def artifact_message(version: Version) -> Message:
    taken = {int(found[1] or 0) for found in _CLOSING.finditer(version.text)}
    number = next(n for n in range(len(taken) + 1) if n not in taken)
    tag = f"artifact-{number}" if number else "artifact"
    head = f'<{tag} uri="{shown_name(version.key)}" version="{version.number}">'
    return {"role": "user", "content": f"{head}\n{version.text}\n</{tag}>"}


def shown_name(key: str) -> str:
    """`key` on one line, quotes, angle and square brackets escaped, a long one cut and numbered by
    its digest."""
    shown = key
    if len(key) > MAX_NAME_CHARS:
        digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        shown = f"{key[:MAX_NAME_CHARS]}...{digest}"
    return _UNSAFE.sub(lambda found: f"&#{ord(found[0])};", html.escape(shown))


def named(version: Version) -> str:
    return f"artifact {shown_name(version.key)}, version {version.number}"


def pointer(version: Version, current: Version | None, *, stands: bool) -> str:
    """What a lifted result says in its own place. `stands`: its text is in the trunk."""
    if current == version:
        return f"[now {named(version)}, above]"
    later = f"version {current.number} holds now" if current else "superseded by a later change"
    return f"[{'now' if stands else 'was'} {named(version)}{', above' if stands else ''}: {later}]"


def tombstone(version: Version, current: Version | None) -> str:
    by = f"version {current.number}" if current else "a later change: read it again"
    return f"[{named(version)}: superseded by {by}]"


def padding_message(num_words: int) -> Message:
    """A message that says nothing, longer by about a token for each word."""
    return {"role": "user", "content": "<padding>\n" + "a " * num_words + "</padding>"}
