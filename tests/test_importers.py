"""Importers: small files of every form with exact expectations, real ones, broken ones."""

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from duramen.experiments.importers.read import read_sessions
from duramen.experiments.importers.traces import read_traces
from duramen.experiments.trajectory import Call, Origin, Sending, Session, Usage
from duramen.layout.errors import TrajectoryError

SHARED = Path(__file__).parents[2] / "shared" / "data"
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "What is here?"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "." }'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "a.py"}
ANSWER = {"role": "assistant", "content": "One file."}
LS = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}
TOLD = [SYSTEM, USER, CALL, RESULT, ANSWER]


@pytest.fixture
def read(tmp_path):
    """Write a file and read its sessions. A list of values is JSONL, bytes are written as is."""

    def write_and_read(content, name="log.jsonl"):
        path = tmp_path / name
        lines = content if isinstance(content, list) else []
        path.write_bytes(content if isinstance(content, bytes) else jsonl(lines))
        return list(read_sessions([path]))

    return write_and_read


def jsonl(values):
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def test_chat_requests_of_two_sessions(read):
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None}
    cached = usage | {"prompt_tokens_details": {"cached_tokens": 0}}
    lines = [
        {
            "session_id": "a",
            "timestamp": 100.5,
            "messages": TOLD[:2],
            "tools": [LS],
            "response": CALL,
        },
        {"session_id": "b", "messages": [USER], "choices": [{"message": ANSWER}]},
        {
            "session_id": "a",
            "timestamp": "1970-01-01T00:01:42Z",
            "messages": TOLD[:4],
            "tools": [LS],
            "response": {"choices": [{"message": ANSWER}], "usage": cached},
        },
    ]
    a, b = read(lines)
    assert a == Session(
        session_id="a",
        calls=(
            Call((SYSTEM, USER), CALL, 0.0),
            Call((SYSTEM, USER, CALL, RESULT), ANSWER, 1.5, Usage(9, 0, 2)),
        ),
        tools=(LS,),
        start_time_s=100.5,
        origins=dict.fromkeys(
            ["messages", "reply", "tools", "time_s", "start_time_s", "usage"], Origin.RECORDED
        ),
    )
    assert a.calls[0].messages[1] is a.calls[1].messages[1]
    assert b.calls == (Call((USER,), ANSWER),)
    assert b.origins == dict.fromkeys(["messages", "reply", "tools"], Origin.RECORDED)


def test_chat_requests_without_session_id_continue_what_they_extend(read):
    other = {"role": "user", "content": "And there?"}
    lines = [{"messages": m} for m in ([SYSTEM, USER], [SYSTEM, other])]
    lines.append({"messages": TOLD[:4], "model": "m"})
    first, second = read(lines)
    assert [len(call.messages) for call in first.calls] == [2, 4]
    assert [call.reply for call in first.calls] == [CALL, None]  # told by the next request
    assert first.origins["reply"] is Origin.DERIVED
    assert second.calls == (Call((SYSTEM, other), None),)
    assert "reply" not in second.origins


def test_calls_are_put_in_order_of_time(read):
    lines = [
        {
            "session_id": 7,
            "timestamp": 1_700_000_002_000,
            "messages": TOLD[:4],
            "response": "Late.",
        },
        {"session_id": 7, "timestamp": 1_700_000_000, "messages": TOLD[:2], "response": None},
    ]
    [session] = read(lines)
    assert (session.session_id, session.start_time_s) == ("7", 1_700_000_000)
    assert [(call.time_s, call.reply) for call in session.calls] == [
        (0.0, CALL),
        (2.0, {"role": "assistant", "content": "Late."}),
    ]


def test_other_tools_in_one_call_stay_with_that_call(read):
    turned = {"function": LS["function"], "type": "function"}  # equal, but other JSON text
    lines = [
        {"session_id": "a", "messages": [USER], "tools": [LS], "response": ANSWER},
        {"session_id": "a", "messages": [USER], "tools": [turned], "response": ANSWER},
        {"session_id": "a", "messages": [USER], "response": ANSWER},
    ]
    [session] = read(lines)
    assert [call.tools for call in session.calls] == [None, (turned,), ()]
    assert list(session.tools_of(session.calls[1])[0]) == ["function", "type"]
    assert session.tools_of(session.calls[0]) == (LS,)


