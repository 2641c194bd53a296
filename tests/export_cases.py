"""Sessions that every exporter's tests share, and how they are compared."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from duramen.experiments.exporters.exported import Exported
from duramen.experiments.importers.read import read_sessions
from duramen.experiments.record.demo import demo_paths
from duramen.experiments.trajectory import Call, Message, Sending, Session, Usage

READ = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
ASKED: Message = {"role": "user", "content": "What is in a.py?"}
CALLED: Message = {
    "role": "assistant",
    "content": None,
    "reasoning_content": "I have to look.",
    "tool_calls": [
        {
            "id": "call-1",
            "type": "function",
            "function": {"name": "read", "arguments": '{"path": "a.py", "n": 1.0}'},
        }
    ],
}
RESULT: Message = {"role": "tool", "tool_call_id": "call-1", "content": "x = 1\n"}
SAID: Message = {"role": "assistant", "content": "One line."}
SYSTEM: Message = {"role": "system", "content": "Be brief."}


def session(**sendings: Any) -> Session:
    """Two calls: a tool is called, its result is told. Times, usage and the model are on record."""
    sending = Sending(provider="vllm", model="m", duration_s=0.5, **sendings)
    first = Call((SYSTEM, ASKED), CALLED, 0.0, Usage(40, 0, 12, 40), sending=sending)
    second = Call((SYSTEM, ASKED, CALLED, RESULT), SAID, 2.5, Usage(70, 32, 5), sending=sending)
    return Session("s/1", (first, second), (READ,), start_time_s=1_700_000_000.0)


def edited() -> Session:
    """Its third call has another first message, its fourth goes on from there."""
    calls = session().calls
    other = {"role": "user", "content": "What is in b.py?"}
    third = replace(calls[0], messages=(SYSTEM, other), reply=SAID, time_s=3.0)
    fourth = replace(calls[0], messages=(SYSTEM, other, SAID, ASKED), reply=SAID, time_s=4.0)
    return replace(session(), calls=(*calls, third, fourth))


def ids_session(*prompts: list[int], name: str = "ids", **sendings: Any) -> Session:
    """Calls whose prompts are on record as ids."""
    calls = tuple(
        Call((ASKED,), SAID, usage=Usage(completion_tokens=3), sending=_sent(prompt, sendings))
        for prompt in prompts
    )
    return Session(name, calls)


def _sent(prompt: list[int], sendings: dict[str, Any]) -> Sending:
    return Sending(token_ids=tuple(prompt), **sendings)


def only(exported: Exported) -> Any:
    (file,) = exported.files
    return json.loads(file.text)


def lines(text: str) -> list[Any]:
    """JSON lines end with a line feed alone; text may hold other ends of lines."""
    return [json.loads(line) for line in text.removesuffix("\n").split("\n")]


def saved(exported: Exported, folder: Path) -> list[Path]:
    for file in exported.files:
        (folder / file.name).write_text(file.text)
    return [folder / file.name for file in exported.files]


def text_of(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content)


def said(message: Message) -> tuple[Any, ...]:
    """What a message says, however it is spelled."""
    calls = message.get("tool_calls") or ()
    return (
        message["role"],
        text_of(message.get("content")),
        message.get("reasoning_content") or message.get("reasoning"),
        message.get("tool_call_id"),
        [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls],
    )


def calls_of(sessions: list[Session]) -> list[Any]:
    return [
        (tuple(map(said, call.messages)), call.reply and said(call.reply), len(s.tools_of(call)))
        for s in sessions
        for call in s.calls
    ]


def usage_of(call: Call) -> tuple[int | None, ...]:
    usage = call.usage
    return usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens


def demo_sessions() -> list[Session]:
    return list(read_sessions(demo_paths()[:2]))


contents = st.one_of(
    st.none(),
    st.text(max_size=4),
    st.lists(
        st.one_of(
            st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=3)}),
            st.just({"type": "image_url", "image_url": {"url": "http://a/b.png"}}),
            st.just({"type": "text"}),
        ),
        max_size=2,
    ),
)
tool_calls = st.builds(
    lambda name, arguments, call_id: {
        "type": "function",
        "function": {"name": name, "arguments": arguments},
        **({} if call_id is None else {"id": call_id}),
    },
    st.sampled_from(["read", "write"]),
    st.sampled_from(["{}", '{"a": NaN}', "[]", "no JSON", "", {"b": 1}]),
    st.sampled_from([None, "1", "2"]),
)
replies = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": contents},
    optional={
        "tool_calls": st.lists(tool_calls, max_size=2),
        "reasoning_content": st.sampled_from([None, "", "Hm."]),
    },
)
messages = st.one_of(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user"]), "content": contents}
    ),
    st.fixed_dictionaries(
        {"role": st.just("tool"), "content": contents},
        optional={"tool_call_id": st.sampled_from(["1", "2", "3"])},
    ),
    replies,
)
calls = st.builds(
    Call,
    st.lists(messages, min_size=1, max_size=4).map(tuple),
    st.one_of(st.none(), replies),
    st.sampled_from([None, 0.0, 1.5]),
)
