"""The engine under test, and what probes ask it with."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from duramen.layout.template import ChatTemplate
from duramen.layout.tokenizer import Tokenizer
from duramen.serving.vllm.facts import Facts
from duramen.serving.vllm.http import EngineHttp
from duramen.serving.vllm.launch import EventEndpoints
from duramen.serving.vllm.protocol import CHAT_PATH, Completion, Sampling, Tool
from duramen.serving.vllm.seam import ChatSeam

FIRST_ID, NUM_IDS = 300, 500  # ids of ordinary tokens in every vocabulary that was looked at
STEP = 211  # shares no factor with NUM_IDS, so consecutive ids repeat after NUM_IDS only


@dataclass(frozen=True)
class Prompts:
    """How we render and encode; `eos_id`: the token that ends a reply, None if not known."""

    tokenizer: Tokenizer
    template: ChatTemplate
    eos_id: int | None


@dataclass
class Subject:
    """`prompts` is None without a tokenizer, `events` without addresses; `api_key` as for the
    engine. Every probe takes salts of its own: nothing is shared with anyone, or between probes."""

    http: EngineHttp
    facts: Facts
    prompts: Prompts | None = None
    events: EventEndpoints | None = None
    api_key: str | None = None
    _salt: str = field(default_factory=lambda: f"duramen verify {secrets.token_hex(8)}")
    _numbers: "count[int]" = field(default_factory=count)

    def new_salt(self) -> str:
        return f"{self._salt} {next(self._numbers)}"

    async def run(
        self,
        token_ids: Sequence[int],
        salt: str,
        *,
        num_reply: int = 1,
        tools: Sequence[Tool] = (),
    ) -> Completion:
        """Through the chat seam, streamed, for exactly `num_reply` tokens."""
        sampling = Sampling(max_tokens=num_reply, min_tokens=num_reply)
        seam = ChatSeam(self.http, self.facts.model)
        return await seam.run(token_ids, sampling, tools, salt, None)

    async def chat(self, token_ids: Sequence[int], **fields: Any) -> Mapping[str, Any]:
        """A chat request with our ids, not streamed; its answer."""
        body = {
            "model": self.facts.model,
            "messages": [],
            "kv_transfer_params": {"prompt_token_ids": list(token_ids)},
            "return_token_ids": True,
            "cache_salt": self.new_salt(),
            "temperature": 0.0,
        }
        answer: Mapping[str, Any] = await self.http.post(CHAT_PATH, body | fields)
        return answer


def plain_ids(num_tokens: int) -> list[int]:
    return [FIRST_ID + index * STEP % NUM_IDS for index in range(num_tokens)]


def diverged(token_ids: Sequence[int], start: int) -> list[int]:
    """The same up to `start`, and another id at each place from there on."""
    head, rest = token_ids[:start], token_ids[start:]
    return [*head, *(FIRST_ID + (token_id - FIRST_ID + 1) % NUM_IDS for token_id in rest)]
