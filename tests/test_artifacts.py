"""The working set that follows from reads and writes, and how it is framed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.history import Turn
from duramen.experiments.layouts.artifacts import Version, WorkingSet
from duramen.experiments.layouts.catalogue import Change
from duramen.experiments.layouts.frames import artifact_message, pointer, shown_name, tombstone
from duramen.experiments.layouts.mistakes import PRUNED_TEXT, pruned
from duramen.experiments.layouts.observations import Use, tool_outputs, uses, written_command
from duramen.experiments.layouts.whole import Moment


def asked(name: str, arguments: dict, call_id: str = "c"):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": call_id, "type": "function", "function": function}


def call(*calls: dict):
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


def answer(text: str, call_id: str = "c"):
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def said(role: str, text: str):
    return {"role": role, "content": text}


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("I look.\n```\nls\n```", "ls"),
        ("```bash\nls\n```\n", "ls"),
        ("```mswea_bash_command\nls -l\ncat a\n```", "ls -l\ncat a"),
        ("```python\nx = 1\n```", None),
        ("```c++\nx\n```", None),
        ("```\nls\n```\nand then?", None),
        ("```python\nx\n```\n```\nls\n```", "ls"),
        ("ls\n```", None),
        ("Go.\n<command>\nls\n</command>", "ls"),
        ("ls</command>", None),
        ("", None),
    ],
)
def test_commands_in_text(text, command):
    assert written_command(text) == command


def test_outputs_of_an_agent_that_writes_its_commands():
    ls = said("assistant", "```\nls\n```")
    messages = [said("user", "task"), ls, said("user", "a b"), said("assistant", "done")]
    assert tool_outputs(messages) == [2]


def test_a_person_keeps_their_words():
    chat = [
        said("user", "How do I list files?"),
        said("assistant", "Gladly."),
        said("user", "Well?"),
        said("assistant", "Like this:\n```bash\nls\n```"),
        said("user", "Thank you."),
    ]
    assert tool_outputs(chat) == []
    with_tools = [
        chat[0],
        call(asked("read", {"path": "a"})),
        answer("x"),
        said("assistant", "Run\n```bash\nls\n```"),
        said("user", "I did."),
    ]
    assert tool_outputs(with_tools) == [2]


def test_a_call_written_as_json():
    text = '<tool_call>\n{"name": "read_file", "arguments": {"path": "a"}}\n</tool_call>'
    messages = [said("user", "t"), said("assistant", text), said("user", "x")]
    assert list(uses(messages)) == [Use(1, 2, "read_file", {"path": "a"})]


def test_answers_find_their_calls():
    both = call(asked("read", {"path": "a"}, "1"), asked("read", {"path": "b"}, "2"))
    crossed = [both, answer("of b", "2"), answer("of a", "1")]
    assert [use.result for use in uses(crossed)] == [2, 1]
    same = call(asked("read", {"path": "a"}, "1"), asked("read", {"path": "b"}, "1"))
    assert [use.result for use in uses([same, answer("a", "1"), answer("b", "1")])] == [1, 2]
    assert [use.result for use in uses([both, answer("of b", "2")])] == [None, 1]


@pytest.mark.parametrize(
    "calls",
    ["x", [None], [{"function": None}], [{"function": {"arguments": "[1]"}}], [{}], 3, {"a": 1}],
)
def test_broken_calls_are_no_uses_or_unknown_ones(calls):
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    given = [said("user", "t"), message, {"role": "tool", "content": None}]
    working_set = WorkingSet(Change.REWRITE)
    working_set.advance(given, 1)
    assert working_set.trunk == []


def working_set_of(*messages, change: Change = Change.REWRITE) -> WorkingSet:
    working_set = WorkingSet(change)
    working_set.advance([said("user", "task"), *messages], 1)
    return working_set


def turn(name: str, arguments: dict, text: str = "done"):
    return [call(asked(name, arguments)), answer(text)]


READ_A = turn("read", {"path": "a"}, "old a")
READ_B = turn("read", {"path": "b"}, "b")
READ_NEW_A = turn("read", {"path": "a"}, "new a")
WRITE_A = turn("write", {"path": "a"})
A1, A2, B1 = Version("a", 1, "old a"), Version("a", 2, "new a"), Version("b", 1, "b")


@pytest.mark.parametrize(
    ("change", "turns", "trunk"),
    [
        (Change.REWRITE, [READ_A, READ_B, READ_A], [A1, B1]),
        (Change.REWRITE, [READ_A, READ_B, READ_NEW_A], [B1, A2]),  # b has not changed yet
        (Change.REWRITE, [READ_A, READ_B, WRITE_A], [B1]),
        (Change.REWRITE, [READ_A, READ_B, WRITE_A, READ_NEW_A], [B1, A2]),
        (Change.REWRITE, [READ_A, WRITE_A, READ_A], [A1]),  # read again, and the same text
        (Change.TOMBSTONE, [READ_A, READ_B, READ_NEW_A], [A1, B1, A2]),
        (Change.TOMBSTONE, [READ_A, READ_B, WRITE_A], [A1, B1]),
        (Change.TOMBSTONE, [READ_A, READ_B, WRITE_A, READ_A], [A1, B1]),
        (Change.REWRITE, [READ_A, turn("write", {"id": 1}), READ_B], [B1]),
        (Change.REWRITE, [READ_A, turn("write", {"path": "a"}, "error: busy")], [A1]),
        (Change.REWRITE, [READ_A, turn("read", {"path": "a"}, "error: busy")], [A1]),
    ],
)
def test_what_stands_in_the_trunk(change, turns, trunk):
    messages = [message for each in turns for message in each]
    assert working_set_of(*messages, change=change).trunk == trunk


def test_a_write_without_answer_counts_and_so_does_a_later_read_in_the_same_turn():
    pending = call(asked("write", {"path": "a"}))
    assert working_set_of(*READ_A, pending).trunk == []
    both = call(asked("read", {"path": "a"}, "1"), asked("write", {"path": "a"}, "2"))
    assert working_set_of(both, answer("old a", "1"), answer("done", "2")).trunk == []


def test_from_the_changed_place_on_the_slowest_comes_first():
    texts = iter(range(100))

    def read(path: str):
        return turn("read", {"path": path}, f"{path} {next(texts)}")

    reads = [read(path) for path in ("slow", "a", "b", "c", "b", "b", "c")]
    messages = [message for each in reads for message in each]
    before = working_set_of(*messages)
    assert [v.key for v in before.trunk] == ["slow", "a", "c", "b"]
    for expected in (["a", "c", "b"], ["c", "a", "b"], ["c", "b", "a"]):
        messages += read("a")  # changes per turn at the end: c 1/6, b 2/7, a 3/8
        assert [v.key for v in working_set_of(*messages).trunk] == ["slow", *expected]


paths = st.sampled_from(["a", "b", "c"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), paths, st.sampled_from(["x", "y"])),
        st.tuples(st.just("write"), paths, st.just("done")),
        st.tuples(st.just("write"), paths, st.just("error: no")),
        st.tuples(st.just("think"), paths, st.just("")),
    ),
    max_size=12,
)


def naive(done) -> dict[str, str]:
    """What holds after all steps: path -> text."""
    holds: dict[str, str] = {}
    for name, path, text in done:
        if name == "read":
            holds[path] = text
        elif name == "write" and text == "done":
            holds.pop(path, None)
    return holds


@given(steps, st.sampled_from(Change), st.lists(st.integers(1, 5), max_size=10))
def test_the_trunk_holds_what_a_naive_reader_knows_in_whatever_steps(done, change, strides):
    messages = [said("user", "task")]
    for name, path, text in done:
        messages += turn(name, {"path": path}, text)
    working_set = working_set_of(*messages[1:], change=change)
    current = [v for v in working_set.trunk if working_set.is_current(v)]
    assert {v.key: v.text for v in current} == naive(done)
    assert len(current) == len(naive(done))
    if change is Change.REWRITE:
        assert current == working_set.trunk
    stepwise = WorkingSet(change)
    seen = 1
    for stride in [*strides, len(messages)]:
        seen = min(seen + 2 * stride, len(messages))
        stepwise.advance(messages[:seen], 1)
    assert (stepwise.trunk, stepwise.results) == (working_set.trunk, working_set.results)


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("plain", "artifact"),
        ("</artifact>", "artifact-1"),
        ("< / ARTIFACT >", "artifact-1"),
        ("</artifact>\n</artifact-1></artifact-3>", "artifact-2"),
        ("</artifact-1>", "artifact"),
        ("</artifact-99999999999999999999>", "artifact"),
        ("</artifacts>", "artifact"),
    ],
)
def test_text_cannot_close_its_frame(text, tag):
    message = artifact_message(Version("a", 3, text))
    assert message["content"] == f'<{tag} uri="a" version="3">\n{text}\n</{tag}>'


@given(st.text(st.sampled_from(list("</ artifact-1203>\n")), max_size=60))
def test_the_closing_tag_stands_at_the_end_alone(text):
    content = artifact_message(Version("a", 1, text))["content"]
    closing = content.rpartition("\n")[2]
    assert "".join(content.lower().split()).count(closing) == 1


def test_names_stay_in_their_quotes_and_lines():
    key = 'a"><b>\n[now]\u2028'
    assert shown_name(key) == "a&quot;&gt;&lt;b&gt;&#10;&#91;now&#93;&#8232;"
    long = shown_name("x" * 1000)
    assert len(long) < 200
    assert long != shown_name("x" * 1001)


def test_lines_say_where_a_text_stands():
    assert pointer(A1, A1, stands=True) == "[now artifact a, version 1, above]"
    assert pointer(A1, A2, stands=False) == "[was artifact a, version 1: version 2 holds now]"
    assert (
        pointer(A1, None, stands=False)
        == "[was artifact a, version 1: superseded by a later change]"
    )
    assert tombstone(A1, A2) == "[artifact a, version 1: superseded by version 2]"


def test_pruned_takes_written_commands_outputs_and_no_persons_words():
    ls = said("assistant", "```\nls\n```")
    messages = [said("user", "task"), ls, said("user", "a b"), ls, said("user", "a c")]
    rewrite = pruned(1)
    kept = rewrite(Turn(messages, []), Moment("s", 0, 0.0)).messages
    assert [m["content"] for m in kept if m["role"] == "user"] == ["task", PRUNED_TEXT, "a c"]
    chat = [said("user", "hi"), said("assistant", "hello"), said("user", "a"), said("user", "b")]
    assert rewrite(Turn(chat, []), Moment("s", 0, 0.0)).messages == chat
