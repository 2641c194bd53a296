"""What comes back from the engine for a chat call: remembered, and put in the client's form."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from duramen.layout.errors import EngineError, PromptMismatch
from duramen.serving.gateway.sessions.conversation import Conversations, Opened
from duramen.serving.gateway.sessions.records import Reply
from duramen.serving.gateway.text_event import TextEvent, text_event
from duramen.serving.gateway.wire import as_event
from duramen.serving.vllm.gathered import Gathered


class ChatAnswer:
    """Takes the engine's events or its answer, keeps ids, and gives what the client gets.

    `opened` None: not token-exact, nothing is remembered. The client sees the model under the name
    that it asked for, and of ids, prompts and usage only what it asked for.
    """

    def __init__(
        self,
        conversations: Conversations,
        body: Mapping[str, Any],
        model_name: str,
        opened: Opened | None,
    ) -> None:
        self.opened = opened
        self.usage: Mapping[str, Any] | None = None
        self.num_sampled = 0
        self.arrivals_s: list[float] = []
        self._last_event = b"{}"  # of those with choices, as JSON
        self._conversations = conversations
        self._model_name = model_name
        self._wants_ids = bool(body.get("return_token_ids"))
        self._wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        self._shows_stop = bool(body.get("include_stop_str_in_output"))
        self._is_single = (body.get("n") or 1) == 1
        self._choices: dict[int, Gathered] = {}
        self._replies: dict[int, Reply] = {}
        self._confirmed = opened is None

    @property
    def delivered(self) -> int | None:
        """Cached tokens as the engine reports them; with n > 1 it shows one child of n: None."""
        if self.usage is None or not self._is_single:
            return None
        details = self.usage.get("prompt_tokens_details") or {}
        cached: int | None = details.get("cached_tokens")
        return cached

    @property
    def finish_reasons(self) -> list[str | None]:
        return [choice.finish_reason for _, choice in sorted(self._choices.items())]

    @property
    def reply_hashes(self) -> bytes:
        return b"".join(reply.hashes for reply in self._replies.values())

    def take_event(self, data: bytes) -> bytes:
        """One event of a stream, as it is to be forwarded; b"" if the client did not ask for it.

        Raises PromptMismatch if the engine ran other ids than the ones sent, EngineError for what
        is no event.
        """
        event = text_event(data)
        if event is not None and (gathered := self._choices.get(event.choices[0].index)):
            return self._take_text(event, gathered)
        return self.take_any_event(data)

    def _take_text(self, event: TextEvent, gathered: Gathered) -> bytes:
        """As take_any_event, for what it mostly gets."""
        (choice,) = event.choices
        content = choice.delta.content or ""
        gathered.add_text(content, choice.delta.reasoning or None)
        if ids := choice.token_ids or ():
            self.num_sampled += len(ids)
            self._keep_piece(choice.index, ids, content)
            self.arrivals_s.append(time.perf_counter())
        if not self._wants_ids:
            choice.token_ids = event.prompt_token_ids = UNSET
        event.model = self._model_name
        self._last_event = msgspec.json.encode(event)
        return as_event(self._last_event)

    def take_any_event(self, data: bytes) -> bytes:
        """As take_event, whatever the event has."""
        try:
            chunk = msgspec.json.decode(data)
        except msgspec.DecodeError:
            raise EngineError("the engine sent an event that is not JSON") from None
        self._check_prompt(chunk)
        has_usage = self._take_usage(chunk)
        arrived = False
        for choice in chunk["choices"]:
            ids = choice.get("token_ids") if self._wants_ids else choice.pop("token_ids", None)
            index = choice["index"]
            gathered = self._choices.get(index)
            if gathered is None:
                gathered = self._choices[index] = Gathered()
            content = gathered.add(choice)
            if ids:
                arrived = True
                self.num_sampled += len(ids)
                self._keep_piece(index, ids, content)
            if gathered.finish_reason is not None:
                self._finish(index, gathered)
        if arrived:
            self.arrivals_s.append(time.perf_counter())
        chunk["model"] = self._model_name
        out = msgspec.json.encode(chunk)
        if chunk["choices"]:
            self._last_event = out
        elif has_usage and not self._wants_usage:
            return b""
        return as_event(out)

    def take_answer(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The whole answer at once, as it is to be forwarded."""
        self._check_prompt(answer)
        self._take_usage(answer)
        for choice in answer["choices"]:
            ids = choice.get("token_ids") if self._wants_ids else choice.pop("token_ids", None)
            message = {key: value for key, value in choice["message"].items() if value}
            gathered = Gathered()
            gathered.add({**choice, "delta": {}})
            self._choices[choice["index"]] = gathered
            if ids:
                self.num_sampled += len(ids)
                self._keep_piece(choice["index"], ids, message.get("content") or "")
            self._finish(choice["index"], gathered, {"content": None} | message)
        answer["model"] = self._model_name
        return answer

    def extra_event(self, duramen: Mapping[str, Any]) -> bytes:
        """The explanation, as a chunk without choices."""
        kept = ("id", "object", "created", "model")
        last = msgspec.json.decode(self._last_event)
        chunk = {key: last[key] for key in kept if key in last}
        return as_event(msgspec.json.encode({**chunk, "choices": [], "duramen": duramen}))

    def _check_prompt(self, data: dict[str, Any]) -> None:
        ran = (
            data.get("prompt_token_ids") if self._wants_ids else data.pop("prompt_token_ids", None)
        )
        data.pop("prompt_text", None)
        data.pop("kv_transfer_params", None)
        if self.opened is None or ran is None:
            return
        if ran != self.opened.prompt.token_ids:
            raise PromptMismatch(
                f"the engine ran other token ids than the {len(self.opened.prompt.token_ids)} sent "
                f"({len(ran)} came back)"
            )
        self._confirmed = True

    def _take_usage(self, data: dict[str, Any]) -> bool:
        usage = data.get("usage")
        if usage is None:
            return False
        self.usage = usage
        data["usage"] = shown_usage(usage, is_single=self._is_single)
        return True

    def _keep_piece(self, index: int, ids: Sequence[int], content: str) -> None:
        if self.opened is None:
            return
        if not self._confirmed:
            raise PromptMismatch("the engine did not say which token ids it ran")
        reply = self._replies.get(index)
        if reply is None:
            reply = self._conversations.begin_reply(self.opened.turn, index)
            self._replies[index] = reply
        self._conversations.add_piece(reply, ids, content)

    def _finish(
        self, index: int, gathered: Gathered, message: Mapping[str, Any] | None = None
    ) -> None:
        reply = self._replies.get(index)
        if reply is None or reply.finish or gathered.finish_reason in ("abort", "error"):
            return
        self._conversations.finish(
            reply,
            dict(message or gathered.message),
            str(gathered.finish_reason),
            None if self._shows_stop else gathered.stop_reason,
        )


def shown_usage(usage: Mapping[str, Any], *, is_single: bool) -> dict[str, Any]:
    """With `cached_tokens`, null where it is not reported or of one child of several."""
    details = dict(usage.get("prompt_tokens_details") or {})
    details["cached_tokens"] = details.get("cached_tokens") if is_single else None
    return {**usage, "prompt_tokens_details": details}
