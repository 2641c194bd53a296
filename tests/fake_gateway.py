"""A gateway in a process of its own, over a fake engine: `fake_gateway.py PORT MODEL_DIR [KEYS]`.

It says "ready" on standard output, and ends on SIGTERM.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from gateway_cases import MODEL, QUICK, TEMPLATE, Quiet
from tokenizers import Tokenizer

from duramen.layout.errors import RequestError
from duramen.serving.gateway import log
from duramen.serving.gateway.bring_up import EngineStart
from duramen.serving.gateway.serve_config import ServeConfig
from duramen.serving.gateway.server import running
from duramen.serving.gateway.settings import Settings
from duramen.serving.vllm.fake_chat import FakeChatEngine
from duramen.serving.vllm.launch import Progress


class WholeEngine(FakeChatEngine):
    """Answers raw prompts, too, always with the same word."""

    tokenizer: Tokenizer

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        if path == "/v1/completions":
            usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
            return self._said_raw() | {"usage": usage}
        if path == "/tokenize":
            ids = self.tokenizer.encode(str(body.get("prompt")), add_special_tokens=False).ids
            return {"count": len(ids), "max_model_len": self.info.max_model_len, "tokens": ids}
        try:
            return await super().post(path, body)
        except (AttributeError, TypeError, ValueError) as error:  # vLLM checks what it reads
            raise RequestError("what is this?", 400) from error

    async def batches(
        self, path: str, body: Mapping[str, Any]
    ) -> AsyncGenerator[list[bytes], None]:
        if path == "/v1/completions":
            yield [msgspec.json.encode(self._said_raw())]
            return
        try:
            async for batch in super().batches(path, body):
                yield batch
        except (AttributeError, TypeError, ValueError) as error:
            raise RequestError("what is this?", 400) from error

    def _said_raw(self) -> dict[str, Any]:
        choice = {"index": 0, "text": "wood", "finish_reason": "stop", "logprobs": None}
        return self._shell("text_completion") | {"choices": [choice]}


async def main(port: str, model_dir: str, keys: str | None = None) -> None:
    tokenizer = Tokenizer.from_file(f"{model_dir}/tokenizer.json")

    async def open_engine(progress: Progress) -> FakeChatEngine:
        engine = WholeEngine(lambda ids: tokenizer.decode(list(ids)))
        engine.tokenizer = tokenizer
        return engine

    config = ServeConfig(
        settings=Settings(aliases=("oak",)),
        model_dir=Path(model_dir),
        model_name=MODEL,
        operator=Quiet(),
        chat_template=TEMPLATE,
        upstreams=("http://fake.invalid",),
        port=int(port),
        api_key_file=Path(keys) if keys else None,
    )
    async with running(config, [EngineStart("fake", open_engine, QUICK)]) as run:
        await run.gateway.engines.members[0].supervisor.wait_until_ready()
        while not run.server.started:
            await asyncio.sleep(0.01)
        print("ready", flush=True)
        await run.ended()


if __name__ == "__main__":
    with log.json_lines(sys.stderr):
        asyncio.run(main(*sys.argv[1:]))
