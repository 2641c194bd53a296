"""How a recorded session is walked: what continues, whose replies stand where."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.history import History, Turn
from duramen.experiments.trajectory import Call, Message, Session, Tool

READ: Tool = {"type": "function", "function": {"name": "read"}}
USER, MORE, DONE = ({"role": "user", "content": text} for text in ("do it", "more", "thanks"))


def said(text: str) -> Message:
    return {"role": "assistant", "content": text}


def session(*calls: Call, tools: tuple[Tool, ...] = ()) -> Session:
    return Session("s", calls, tools)


def texts(turn: Turn) -> list[Any]:
    return [message["content"] for message in turn.messages]


def walk(recorded: Session, live: Mapping[int, str] | None = None) -> list[Turn]:
    """All turns; `live` gives the model's own replies, by call."""
    history = History(recorded, live=live is not None)
    turns = []
    for index, turn in enumerate(history.turns()):
        turns.append(turn)
        if live and index in live:
            history.replied(said(live[index]))
    return turns


APPENDED = session(
    Call((USER,), said("one")),
    Call((USER, said("one"), MORE), said("two")),
    Call((USER, said("one"), MORE, said("two"), DONE), None),
)


def test_recorded_replies_stay() -> None:
    turns = walk(APPENDED)
    assert [texts(turn) for turn in turns] == [
        ["do it"],
        ["do it", "one", "more"],
        ["do it", "one", "more", "two", "thanks"],
    ]
    assert [(turn.continues, turn.has_reply) for turn in turns] == [(False, False)] + 2 * [
        (True, True)
    ]


def test_live_replies_take_their_place_in_every_later_call() -> None:
    turns = walk(APPENDED, {0: "uno", 1: "due"})
    assert texts(turns[1]) == ["do it", "uno", "more"]
    assert texts(turns[2]) == ["do it", "uno", "more", "due", "thanks"]


def test_a_call_without_a_live_reply_goes_on_with_its_recorded_one() -> None:
    """Both calls were answered alike on the record; only the first was answered live."""
    twice = session(
        Call((USER,), said("ok")),
        Call((USER, said("ok"), MORE), said("ok")),
        Call((USER, said("ok"), MORE, said("ok"), DONE), None),
    )
    assert texts(walk(twice, {0: "si"})[2]) == ["do it", "si", "more", "ok", "thanks"]
    assert texts(walk(twice, {1: "si"})[2]) == ["do it", "ok", "more", "si", "thanks"]


def test_an_edited_past_is_sent_anew_with_the_live_replies() -> None:
    edited = session(
        Call((USER,), said("one")),
        Call((USER, said("one"), MORE), said("two")),
        Call((DONE, said("one"), MORE, said("two"), USER), None),
    )
    turn = walk(edited, {0: "uno", 1: "due"})[2]
    assert not turn.continues
    assert texts(turn) == ["thanks", "uno", "more", "due", "do it"]


def test_a_shortened_past_keeps_the_replies_that_are_left() -> None:
    window = session(
        Call((USER,), said("one")),
        Call((USER, said("one"), MORE), said("two")),
        Call((MORE, said("two"), DONE), None),
    )
    assert texts(walk(window, {0: "uno", 1: "due"})[2]) == ["more", "due", "thanks"]


def test_a_reply_that_the_client_rewrote_or_dropped() -> None:
    rewritten = session(Call((USER,), said("one")), Call((USER, said("1"), MORE), None))
    turn = walk(rewritten, {0: "uno"})[1]
    assert texts(turn) == ["do it", "1", "more"]
    assert (turn.continues, turn.has_reply) == (True, False)
    dropped = session(Call((USER,), said("one")), Call((USER, MORE), None))
    assert texts(walk(dropped, {0: "uno"})[1]) == ["do it", "more"]


def test_a_retry_continues_with_nothing_new() -> None:
    again = walk(session(Call((USER,), said("one")), Call((USER,), said("one"))), {0: "uno"})[1]
    assert (texts(again), again.continues, again.has_reply) == (["do it"], True, False)


def test_absent_fields_and_the_order_of_keys_do_not_make_another_reply() -> None:
    resent = {"tool_calls": None, "content": "one", "role": "assistant"}
    turn = walk(session(Call((USER,), said("one")), Call((USER, resent, MORE), None)))[1]
    assert turn.has_reply


def test_other_tools_are_another_beginning() -> None:
    changed = session(
        Call((USER,), said("one")),
        Call((USER, said("one"), MORE), said("two"), tools=(READ,)),
    )
    turn = walk(changed, {0: "uno"})[1]
    assert (turn.tools, turn.continues, texts(turn)) == ((READ,), False, ["do it", "uno", "more"])


def test_an_empty_session_has_no_turn() -> None:
    assert walk(session()) == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=8))
def test_on_append_only_sessions_every_turn_is_the_last_one_its_reply_and_something_new(
    replies: list[tuple[str, bool]],
) -> None:
    """Replies repeat on the record; each is answered live or not."""
    messages: tuple[Message, ...] = (USER,)
    calls, expected = [], [["do it"]]
    for index, (text, is_live) in enumerate(replies):
        calls.append(Call(messages, said(text)))
        messages = (*messages, said(text), MORE)
        expected.append([*expected[-1], f"live {index}" if is_live else text, "more"])
    live = {index: f"live {index}" for index, (_, is_live) in enumerate(replies) if is_live}
    assert [texts(turn) for turn in walk(session(*calls), live)] == expected[: len(calls)]


def test_keys_in_another_order_go_on_but_are_sent_as_the_client_wrote_them() -> None:
    ordered = {"role": "user", "content": "do it"}
    swapped = {"content": "do it", "role": "user"}
    tool = {"function": {"name": "read"}, "type": "function"}
    [_, turn] = walk(
        session(
            Call((ordered,), said("one")),
            Call((swapped, said("one"), MORE), None, tools=(tool,)),
            tools=(READ,),
        )
    )
    assert (turn.continues, turn.has_reply, turn.reserialised) == (True, True, True)
    assert list(turn.messages[0]) == ["content", "role"]
    assert list(turn.tools[0]) == ["function", "type"]


def test_true_is_not_one() -> None:
    """Python takes them for equal; a template writes them differently."""
    first, second = ({"role": "user", "content": "x", "flag": flag} for flag in (True, 1))
    [_, turn] = walk(session(Call((first,), None), Call((second,), None)))
    assert not turn.continues


def test_a_live_reply_stands_wherever_its_recorded_twin_does() -> None:
    note = {"role": "user", "content": "note"}
    retried = session(
        Call((USER,), said("r0")),
        Call((USER,), said("r1")),
        Call((USER, said("r0"), MORE), None),
    )
    assert texts(walk(retried, {0: "L0", 1: "L1"})[2]) == ["do it", "L0", "more"]
    behind = session(Call((USER,), said("r0")), Call((USER, note, said("r0"), MORE), None))
    assert texts(walk(behind, {0: "L0"})[1]) == ["do it", "note", "L0", "more"]


def test_a_message_that_only_looks_like_a_reply_keeps_its_text() -> None:
    ok, edited = said("ok"), {"role": "user", "content": "do that"}
    few_shot = session(
        Call((USER, ok, MORE), ok),
        Call((USER, ok, MORE, ok, DONE), said("z")),
        Call((edited, ok, MORE, ok, DONE, said("z"), MORE), None),
    )
    turns = walk(few_shot, {0: "L0", 1: "L1"})
    assert texts(turns[2]) == ["do that", "ok", "more", "L0", "thanks", "L1", "more"]