def test_how_a_body_was_sent(read):
    completion = {
        "model": "m-1",
        "system_fingerprint": "fp",
        "prompt_token_ids": [1, 2],
        "choices": [{"message": ANSWER, "token_ids": [3]}],
    }
    marked = {
        "role": "user",
        "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}],
    }
    body = {
        "tools": [LS],
        "messages": [SYSTEM, marked],
        "model": "m",
        "cache_salt": "tenant",
        "temperature": 0,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    [session] = read([{"session_id": "a", **body, "response": completion}])
    [call] = session.calls
    assert call.messages[1] == {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
    assert call.sending == Sending(
        model="m",
        salt="tenant",
        options={"chat_template_kwargs": {"enable_thinking": False}},
        keys=tuple(body),
        replica="fp",
        marks=(1,),
        token_ids=(1, 2),
        reply_ids=(3,),
    )
    [plain] = read([{"messages": [USER], "response": "Yes."}])
    assert plain.calls[0].sending == Sending()  # no body: its keys say nothing


def test_what_a_log_says_of_its_origins_holds(read):
    line = {
        "messages": [USER],
        "response": "Yes.",
        "timestamp": 1,
        "origins": {"time_s": "assumed"},
    }
    assert read([line])[0].origins["time_s"] is Origin.ASSUMED
    conversation = {"messages": TOLD, "timestamp": 1, "origins": {"reply": "assumed"}}
    assert read([conversation])[0].origins == {
        "messages": Origin.DERIVED,
        "reply": Origin.ASSUMED,
        "start_time_s": Origin.RECORDED,
    }


@pytest.mark.parametrize("line", [{"messages": TOLD}, TOLD, {"messages": [*TOLD, USER]}])
def test_a_finished_conversation_is_one_call_per_assistant_message(read, line):
    [session] = read(json.dumps(line, indent=1).encode())
    assert session.calls == (Call((SYSTEM, USER), CALL), Call((SYSTEM, USER, CALL, RESULT), ANSWER))
    assert session.origins == {"messages": Origin.DERIVED, "reply": Origin.RECORDED}
    assert session.session_id == "log:1"


def test_tau_bench(read):
    results = [
        {"task_id": 3, "trial": 1, "reward": 0.0, "info": {}, "traj": [*TOLD, USER]},
        {"task_id": 4, "trial": 0, "reward": 0.0, "info": {"error": "limit"}, "traj": []},
    ]
    done, failed = read(json.dumps(results).encode())
    assert done.session_id == "task-3-trial-1"
    assert [call.reply for call in done.calls] == [CALL, ANSWER]
    assert done.origins == {"messages": Origin.DERIVED, "reply": Origin.DERIVED}
    assert (failed.session_id, failed.calls) == ("task-4-trial-0", ())


def swe(message, **bookkeeping):
    return message | {"agent": "main", "message_type": "action"} | bookkeeping


def test_swe_agent_history_only(read):
    history = [
        swe(SYSTEM),
        swe(USER, is_demo=True),
        swe(ANSWER, is_demo=True),
        swe(USER, tags=["x"], tool_calls=None),
        swe(CALL, thought="t", action="ls"),
        {"role": "tool", "content": "a.py", "tool_call_ids": ["c1"], "agent": "main"},
        swe(SYSTEM, agent="helper"),
        swe(ANSWER, agent="helper"),
        swe(ANSWER),
    ]
    main, helper = read(json.dumps({"history": history}, indent=2).encode(), "run.traj")
    prompt = (SYSTEM, USER, ANSWER, USER)
    assert main.calls == (Call(prompt, CALL), Call((*prompt, CALL, RESULT), ANSWER))
    assert main.origins == {"messages": Origin.DERIVED, "reply": Origin.RECORDED}
    assert (main.session_id, helper.session_id) == ("run", "run:helper")
    assert helper.calls == (Call((SYSTEM,), ANSWER),)


@pytest.mark.parametrize("key", ["query", "messages"])
def test_swe_agent_steps_that_record_what_was_sent(read, key):
    elided = {"role": "user", "content": "Old output omitted."}
    said = swe(CALL | {"content": "I look."})
    steps = [
        {"response": "I look.", key: [swe(SYSTEM), swe(USER)]},
        {"response": "One file.", key: [swe(SYSTEM), swe(elided)]},
        {"response": "", key: [{}]},
    ]
    run = {"trajectory": steps, "history": [swe(SYSTEM), swe(USER), said, swe(ANSWER)]}
    [session] = read(json.dumps(run).encode(), "run.traj")
    assert session.calls == (
        Call((SYSTEM, USER), CALL | {"content": "I look."}),
        Call((SYSTEM, elided), ANSWER),
    )
    assert session.origins == {"messages": Origin.RECORDED, "reply": Origin.RECORDED}
    assert session.calls[0].messages[0] is session.calls[1].messages[0]


def test_swe_agent_reply_that_is_not_in_the_history_keeps_its_text(read):
    steps = [{"response": "Oops", "query": [USER]}, {"response": "One file.", "query": [USER]}]
    [session] = read(json.dumps({"trajectory": steps, "history": [USER, ANSWER]}).encode())
    assert [call.reply for call in session.calls] == [
        {"role": "assistant", "content": "Oops"},
        ANSWER,
    ]
    assert session.origins["reply"] is Origin.DERIVED


def test_swe_agent_attempts_are_sessions(read):
    attempt = {"history": [USER, ANSWER], "trajectory": []}
    sessions = read(json.dumps({"attempts": [attempt, attempt], **attempt}).encode(), "run.traj")
    assert [s.session_id for s in sessions] == ["run:attempt-0", "run:attempt-1"]


def openhands_events():
    def event(second, source, **rest):
        return {"timestamp": f"1970-01-01T00:00:{second:02}", "source": source, **rest}

    response = {"id": "r1", "choices": [{"message": CALL | {"function_call": None}}]}
    response["usage"] = {"prompt_tokens": 5, "completion_tokens": 1}
    made = {"tool_call_id": "c1", "function_name": "ls", "model_response": response}
    shell = {"metadata": {"prefix": "", "suffix": "\n[done]"}}
    return [
        event(1, "agent", action="system", args={"content": "Be brief.", "tools": [LS]}),
        event(2, "user", action="message", args={"content": "What is here?", "image_urls": None}),
        event(3, "user", action="recall", args={}),
        event(4, "environment", observation="recall", content="Added"),
        event(6, "agent", action="run", args={}, tool_call_metadata=made),
        event(7, "agent", observation="run", content="a.py", tool_call_metadata=made, extras=shell),
        event(9, "agent", action="message", args={"content": "One file."}),
    ]


@pytest.mark.parametrize("form", ["events", "pairs", "list"])
def test_openhands(read, form):
    events = openhands_events()
    history = [events[:4], events[4:6], events[6:]] if form == "pairs" else events
    run = {"instance_id": "i-1", "history": history}
    [session] = read([run]) if form != "list" else read(json.dumps(events).encode())
    result = {"role": "tool", "tool_call_id": "c1", "name": "ls", "content": "a.py\n[done]"}
    assert session == Session(
        session_id="log" if form == "list" else "i-1",
        calls=(
            Call((SYSTEM, USER), CALL, 0.0, Usage(5, None, 1)),
            Call((SYSTEM, USER, CALL, result), ANSWER, 3.0),
        ),
        tools=(LS,),
        start_time_s=4.0,
        origins={
            "messages": Origin.DERIVED,
            "reply": Origin.DERIVED,  # the second one is rebuilt from an event
            "tools": Origin.RECORDED,
            "time_s": Origin.DERIVED,
            "start_time_s": Origin.ASSUMED,
            "usage": Origin.RECORDED,
        },
    )


def test_openhands_without_system_event_is_assumed_and_a_failed_run_has_no_calls(read):
    runs = [
        {"instance_id": "i-1", "history": openhands_events()[1:6]},
        {"instance_id": "i-2", "history": None, "error": "no sandbox"},
    ]
    first, failed = read(runs)
    assert first.origins["messages"] is Origin.ASSUMED
    assert "tools" not in first.origins
    assert failed.calls == ()


def test_session_ids_are_unique_over_files(tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(jsonl([{"session_id": "s", "messages": TOLD}]))
    (tmp_path / "notes.txt").write_text("not read")
    assert [s.session_id for s in read_sessions([tmp_path])] == ["s", "b/s"]
    with pytest.raises(TrajectoryError, match=r"b\.jsonl is given twice"):
        list(read_sessions([tmp_path, tmp_path / "b.jsonl"]))


def test_a_byte_order_mark_crlf_and_blank_lines_are_allowed(read):
    lines = jsonl([{"messages": TOLD}, {"messages": TOLD}]).replace(b"\n", b"\r\n\r\n \n")
    assert len(read(b"\xef\xbb\xbf" + lines)) == 2


GOOD = json.dumps({"messages": [USER], "response": "Yes."}).encode()
DEEP = b'{"messages": [{"role": "user", "content": [{"type": "x", "v": %s}]}]}'


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "log.jsonl is empty"),
        (b" \r\n\n", "log.jsonl is empty"),
        (GOOD[:-3], "log.jsonl:1: the JSON is cut off in the middle"),
        (GOOD + b"\n" + GOOD[:-1] + b"\n", "log.jsonl:2: the JSON is cut off in the middle"),
        (b'[\n{"traj": [],\n"task_id": 1', "log.jsonl:3: the JSON is cut off in the middle"),
        (b'[\n{"traj": [],\n"task_id": 1x}]', "log.jsonl:3: not valid JSON"),
        (GOOD + b"\nnot json\n", "log.jsonl:2: not valid JSON"),
        (GOOD + b"\n" + b'{"messages": 5}', r"log.jsonl:2: messages is a number; expected a list"),
        (GOOD + b"\n" + b"{}", "log.jsonl:2: messages is null or missing"),
        (GOOD + b"\n" + b"[]", "log.jsonl:2: messages is an empty list"),
        (GOOD.replace(b"user", b"us\x00er"), "log.jsonl:1: not valid JSON"),
        (GOOD.replace(b"user", b"us\xffer"), "log.jsonl:1: not valid JSON"),
        (GOOD.replace(b'"user"', b"1" * 5000), "log.jsonl:1: not valid JSON"),
        (GOOD.replace(b'"user"', b"1" * 30), r"messages\[0\].role is a number; expected one of"),
        (b"[" * 100_000, "log.jsonl:1: the JSON is nested too deeply"),
        (DEEP % (b"[" * 200 + b"]" * 200), r"messages\[0\] is nested deeper than 64 levels"),
        (
            GOOD[:-1] + b', "model": "m", "documents": %s}' % (b"[" * 200 + b"]" * 200),
            r"'log:1' call 0: documents is nested deeper than 64 levels",
        ),
        (gzip.compress(GOOD), "is gzip-compressed; decompress it first"),
        (GOOD.decode().encode("utf-16"), "is UTF-16"),
        (b"7", "unknown form, a number; expected OpenAI chat JSONL"),
        (b"{}", "unknown form, an object with no known keys; expected OpenAI chat JSONL"),
        (b"[]", "unknown form"),
        (b'[{"dialogue": []}]', "unknown form, a list of objects with dialogue"),
        (b'{"spans": [], "id": 1}', "unknown form, an object with spans, id; expected OpenAI"),
        (b'{"hash_ids": [1]}', "bears no text; use `duramen simulate`"),
        (b'{"messages_display": "user: Hi"}', "has lost its tool calls"),
        (b'{"messages": [{"role": "user", "content": 5}]}', r"content is a number; expected text"),
        (b'{"messages": [{"role": "user", "content": ["x"]}]}', r"content\[0\] is 'x'; expected"),
        (b'{"messages": [{"role": "assistant", "tool_calls": [{}]}]}', r"tool_calls\[0\] is null"),
        (b'{"messages": [], "response": 1}', "messages is an empty list"),
        (GOOD.replace(b'"Yes."', b"5"), "response is a number; expected a chat completion"),
        (GOOD.replace(b'"Yes."', b'{"choices": []}'), "response.choices is an empty list"),
        (GOOD[:-1] + b', "timestamp": true}', "timestamp is true or false; expected Unix seconds"),
        (GOOD[:-1] + b', "timestamp": "soon"}', "timestamp is 'soon'; expected an ISO date"),
        (GOOD[:-1] + b', "usage": {"prompt_tokens": -1}}', "usage.prompt_tokens is a number"),
        (GOOD[:-1] + b', "session_id": []}', "session_id is an empty list; expected text"),
        (GOOD[:-1] + b', "tools": [{"name": "x"}]}', r"tools\[0\].function is null or missing"),
        (GOOD[:-1] + b', "functions": []}', "expected tools"),
        (GOOD[:-1] + b', "origins": {"time_s": "guess"}}', "origins.time_s is 'guess'"),
        (
            jsonl([{"session_id": "s", "messages": TOLD}] * 2),
            "log.jsonl:2: conversation 's' stands",
        ),
        (b'[{"traj": [], "task_id": "x", "trial": 0}]', r"\[0\].task_id is 'x'; expected a number"),
        (b'{"history": [], "trajectory": [{"response": "x"}]}', "history is an empty list"),
        (b'{"history": {"a": 1}}', "history is an object; expected a list"),
        (b'{"history": ["x"]}', r"history\[0\] is 'x'; expected an object"),
        (b'{"trajectory": [{"query": [{"role": "user"}]}]}', r"trajectory\[0\].response is null"),
        (b'{"instance_id": "i", "history": [{"source": "agent", "action": "run"}]}', "tool_call_m"),
        (b'{"instance_id": "i", "history": [{"source": "user", "action": "message"}]}', "args is"),
    ],
)
def test_broken_and_odd_input_is_one_clear_line(read, content, error):
    with pytest.raises(TrajectoryError, match=error) as raised:
        read(content)
    assert "\n" not in str(raised.value)


