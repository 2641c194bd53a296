"""Puts one completion together out of streamed pieces, with the times at which they came."""

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from duramen.layout.errors import EngineError, PromptMismatch
from duramen.serving.vllm.gathered import Gathered
from duramen.serving.vllm.protocol import Completion, OnTokens


class Answer:
    """Collects stream events of either endpoint; times count from construction."""

    def __init__(self, token_ids: Sequence[int], on_tokens: OnTokens | None) -> None:
        self._sent = list(token_ids)
        self._on_tokens = on_tokens
        self._started_s = time.perf_counter()
        self._arrivals_s: list[float] = []  # one for each event that carried tokens
        self._confirmed = False
        self.sampled: list[int] = []
        self._choice = Gathered()
        self._usage: Mapping[str, Any] | None = None

    def add(self, event: Mapping[str, Any]) -> None:
        """Take one event. Raises EngineError if the engine ran other ids than the ones sent."""
        if (ran := event.get("prompt_token_ids")) is not None:
            self._confirm(ran)
        self._usage = event.get("usage") or self._usage
        for choice in event["choices"]:
            text = self._choice.add(choice)
            if new_ids := choice.get("token_ids"):
                self._arrivals_s.append(time.perf_counter() - self._started_s)
                self.sampled += new_ids
                if self._on_tokens:
                    self._on_tokens(tuple(new_ids), text)

    @property
    def finish_reason(self) -> str | None:
        return self._choice.finish_reason

    @property
    def stop_reason(self) -> str | int | None:
        return self._choice.stop_reason

    def completion(self, message: Mapping[str, Any] | None = None) -> Completion:
        """The finished call; `message` replaces what was collected.

        Raises EngineError if the answer was cut off.
        """
        if not self._confirmed:
            raise PromptMismatch(
                "the engine did not say which token ids it ran: nothing can be claimed"
            )
        if self.finish_reason in (None, "abort", "error") or self._usage is None:
            raise EngineError(f"the engine ended the answer early ({self.finish_reason})")
        details = self._usage.get("prompt_tokens_details") or {}
        arrivals = self._arrivals_s
        elapsed_s = time.perf_counter() - self._started_s
        return Completion(
            token_ids=tuple(self.sampled),
            message=message or self._choice.message,
            finish_reason=str(self.finish_reason),
            stop_reason=self.stop_reason,
            prompt_tokens=self._usage["prompt_tokens"],
            cached_tokens=details.get("cached_tokens"),
            ttft_s=arrivals[0] if arrivals else elapsed_s,
            itl_s=tuple(b - a for a, b in pairwise(arrivals)),
            elapsed_s=elapsed_s,
        )

    def _confirm(self, ran: Sequence[int]) -> None:
        if list(ran) != self._sent:
            raise PromptMismatch(
                f"the engine ran other token ids than the {len(self._sent)} sent "
                f"({len(ran)} came back): this server does not take token ids in chat requests"
            )
        self._confirmed = True
