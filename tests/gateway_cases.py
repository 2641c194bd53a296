"""A whole gateway in this process, on a free port, over fake engines; and clients of it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import openai
from tokenizers import Tokenizer

from duramen.serving.gateway.bring_up import EngineStart
from duramen.serving.gateway.serve_config import ServeConfig
from duramen.serving.gateway.server import Run, running
from duramen.serving.gateway.settings import Settings
from duramen.serving.gateway.supervise import Patience
from duramen.serving.vllm.fake import EOS
from duramen.serving.vllm.fake_chat import FakeChatEngine, Said, pieces
from duramen.serving.vllm.launch import Progress

MODEL = "tree"
QUICK = Patience(first_pause_s=0.001, longest_pause_s=0.002, check_every_s=0.01, check_timeout_s=1)
TEMPLATE = Path(str(files("duramen.configs") / "chatml_tools.jinja"))

Message = dict[str, Any]

READ_FILE = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
RUN = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}


class Quiet:
    """An operator who reads nothing."""

    def progress(self, line: str) -> None: ...

    def say(self, line: str) -> None: ...


@dataclass
class Case:
    """A gateway that takes calls. `engines`: every engine that came up, the newest last."""

    run: Run
    url: str
    tokenizer: Tokenizer
    engines: list[FakeChatEngine] = field(default_factory=list)

    @property
    def engine(self) -> FakeChatEngine:
        return self.engines[-1]

    def client(self, key: str = "none", **options: Any) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=self.url, api_key=key, max_retries=0, **options)

    def sent(self, n: int = -1) -> list[int]:
        """The token ids of the n-th call that the engine got."""
        return list(self.engine.bodies[n]["kv_transfer_params"]["prompt_token_ids"])

    def text(self, token_ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(token_ids), skip_special_tokens=False)

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    async def settled(self) -> None:
        """Nothing runs any more: no slot is taken, no session held, no answer open."""
        gateway = self.run.gateway
        await until(
            lambda: (
                (
                    gateway.admission.num_running,
                    gateway.admission.num_queued,
                    sum(engine.num_running for engine in self.engines),
                    [s.num_running for s in gateway.tree._sessions.values() if s.num_running],
                    self.run.server.server_state.tasks,
                )
                == (0, 0, 0, [], set())
            )
        )


@asynccontextmanager
async def gateway(
    model_dir: Path,
    settings: Settings | None = None,
    *,
    api_key_file: Path | None = None,
    make: Callable[[Callable[[Sequence[int]], str]], FakeChatEngine] = FakeChatEngine,
    chat_template: Path = TEMPLATE,
) -> AsyncIterator[Case]:
    """One that is ready. At the end it is closed and must have left no task behind."""
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    engines: list[FakeChatEngine] = []

    async def open_engine(progress: Progress) -> FakeChatEngine:
        engines.append(make(lambda ids: tokenizer.decode(list(ids))))
        return engines[-1]

    config = ServeConfig(
        settings=settings or Settings(aliases=("oak",)),
        model_dir=model_dir,
        model_name=MODEL,
        operator=Quiet(),
        chat_template=chat_template,
        upstreams=("http://fake.invalid",),
        port=free_port(),
        api_key_file=api_key_file,
    )
    before = asyncio.all_tasks()
    async with running(config, [EngineStart("fake", open_engine, QUICK)]) as run:
        await run.gateway.engines.members[0].supervisor.wait_until_ready()
        await until(lambda: run.server.started)
        engines[-1].bodies.clear()
        yield Case(run, config.url, tokenizer, engines)
    try:  # another gateway in this loop may have exchanged one of its tasks meanwhile
        await until(lambda: len(asyncio.all_tasks()) <= len(before))
    except TimeoutError:
        raise AssertionError(f"left behind: {asyncio.all_tasks() - before}") from None


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def system(text: str = "You are a tree. Answer briefly.") -> Message:
    return {"role": "system", "content": text}


def says(case: Case, text: str, *, ends: bool = True, ids: Sequence[int] | None = None) -> Said:
    """Plain text, spelled by `ids` if they are given; EOS behind it, or cut off by length."""
    token_ids = [*(ids or case.encode(text)), *[EOS] * ends]
    deltas = [{"content": piece} for piece in pieces(case.text, token_ids)]
    return Said(token_ids, deltas, "stop" if ends else "length")


def calls_tools(
    case: Case,
    *calls: tuple[str, str],
    content: str = "",
    reasoning: str = "",
    ids: Sequence[str] | None = None,
) -> Said:
    """Tool calls, each a name and the JSON of its arguments as the model wrote it, and how vLLM's
    parsers stream them: reasoning, content, then each call's name and arguments in two pieces."""
    token_ids: list[int] = []
    deltas: list[Mapping[str, Any]] = []

    def add(text: str, *parts: Mapping[str, Any]) -> None:
        new = case.encode(text)
        assert len(new) >= len(parts), "a delta comes with a token"
        token_ids.extend(new)
        deltas.extend([{} for _ in new[len(parts) :]])
        deltas.extend(parts)

    if reasoning:
        add(f"<think>\n{reasoning}\n</think>\n\n", {"reasoning": reasoning})
    if content:
        add(f"{content}\n", {"content": content})
    for i, (name, arguments) in enumerate(calls):
        call_id = ids[i] if ids else f"call_{i}"
        start = {"id": call_id, "type": "function", "index": i, "function": {"name": name}}
        half = len(arguments) // 2
        add(
            "\n" * (i > 0) + f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}',
            {"tool_calls": [start]},
            {"tool_calls": [{"index": i, "function": {"arguments": arguments[:half]}}]},
            {"tool_calls": [{"index": i, "function": {"arguments": arguments[half:]}}]},
        )
        add("\n</tool_call>")
    return Said([*token_ids, EOS], [*deltas, {}], "tool_calls")


def as_message(message: Any) -> Message:
    """What the SDK's own examples append to the history."""
    kept: Message = message.model_dump(exclude_none=True)
    return kept


async def streamed(client: openai.AsyncOpenAI, **request: Any) -> list[Any]:
    """The chunks of a streamed call."""
    stream = await client.chat.completions.create(model=MODEL, stream=True, **request)
    return [chunk async for chunk in stream]


def put_together(chunks: Sequence[Any], index: int = 0) -> Message:
    """The message that a client keeps of the chunks that it got."""
    message: Message = {"role": "assistant", "content": ""}
    calls: list[Message] = []
    deltas = [c.delta.model_dump() for k in chunks for c in k.choices if c.index == index]
    for delta in deltas:
        message["content"] += delta.get("content") or ""
        if reasoning := delta.get("reasoning"):
            message["reasoning"] = message.get("reasoning", "") + reasoning
        for part in delta.get("tool_calls") or ():
            function = part["function"]
            if part["index"] == len(calls):
                named = {"name": function["name"], "arguments": ""}
                calls.append({"id": part["id"], "type": "function", "function": named})
            calls[part["index"]]["function"]["arguments"] += function["arguments"] or ""
    return {**message, "tool_calls": calls} if calls else message


async def get(client: openai.AsyncOpenAI, path: str) -> Any:
    """The JSON of one of our own endpoints."""
    return await client.get(path, cast_to=object)
