"""Claims about the seam: our ids in, exactly these run, and the sampled ids come back."""

from collections.abc import Mapping
from typing import Any

from duramen.layout.errors import RequestError
from duramen.serving.verify.claim import Claim, NotTried, Seen
from duramen.serving.verify.subject import Subject, plain_ids
from duramen.serving.vllm.protocol import Sampling
from duramen.serving.vllm.seam import GenerateSeam

NUM_PROMPT = 8
NUM_REPLY = 4
NUM_CALL = 64  # tokens that a call of the tool may take
FORCED = 100  # of logit_bias: the most there is, so that this token is sampled
NUM_TRIED_TOKENS = 8  # until one is found whose text repeats as it is
TOOL = {
    "type": "function",
    "function": {
        "name": "duramen_probe",
        "description": "Switches the probe.",
        "strict": True,  # else vLLM lets the arguments be any JSON, and a small model rambles on
        "parameters": {
            "type": "object",
            "properties": {"on": {"type": "boolean"}},
            "required": ["on"],
            "additionalProperties": False,
        },
    },
}


async def _streamed(subject: Subject) -> Seen:
    prompt = plain_ids(NUM_PROMPT)
    done = await subject.run(prompt, subject.new_salt(), num_reply=NUM_REPLY)
    ending = (len(done.token_ids), done.finish_reason, done.prompt_tokens)
    saw = f"our ids, {ending[0]} sampled ids, {ending[1]!r}, usage of {ending[2]} prompt tokens"
    return Seen(ending == (NUM_REPLY, "length", NUM_PROMPT), saw)


async def _whole(subject: Subject) -> Seen:
    prompt = plain_ids(NUM_PROMPT)
    answer = await subject.chat(
        prompt,
        messages=[{"role": "user", "content": "This is not what runs."}],
        max_tokens=NUM_REPLY,
        min_tokens=NUM_REPLY,
    )
    ran, choice = answer.get("prompt_token_ids"), answer["choices"][0]
    sampled = choice.get("token_ids")
    saw = f"{_compared(ran, prompt)}, {_number(sampled)} sampled ids"
    is_right = ran == prompt and _number(sampled) == NUM_REPLY
    return Seen(is_right and answer["usage"]["prompt_tokens"] == NUM_PROMPT, saw)


async def _eos(subject: Subject) -> Seen:
    eos_id = None if subject.prompts is None else subject.prompts.eos_id
    if eos_id is None:
        raise NotTried("which token ends a reply is not known: give --tokenizer DIR")
    choice = await _forced(subject, eos_id, max_tokens=NUM_REPLY)
    ending = (choice.get("token_ids"), choice["finish_reason"], choice.get("stop_reason"))
    said = _text(choice)
    is_right = ending[:2] == ([eos_id], "stop") and ending[2] in (None, eos_id) and not said
    return Seen(is_right, f"ids {ending[0]}, {ending[1]!r}, stop_reason {ending[2]}, text {said!r}")


