"""The gateway's OpenAPI 3.1 description. Request bodies come from the shapes that check them.

Answers are described as far as they are promised: an engine may add fields everywhere.
"""

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import msgspec

from duramen.serving.gateway import shapes

Json = dict[str, Any]

ERRORS = {
    "400": "The request is not valid; `error.param` names the field.",
    "401": "The API key is missing or unknown.",
    "404": "There is no such model or session.",
    "408": "The body did not come in time.",
    "413": "The body is larger than the gateway takes.",
    "429": "Too many calls run or wait, or their bodies are too large.",
    "4XX": "The engine refused the call.",
    "500": "A bug of the gateway.",
    "503": "No engine is up, one broke off, or the gateway is ending.",
    "504": "The call took longer than the gateway allows.",
}
READ_ERRORS = ("401", "500", "503")

STRING: Json = {"type": "string"}
COUNT: Json = {"type": "integer", "minimum": 0}
SESSION_HEADER: Json = {
    "name": "x-duramen-session",
    "in": "header",
    "description": "The session that this call belongs to. Without it the conversation is "
    "recognised by what it says.",
    "schema": {**STRING, "minLength": 1, "maxLength": 256},
}
EXPLAIN_HEADER: Json = {
    "name": "x-duramen-explain",
    "in": "header",
    "description": "1: the answer has an object `duramen` that says what could be reused, what was "
    "promised and what was delivered.",
    "schema": STRING,
}
SESSION_ID: Json = {"name": "session_id", "in": "path", "required": True, "schema": STRING}
MODEL_ID: Json = {"name": "model_id", "in": "path", "required": True, "schema": STRING}
EXACT_ANSWER: Json = {
    "x-duramen-token-exact": {
        "description": "false: the engine laid the prompt out, and nothing is remembered.",
        "schema": {"enum": ["true", "false"]},
    }
}
SESSION_ANSWER: Json = {
    "x-duramen-session": {
        "description": "The session of a token-exact call.",
        "schema": STRING,
    }
}