def test_what_cannot_be_opened_is_one_clear_line(tmp_path):
    with pytest.raises(TrajectoryError, match="is no file; expected a JSON or JSONL file"):
        list(read_sessions([tmp_path / "missing.jsonl"]))
    with pytest.raises(TrajectoryError, match="holds no trajectories; expected files in"):
        list(read_sessions([tmp_path]))


def test_a_loop_of_links_is_no_file(tmp_path):
    link = tmp_path / "a.jsonl"
    link.symlink_to(link)
    for path in (link, tmp_path):
        with pytest.raises(TrajectoryError, match=r"a\.jsonl is no file"):
            list(read_sessions([path]))


def test_a_folder_that_is_called_like_a_file_is_a_folder(tmp_path):
    (tmp_path / "runs.json").mkdir()
    (tmp_path / "runs.json" / "log.jsonl").write_bytes(GOOD)
    assert len(list(read_sessions([tmp_path]))) == 1


def test_a_session_that_is_named_after_its_file_has_a_name_in_unicode(tmp_path):
    path = os.fsencode(tmp_path) + b"/b\xff.jsonl"
    Path(os.fsdecode(path)).write_bytes(GOOD)
    assert [session.session_id for session in read_sessions([tmp_path])] == ["b\\udcff:1"]


def test_sessions_before_a_broken_line_are_not_lost(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(jsonl([{"messages": TOLD}]) + b"{\n")
    sessions = read_sessions([path])
    assert len(next(sessions).calls) == 2
    with pytest.raises(TrajectoryError, match=r"log\.jsonl:2"):
        next(sessions)


LINES = [
    {"messages": TOLD},
    {"session_id": "é", "messages": TOLD[:2], "response": CALL, "timestamp": 1.5},
    {"messages": [USER], "response": "Grüße {[,"},
    {"session_id": "é", "messages": TOLD[:4], "response": ANSWER, "timestamp": 2},
]
RAW = b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in LINES)
ENDS = [i for i, byte in enumerate(RAW) if byte == ord("\n")]


