"""Small conversations that the tests of `duramen why` share."""

from collections.abc import Sequence
from typing import Any

from duramen.experiments.layouts.model import Model
from duramen.experiments.trajectory import Call, Message, Session, Tool
from duramen.layout.template import ChatTemplate
from duramen.layout.tokenizer import Tokenizer

SYSTEM: Message = {
    "role": "system",
    "content": "You are a careful assistant who answers in plain words and never guesses. " * 4,
}
TOOLS: tuple[Tool, ...] = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} a file of the workspace",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
    for name in ("read", "write", "list")
)


def chat(num_calls: int, *, system: Message = SYSTEM, **session: Any) -> Session:
    """A session whose calls only append."""
    messages: list[Message] = [system, {"role": "user", "content": "Where is the harbour light?"}]
    calls = []
    for number in range(num_calls):
        reply: Message = {"role": "assistant", "content": f"It stands on pier number {number}."}
        calls.append(Call(tuple(messages), reply))
        messages += [reply, {"role": "user", "content": f"And what of question {number}?"}]
    return Session(session.pop("name", "chat"), tuple(calls), **session)


def ids_of(model: Model, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
    """The slow twin: everything rendered and encoded whole."""
    transcript = model.transcript(tools, 0.0)
    return list(transcript.start(model.template.prepared(messages)).token_ids)


def model_of(tokenizer: Tokenizer, source: str) -> Model:
    spelled = Tokenizer(tokenizer.spec, tokenizer.config, source)
    return Model(spelled, ChatTemplate(source, spelled.special_strings))