def openapi() -> Json:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Duramen",
            "version": version("duramen"),
            "description": "OpenAI-compatible; keeps every conversation token-exact.",
        },
        "security": [{"bearer": []}, {}],
        "paths": _paths(),
        "components": {
            "schemas": {**_request_schemas(), **_answer_schemas()},
            "responses": {f"Error{status}": _error(status) for status in ERRORS},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _paths() -> Json:
    ours = [SESSION_HEADER, EXPLAIN_HEADER]
    session = _json_answer("Its calls, with zones, spans and bounds.", "Session")
    deleted = _json_answer("It is forgotten.", "Deleted")
    return {
        "/v1/chat/completions": {
            "post": _completion("createChatCompletion", "ChatRequest", "ChatCompletion", ours)
        },
        "/v1/completions": {
            "post": _completion("createCompletion", "CompletionRequest", "Completion", [])
        },
        "/tokenize": {"post": _tokenize()},
        "/v1/models": _get("listModels", _json_answer("The model and its aliases.", "ModelList")),
        "/v1/models/{model_id}": _get(
            "getModel", _json_answer("The model.", "Model"), "404", parameters=[MODEL_ID]
        ),
        "/v1/duramen/sessions": _get(
            "listSessions", _json_answer("The caller's sessions.", "SessionList")
        ),
        "/v1/duramen/sessions/{session_id}": {
            **_get("getSession", session, "404", parameters=[SESSION_ID]),
            "delete": _operation("deleteSession", deleted, ("404", *READ_ERRORS), [SESSION_ID]),
        },
        "/health": {"get": _health()},
        "/metrics": _open("getMetrics", _answer("For Prometheus.", "text/plain", STRING)),
        "/openapi.json": _open(
            "getOpenapi", _answer("This description.", "application/json", {"type": "object"})
        ),
    }


def _completion(name: str, request: str, answer: str, parameters: list[Json]) -> Json:
    done = _json_answer("The completion, or with `stream: true` its pieces.", answer)
    done["content"]["text/event-stream"] = {
        "schema": {
            "description": "Server-sent events: one JSON object after each `data: `, and at the "
            "end `data: [DONE]`. An error that comes later is an object `error`.",
        }
    }
    done["headers"] = EXACT_ANSWER | (SESSION_ANSWER if parameters else {})
    return _operation(name, done, ERRORS, parameters) | {"requestBody": _body(_ref(request))}


def _tokenize() -> Json:
    answer = _json_answer("Token ids: of messages, those that a call would send now.", "Tokens")
    either = {"anyOf": [_ref("TokenizeChatRequest"), _ref("TokenizeTextRequest")]}
    return _operation("tokenize", answer, ERRORS, [SESSION_HEADER]) | {"requestBody": _body(either)}


def _health() -> Json:
    operation = _operation("getHealth", _json_answer("Calls are taken.", "Health"), ("500",), [])
    operation["responses"]["503"] = _json_answer("Calls are not taken yet, or no more.", "Health")
    return operation | {"security": []}


def _open(name: str, answer: Json) -> Json:
    return {"get": _operation(name, answer, ("500",), []) | {"security": []}}


def _get(name: str, answer: Json, *errors: str, parameters: list[Json] | None = None) -> Json:
    return {"get": _operation(name, answer, (*errors, *READ_ERRORS), parameters or [])}


def _operation(name: str, answer: Json, errors: Iterable[str], parameters: list[Json]) -> Json:
    failed = {e: {"$ref": f"#/components/responses/Error{e}"} for e in errors}
    return {"operationId": name, "parameters": parameters, "responses": {"200": answer, **failed}}


def _body(schema: Json) -> Json:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _answer(text: str, media_type: str, schema: Json) -> Json:
    return {"description": text, "content": {media_type: {"schema": schema}}}


def _json_answer(text: str, schema: str) -> Json:
    return _answer(text, "application/json", _ref(schema))


def _error(status: str) -> Json:
    answer = _json_answer(ERRORS[status], "Error")
    if status in ("429", "503"):
        answer["headers"] = {"Retry-After": {"description": "Seconds.", "schema": COUNT}}
    return answer


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _request_schemas() -> Json:
    _, schemas = msgspec.json.schema_components(
        [
            shapes.ChatRequest,
            shapes.CompletionRequest,
            shapes.TokenizeChatRequest,
            shapes.TokenizeTextRequest,
        ],
        ref_template="#/components/schemas/{name}",
    )
    token_ids = {"type": "array", "items": COUNT, "minItems": 1}
    prompts = {"type": "array", "minItems": 1, "maxItems": shapes.MAX_PROMPTS}
    schemas["CompletionRequest"]["properties"]["prompt"] = {  # a list holds one kind of thing
        "anyOf": [
            {**STRING, "minLength": 1},
            {"items": STRING, **prompts},
            token_ids,
            {"items": {"type": "array", "items": COUNT}, **prompts},
        ]
    }
    # with "messages" a body counts as a chat, whatever else it has
    schemas["TokenizeTextRequest"]["not"] = {"required": ["messages"]}
    for name in ("ChatRequest", "CompletionRequest"):
        schemas[name] |= {  # stream_options need a stream
            "if": {
                "required": ["stream_options"],
                "properties": {"stream_options": {"type": "object", "minProperties": 1}},
            },
            "then": {"required": ["stream"], "properties": {"stream": {"const": True}}},
        }
    return dict(schemas)


def _object(required: Json, **more: Json) -> Json:
    return {"type": "object", "required": list(required), "properties": required | more}


def _array(items: Json) -> Json:
    return {"type": "array", "items": items}


def _answer_schemas() -> Json:
    details = {"anyOf": [_object({"cached_tokens": _or_null(COUNT)}), {"type": "null"}]}
    choice = {"index": COUNT, "finish_reason": _or_null(STRING)}
    reply = {"id": STRING, "created": COUNT, "model": STRING, "usage": _ref("Usage")}
    message = _object({"role": STRING}, content=_or_null(STRING), tool_calls=_array({}))
    chat_choice = _object(choice | {"message": message})
    text_choice = _object(choice | {"text": STRING})
    error = {"message": STRING, "type": STRING, "param": _or_null(STRING)}
    return {
        "Error": _object({"error": _object(error | {"code": _or_null(STRING)})}),
        "Usage": _object(
            {"prompt_tokens": COUNT, "total_tokens": COUNT},
            completion_tokens=COUNT,
            prompt_tokens_details=details,
        ),
        "ChatCompletion": _object(
            {**reply, "object": {"const": "chat.completion"}, "choices": _array(chat_choice)},
            duramen={"type": "object"},
        ),
        "Completion": _object(
            {**reply, "object": {"const": "text_completion"}, "choices": _array(text_choice)}
        ),
        "Tokens": _object({"tokens": _array(COUNT), "count": COUNT, "max_model_len": COUNT}),
        "Model": _object({"id": STRING, "object": {"const": "model"}, "owned_by": STRING}),
        "ModelList": _object({"object": {"const": "list"}, "data": _array(_ref("Model"))}),
        "Session": _object({"id": STRING, "object": {"const": "session"}, "calls": _array({})}),
        "SessionList": _object({"object": {"const": "list"}, "data": _array(_ref("SessionLine"))}),
        "SessionLine": _object({"id": STRING, "last_used": {"type": "number"}, "num_calls": COUNT}),
        "Deleted": _object({"id": STRING, "deleted": {"type": "boolean"}}),
        "Health": _object(
            {
                "status": {"enum": ["ready", "starting", "draining"]},
                "reason": _or_null(STRING),
                "store": STRING,
            }
        ),
    }


def _or_null(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}
