"""Plays a scenario against a copy of the checkout and writes it as OpenAI chat JSONL.

One line per call: session_id, timestamp, model, messages, tools, response, timing, origins. The
tools run for real, and their outputs and times (`timing.tools_s`) are real. The agent's turns are
written by hand, no model sampled them: the reply counts as assumed, and so does the time it would
have taken (`timing.model_s`). A call's timestamp is the session's start plus both; a session
starts where the one before it ended, since none could have run beside it.
"""

import os
import re
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from duramen.experiments.record.scenario import Scenario, Turn
from duramen.experiments.record.tools import SOURCE_FOLDERS, TOOL_DEFINITIONS, Tools
from duramen.layout.errors import TrajectoryError

SYSTEM_PROMPT = """\
You are a coding agent that works in the checkout of a Python project. You mend one fault at a time.

Rules:
- Look before you change: find the code with list_files and grep, and read the lines around it.
- Make the smallest edit that removes the cause. Do not change a test to make it pass.
- Prove every change by running the tests, before and after it.
- All paths are relative to the root of the repository. You have no network.
- When the task is done, say in a few sentences what was wrong, what you changed and how you know \
that it works."""
MODEL_BASE_S = 0.6  # assumed: a first token after 0.6 s, then 60 characters a second
MODEL_CHARS_PER_S = 60.0
ORIGINS = {"reply": "assumed", "time_s": "assumed", "start_time_s": "assumed"}


def record(scenario: Scenario, checkout: Path, out_dir: Path, start_s: float) -> tuple[Path, float]:
    """Play `scenario` on a copy of `checkout` from Unix time `start_s` on.

    Returns the file that was written, whole or not at all, and when the session ended. Raises
    TrajectoryError if the checkout does not fit the scenario or the recording would show where it
    was made.
    """
    if not (checkout / "pyproject.toml").is_file():
        raise TrajectoryError(f"{checkout} holds no pyproject.toml: run this in the repo's root")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        shutil.copy(checkout / "pyproject.toml", root)
        for source in SOURCE_FOLDERS:
            skip = shutil.ignore_patterns("__pycache__", "*.jsonl", "record")
            shutil.copytree(checkout / source, root / source, ignore=skip)
        scenario.seed(root)
        lines, end_s = play(scenario, root, start_s)
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    check_anonymous(data.decode(), root)
    out_dir.mkdir(parents=True, exist_ok=True)
    path = out_dir / f"{scenario.name}.jsonl"
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(data)
    return unfinished.replace(path), end_s


def play(scenario: Scenario, root: Path, start_s: float) -> tuple[list[dict[str, Any]], float]:
    """The lines of the session and when it ended; `root` is edited on the way."""
    tools = Tools(root)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": scenario.task},
    ]
    lines = []
    timestamp = start_s
    for index, turn in enumerate(scenario.turns):
        reply = _reply(turn, root, f"{scenario.name}-{index}")
        model_s = MODEL_BASE_S + len(msgspec.json.encode(reply)) / MODEL_CHARS_PER_S
        started_s = time.perf_counter()
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": tools.run(*_parts(call))}
            for call in reply.get("tool_calls", [])
        ]
        tools_s = time.perf_counter() - started_s
        line = {
            "session_id": scenario.name,
            "timestamp": round(timestamp, 3),
            "model": "scripted",
            "messages": list(messages),
            "tools": TOOL_DEFINITIONS,
            "response": reply,
            "timing": {"model_s": round(model_s, 3), "tools_s": round(tools_s, 3)},
            "origins": ORIGINS,
        }
        lines.append(line)
        messages += [reply, *results]
        timestamp += model_s + tools_s
    return lines, timestamp


def _reply(turn: Turn, root: Path, call_id: str) -> dict[str, Any]:
    reply: dict[str, Any] = {"role": "assistant", "content": turn.text}
    if turn.uses:
        reply["tool_calls"] = [
            {
                "id": f"call-{call_id}-{index}",
                "type": "function",
                "function": {
                    "name": use.tool,
                    "arguments": msgspec.json.encode(use.arguments_in(root)).decode(),
                },
            }
            for index, use in enumerate(turn.uses)
        ]
    return reply


def _parts(call: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return call["function"]["name"], msgspec.json.decode(call["function"]["arguments"])


def check_anonymous(text: str, root: Path) -> None:
    """Raise TrajectoryError if `text` names the place, the machine or the home of the recording."""
    traces = [str(root), tempfile.gettempdir() + os.sep, str(Path.home()) + os.sep, sys.prefix]
    found = [trace for trace in [*traces, "site-packages"] if len(trace) > 2 and trace in text]
    found += re.findall(rf"\b{re.escape(socket.gethostname())}\b", text)
    if found:
        raise TrajectoryError(f"the recording holds {found[0]!r}, which must not be published")