def test_a_file_cut_anywhere_is_an_error_or_holds_whole_lines(read):
    for cut in range(len(RAW) + 1):
        num_lines = sum(end <= cut for end in ENDS)
        if not num_lines:
            with pytest.raises(TrajectoryError):
                read(RAW[:cut])
            continue
        *sessions, last = read(RAW[:cut])
        assert [*sessions, replace(last, notes=())] == read(LINES[:num_lines])
        num_bytes = cut - ENDS[num_lines - 1] - 1
        if num_bytes > 0:
            [note] = last.notes
            assert note.endswith(f"the last line is cut off: its {num_bytes:,} bytes are left out")
        else:
            assert last.notes == ()


def test_only_broken_lines_are_skipped(tmp_path):
    path, reasons = tmp_path / "log.jsonl", []
    good = jsonl([{"session_id": name, "messages": [USER], "response": "Yes."} for name in "ab"])
    path.write_bytes(b"not json\n" + good + b'{"messages": 5}\n' + GOOD)
    sessions = list(read_sessions([path], reasons.append))
    assert [session.session_id for session in sessions] == ["a", "b", "log:3"]
    assert [reason.partition(": ")[0] for reason in reasons] == [f"{path}:1", f"{path}:4"]
    assert all(reason.endswith("that line is left out") for reason in reasons)
    path.write_bytes(b"not json\n" * 30)
    reasons.clear()
    assert list(read_sessions([path], reasons.append)) == []
    assert len(reasons) == 1


