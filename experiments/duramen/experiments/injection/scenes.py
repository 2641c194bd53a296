"""Real calls to make cases of, and real transitions in which nothing breaks.

What only appends is decided by comparing messages, never by asking the code that is judged.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.resources import as_file, files
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args

from duramen.experiments.importers.read import read_sessions
from duramen.experiments.injection.cases import Scene, bare
from duramen.experiments.trajectory import Call, Session

HalfName = Literal["develop", "opened", "held_out"]
FOLDERS = ("tau-bench", "swe-agent", "mini-swe-agent", "openhands", "sharegpt")
MAX_SCENE, MAX_CALL = 14_000, 40_000  # characters of a call, so that a run stays short
SCENES_A_SESSION = 3


def real_sessions(shared: Path | None) -> list[Session]:
    """Of the packaged demo, and of the recorded data beside the repository where it is."""
    found: list[Session] = []
    with as_file(files("duramen.experiments").joinpath("demo")) as demo:
        found += read_sessions([demo])
    if shared is not None:
        paths = [shared / folder for folder in FOLDERS if (shared / folder).is_dir()]
        found += read_sessions(paths, skipped=lambda reason: None)
    return [replace(session, calls=tuple(map(bare, session.calls))) for session in found]


def half_of(sessions: Iterable[Session], half: HalfName) -> list[Session]:
    """Every third session."""
    names = get_args(HalfName)
    return list(sessions)[names.index(half) :: len(names)]


def only_appends(session: Session, before: Call, after: Call) -> bool:
    """`after` is `before`'s messages, then its reply, then something new, with the same tools."""
    num = len(before.messages)
    return (
        len(after.messages) > num + 1
        and after.messages[:num] == before.messages
        and before.reply is not None
        and after.messages[num] == before.reply
        and session.tools_of(after) == session.tools_of(before)
    )


def size(session: Session, call: Call) -> int:
    """Characters, about."""
    return len(json.dumps([*call.messages, *session.tools_of(call)], ensure_ascii=False))


def scenes(sessions: Iterable[Session]) -> Iterator[Scene]:
    """Up to SCENES_A_SESSION of each session: the first pair that fits, the last, the middle."""
    for session in sessions:
        pairs = [
            Scene(session.session_id, before, after, session.tools)
            for before, after in pairwise(session.calls)
            if before.messages
            and before.messages[-1].get("role") != "assistant"
            and only_appends(session, before, after)
            and size(session, after) <= MAX_SCENE
        ]
        chosen = [0, len(pairs) - 1, len(pairs) // 2][:SCENES_A_SESSION]
        yield from (pairs[index] for index in sorted(set(chosen)) if 0 <= index < len(pairs))


def untouched(sessions: Iterable[Session]) -> Iterator[tuple[Session, list[int]]]:
    """Sessions cut where calls get long, with those calls that only append to the one before."""
    for session in sessions:
        calls = tuple(call for call in session.calls if size(session, call) <= MAX_CALL)
        short = replace(session, calls=calls)
        appending = [
            index + 1
            for index, (before, after) in enumerate(pairwise(calls))
            if only_appends(short, before, after)
        ]
        if appending:
            yield short, appending