async def _stop_string(subject: Subject) -> Seen:
    for token_id in plain_ids(NUM_TRIED_TOKENS):
        said = _text(await _forced(subject, token_id, max_tokens=NUM_REPLY))
        piece = said[: len(said) // NUM_REPLY]
        if piece.strip() and piece.isprintable() and piece * NUM_REPLY == said:
            break
    else:
        raise NotTried("no token was found whose text repeats as it is")
    stop = piece * 2
    choice = await _forced(subject, token_id, max_tokens=NUM_REPLY, stop=[stop])
    ids, said = choice.get("token_ids"), _text(choice)
    ending = (choice["finish_reason"], choice.get("stop_reason"))
    is_right = ids == [token_id] * 2 and not said and ending == ("stop", stop)
    return Seen(is_right, f"ids {ids}, text {said!r}, {ending[0]!r}, stop_reason {ending[1]!r}")


async def _choices(subject: Subject) -> Seen:
    prompt = plain_ids(NUM_PROMPT)
    answer = await subject.chat(
        prompt, n=2, temperature=1.0, max_tokens=NUM_REPLY, min_tokens=NUM_REPLY
    )
    ran = answer.get("prompt_token_ids")
    sampled = {c["index"]: _number(c.get("token_ids")) for c in answer["choices"]}
    saw = f"{_compared(ran, prompt)}, sampled ids by choice: {sampled}"
    return Seen(ran == prompt and sampled == {0: NUM_REPLY, 1: NUM_REPLY}, saw)


async def _tools(subject: Subject) -> Seen:
    prompt = plain_ids(NUM_PROMPT)
    try:
        done = await subject.run(prompt, subject.new_salt(), num_reply=NUM_REPLY, tools=[TOOL])
    except RequestError as error:
        raise NotTried(f"this server takes no tools: {error.reason}") from None
    return Seen(len(done.token_ids) == NUM_REPLY, f"our ids, {len(done.token_ids)} sampled ids")


async def _named_tool(subject: Subject) -> Seen:
    prompt, name = plain_ids(NUM_PROMPT), TOOL["function"]["name"]  # type: ignore[index]
    choice_of_tool = {"type": "function", "function": {"name": name}}
    try:
        answer = await subject.chat(
            prompt, tools=[TOOL], tool_choice=choice_of_tool, max_tokens=NUM_CALL
        )
    except RequestError as error:
        raise NotTried(f"this server takes no named tool: {error.reason}") from None
    ran, choice = answer.get("prompt_token_ids"), answer["choices"][0]
    num_sampled = _number(choice.get("token_ids"))
    called = [call["function"]["name"] for call in choice["message"].get("tool_calls") or ()]
    if ran == prompt and not called and choice["finish_reason"] == "length":
        raise NotTried(f"our ids, but the model did not end its call within {NUM_CALL} tokens")
    saw = f"{_compared(ran, prompt)}, {num_sampled} sampled ids, calls {called}"
    return Seen(ran == prompt and called == [name] and num_sampled > 0, saw)


async def _too_long(subject: Subject) -> Seen:
    return await _refusal(subject, plain_ids(subject.facts.max_model_len))


async def _unknown_id(subject: Subject) -> Seen:
    seen = await _refusal(subject, [*plain_ids(NUM_PROMPT), 2**31 - 1])
    await subject.http.get("/health")
    return seen


async def _fallback(subject: Subject) -> Seen:
    prompt = plain_ids(NUM_PROMPT)
    sampling = Sampling(max_tokens=NUM_REPLY, min_tokens=NUM_REPLY)
    seam = GenerateSeam(subject.http, subject.facts.model)
    try:
        done = await seam.run(prompt, sampling, (), subject.new_salt(), None)
    except RequestError as error:
        if error.status in (404, 405):
            raise NotTried(
                "the server has neither endpoint: they need --enable-scale-out"
            ) from None
        raise
    is_right = len(done.token_ids) == NUM_REPLY and done.finish_reason == "length"
    return Seen(is_right, f"our ids, {len(done.token_ids)} sampled ids, {done.finish_reason!r}")


async def _refusal(subject: Subject, prompt: list[int]) -> Seen:
    try:
        done = await subject.run(prompt, subject.new_salt())
    except RequestError as error:
        return Seen(error.status == 400, f"{error.status}: {error.reason}")
    return Seen(False, f"it answered, {done.prompt_tokens} prompt tokens")


async def _forced(subject: Subject, token_id: int, **fields: Any) -> Mapping[str, Any]:
    """The choice of a call that can sample nothing but `token_id`."""
    bias = {str(token_id): FORCED}
    answer = await subject.chat(plain_ids(NUM_PROMPT), logit_bias=bias, **fields)
    choice: Mapping[str, Any] = answer["choices"][0]
    return choice


def _text(choice: Mapping[str, Any]) -> str:
    message = choice["message"]
    return (message.get("reasoning") or "") + (message.get("content") or "")


def _number(token_ids: Any) -> int:
    return len(token_ids) if isinstance(token_ids, list) else 0


def _compared(ran: Any, sent: list[int]) -> str:
    if ran is None:
        return "no ids of the prompt"
    return "our ids" if ran == sent else f"{_number(ran)} other ids"


SEAM = "serving/vllm/seam.py: every token-exact call"
CLAIMS = (
    Claim(
        "chat-ids-streamed",
        f"chat request with {NUM_PROMPT} ids in kv_transfer_params.prompt_token_ids, streamed",
        f"the same ids back, {NUM_REPLY} sampled ids, 'length', usage",
        SEAM,
        _streamed,
    ),
    Claim(
        "chat-ids-whole",
        "the same, not streamed, with messages beside the ids",
        f"the same ids back, messages ignored, {NUM_REPLY} sampled ids",
        SEAM,
        _whole,
    ),
    Claim(
        "eos-is-sampled",
        "a call that can sample nothing but the EOS",
        "'stop', its id the last of the sampled ones, no text",
        "layout/transcript.py: what closes a turn is not written twice",
        _eos,
    ),
    Claim(
        "stop-string",
        "a call that repeats one token, stopped at its text twice",
        "'stop' and the string, both ids, no text",
        "layout/transcript.py: the token in which a stop string begins is dropped",
        _stop_string,
    ),
    Claim(
        "several-choices",
        "n = 2 with our ids",
        "the same ids back, two choices with ids of their own",
        "serving/gateway: n > 1",
        _choices,
    ),
    Claim(
        "tools-auto",
        "our ids with a tool, its use left to the model",
        "the same ids back: the tool is for the parser alone",
        "serving/gateway: tool calls",
        _tools,
    ),
    Claim(
        "tools-named",
        "our ids with a tool that has to be called",
        "the same ids back, a call of this tool, sampled ids",
        "serving/gateway: tool calls",
        _named_tool,
    ),
)
FALLBACK = Claim(
    "fallback-seam",
    "/inference/v1/generate with our ids, then /v1/chat/completions/derender",
    f"the same ids back, {NUM_REPLY} sampled ids, a parsed message",
    "serving/vllm/seam.py: GenerateSeam, where the chat endpoint takes no ids",
    _fallback,
    needed=False,
)
TOO_LONG = Claim(
    "too-long",
    "a prompt that fills the whole context",
    "refused with 400",
    "serving/gateway/too_long.py: the client is told, nothing is cut",
    _too_long,
)
UNKNOWN_ID = Claim(
    "unknown-id",
    "a prompt with an id beyond any vocabulary",
    "refused with 400, and the server lives",
    "serving/vllm/seam.py: a mistake costs one call",
    _unknown_id,
)