def assistant_messages(path):
    """The number of calls in a real file, counted without the importers."""
    if path.parent.name == "tau-bench":
        runs = [result["traj"] for result in json.loads(path.read_text())]
    elif path.parent.name == "swe-agent":
        runs = [json.loads(path.read_text())["history"]]
    elif path.parent.name == "mini-swe-agent":
        runs = [json.loads(path.read_text())]
    elif path.name == "output.jsonl":
        return sum(
            len(json.loads(line)["metrics"]["token_usages"])
            for line in path.read_bytes().splitlines()
        )
    else:
        events = json.loads(path.read_text())
        return sum(e["source"] == "agent" and "action" in e for e in events)
    return sum(m["role"] == "assistant" and not m.get("is_demo") for run in runs for m in run)


@pytest.fixture
def shared(notice):
    """The folder of real recordings. Where it is missing the tests see no files, and say so."""
    if not SHARED.is_dir():
        notice(f"no real data at {SHARED}: no real trajectories are read")
    return SHARED


@pytest.mark.parametrize(
    "pattern",
    ["tau-bench/*.json", "swe-agent/*.traj", "mini-swe-agent/*.json", "openhands/*.json*"],
)
def test_real_files_have_one_call_per_assistant_message(shared, pattern):
    for path in sorted(shared.glob(pattern)):
        sessions = list(read_sessions([path]))
        assert sum(len(s.calls) for s in sessions) == assistant_messages(path), path.name
        for session in sessions:
            assert {"messages", "reply"} <= session.origins.keys()
            for call in session.calls:
                assert call.reply is not None
                assert call.reply["role"] == "assistant"
                assert not {"agent", "message_type", "thought"} & call.messages[-1].keys()


def test_real_openhands_usage_is_what_the_run_reported(shared):
    for path in shared.glob("openhands/output.jsonl"):
        runs = [json.loads(line) for line in path.read_bytes().splitlines()]
        for session, run in zip(read_sessions([path]), runs, strict=True):
            assert session.session_id == run["instance_id"]
            assert [call.usage.prompt_tokens for call in session.calls] == [
                usage["prompt_tokens"] for usage in run["metrics"]["token_usages"]
            ]


@pytest.mark.parametrize("name", ["pipe", "pipe.jsonl", "pipe.csv"])
def test_a_named_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    for read in (read_sessions, read_traces):
        with pytest.raises(TrajectoryError, match=f"{name} is no file; expected"):
            list(read([tmp_path / name]))
