"""What a tenant can find out of another's sessions: nothing, whatever it asks."""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from gateway_cases import MODEL, Case, gateway, system, user

from duramen.serving.gateway.key_file import key_line
from duramen.serving.gateway.settings import Limits, SessionSettings, Settings

ALICE, BOB, CAROL = "dk-alice", "dk-bob", "dk-carol"
CHAT = "/v1/chat/completions"
SESSIONS = "/v1/duramen/sessions"
SECRET = "The vault opens at noon. " * 20  # several blocks of the fake engine


class Client:
    """One tenant."""

    def __init__(self, http: aiohttp.ClientSession, root: str, key: str) -> None:
        self._http = http
        self._root = root
        self._key = key

    async def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, JSON and headers, without what differs between any two answers."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent["authorization"] = f"Bearer {self._key}"
        url = self._root + path
        async with self._http.request(method, url, json=body, headers=sent) as response:
            got = {name.lower(): value for name, value in response.headers.items()}
            del got["x-request-id"], got["date"]
            return response.status, await response.json(content_type=None), got

    async def chat(self, *messages: Any, session: str | None = None, **fields: Any) -> Any:
        body = {"messages": list(messages), "max_tokens": 8, **fields}
        named = {"x_duramen_session": session} if session else {}
        status, answer, _ = await self.ask("POST", CHAT, body, x_duramen_explain="1", **named)
        assert status == 200, answer
        return answer


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(sessions=SessionSettings(store=tmp_path / "sessions.sqlite"))


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    names = {"alice": ALICE, "bob": BOB, "carol": CAROL}
    path.write_text("".join(f"{key_line(name, key)}\n" for name, key in names.items()))
    path.chmod(0o600)
    return path


@pytest.fixture
async def case(smollm2: Path, settings: Settings, key_file: Path) -> AsyncIterator[Case]:
    async with gateway(smollm2, settings, api_key_file=key_file) as made:
        yield made


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as client:
        yield client


@pytest.fixture
def clients(case: Case, http: aiohttp.ClientSession) -> list[Client]:
    root = case.url.removesuffix("/v1")
    return [Client(http, root, key) for key in (ALICE, BOB, CAROL)]


async def secret_call(alice: Client) -> tuple[str, list[Any]]:
    """Alice's session, and the history that goes on behind its reply."""
    messages = [system(), user(SECRET)]
    answer = await alice.chat(*messages)
    history = [*messages, answer["choices"][0]["message"], user("And then?")]
    return answer["duramen"]["session"], history


async def test_foreign_sessions_are_as_unknown_ones(clients: list[Client]) -> None:
    alice, bob, _ = clients
    session, _ = await secret_call(alice)
    unknown = "s-" + "0" * 16
    assert len(unknown) == len(session)
    for method in ("GET", "DELETE"):
        status, foreign, headers = await bob.ask(method, f"{SESSIONS}/{session}")
        assert status == 404
        assert foreign["error"]["message"] == f"there is no session '{session}'"
        assert foreign["error"]["code"] == "session_not_found"
        same = await bob.ask(method, f"{SESSIONS}/{unknown}")
        foreign["error"]["message"] = foreign["error"]["message"].replace(session, unknown)
        assert same == (404, foreign, headers)
    assert (await bob.ask("GET", SESSIONS))[1]["data"] == []
    assert [each["id"] for each in (await alice.ask("GET", SESSIONS))[1]["data"]] == [session]
    assert (await alice.ask("GET", f"{SESSIONS}/{session}"))[0] == 200


@pytest.mark.parametrize("names_it", [False, True])
async def test_a_foreign_history_is_a_new_one(clients: list[Client], names_it: bool) -> None:
    alice, bob, carol = clients
    session, history = await secret_call(alice)
    named = session if names_it else None
    told = (await bob.chat(*history, session=named))["duramen"]
    assert told["relation"] == "new"
    assert told["recorded_tokens"] == told["delivered_tokens"] == 0
    assert told["predicted_tokens"] == [0, 0]
    assert told["bounds"] | {"prompt": 0} == {"prompt": 0, "content": 0, "token": 0, "unit": 0}
    assert (told["session"] == session) == names_it  # a session of Bob's, by the same name
    unseen = (await carol.chat(*history, session=named))["duramen"]
    assert told | varying(told) == unseen | varying(told)
    kept = (await alice.ask("GET", f"{SESSIONS}/{session}"))[1]
    assert len(kept["calls"]) == 1
    own = (await alice.chat(*history, session=named))["duramen"]
    assert own["relation"] == "extends"
    assert own["delivered_tokens"] == own["bounds"]["unit"] > 0


def varying(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: told[name] for name in ("session", "queued_ms")}


async def test_no_field_reaches_a_foreign_cache(case: Case, clients: list[Client]) -> None:
    alice, bob, _ = clients
    _, history = await secret_call(alice)
    salt = case.engine.bodies[-1]["cache_salt"]  # as if Bob knew it
    for fields in (
        {"cache_salt": salt},
        {"vllm_xargs": {"cache_salt": salt, "kv_transfer_params": {}}},
        {"extra_body": {"cache_salt": salt}},
        {"priority": -(2**60), "request_id": "r", "session_id": "s"},
    ):
        told = (await bob.chat(*history[:2], **fields))["duramen"]
        assert told["delivered_tokens"] == 0 or "cache_salt" not in fields
        sent = case.engine.bodies[-1]
        assert sent["cache_salt"] != salt
        assert sent.keys().isdisjoint({"request_id", "session_id", "ec_transfer_params"})
        assert salt not in str(sent.get("vllm_xargs", ""))
    for refused in ({"kv_transfer_params": {"prompt_token_ids": [1]}}, {"cache_salt": ""}):
        body = {"messages": history, **refused}
        assert (await bob.ask("POST", CHAT, body))[0] == 400
    told = (await bob.chat(*history[:2], cache_salt="x"))["duramen"]
    assert told["delivered_tokens"] == 0
    await bob.ask("POST", "/v1/completions", {"prompt": SECRET, "cache_salt": salt})
    raw = case.engine.bodies[-1]
    assert raw["prompt"] == SECRET
    assert raw["cache_salt"] not in (salt, "", None)


async def test_tokenize_shows_own_ids_only(case: Case, clients: list[Client]) -> None:
    alice, bob, carol = clients
    _, history = await secret_call(alice)
    body = {"messages": history}
    ids = [(await who.ask("POST", "/tokenize", body))[1]["tokens"] for who in clients]
    await alice.chat(*history)
    assert ids[0] == case.sent()
    await bob.chat(*history)
    assert ids[1] == ids[2] == case.sent()
    _, listed, _ = await carol.ask("GET", SESSIONS)
    assert listed["data"] == []  # asking leaves nothing


async def test_the_store_is_asked_the_same_for_foreign_and_unknown(
    case: Case, clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that differed would show in time."""
    alice, bob, _ = clients
    session, history = await secret_call(alice)
    asked: list[tuple[str, int]] = []
    store = case.run.gateway.tree.store

    def noted(name: str, do: Callable[..., Any], *arguments: Any) -> Any:
        asked.append((name, len(arguments[-1])))
        return do(*arguments)

    for name in ("find", "load", "delete", "list_sessions"):
        monkeypatch.setattr(store, name, partial(noted, name, getattr(store, name)))

    async def questions(session: str, history: list[Any]) -> list[tuple[str, int]]:
        asked.clear()
        await bob.chat(*history)
        await bob.ask("GET", f"{SESSIONS}/{session}")
        await bob.ask("DELETE", f"{SESSIONS}/{session}")
        await bob.ask("GET", SESSIONS)
        return list(asked)

    other = [system(), user(SECRET[::-1]), {"role": "assistant", "content": "no"}, user("Well?")]
    foreign = await questions(session, history)
    assert foreign == await questions("s-" + "0" * 16, other)
    assert {name for name, _ in foreign} == {"find", "load", "delete", "list_sessions"}


async def test_no_text_is_encoded_faster_because_another_sent_it(
    case: Case, clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob, carol = clients
    _, history = await secret_call(alice)
    conversations = case.run.gateway.serving.conversations
    tokenizer = conversations.model.tokenizer
    encoded: list[str] = []

    def noted(text: str, at_start: bool, do: Any = tokenizer._encode_plain) -> list[int]:
        encoded.append(text)
        ids: list[int] = do(text, at_start)
        return ids

    monkeypatch.setattr(tokenizer, "_encode_plain", noted)

    async def texts_encoded(who: Client) -> list[str]:
        encoded.clear()
        await who.ask("POST", "/tokenize", {"messages": history[:2]})
        return list(encoded)

    assert await texts_encoded(alice) == []
    by_bob = await texts_encoded(bob)
    assert f"user\n{SECRET}" in by_bob
    assert await texts_encoded(carol) == by_bob
    assert await texts_encoded(bob) == []


async def test_metrics_and_reasons_are_for_the_operator(
    case: Case, http: aiohttp.ClientSession
) -> None:
    root = case.url.removesuffix("/v1")
    async with http.get(f"{root}/metrics") as response:
        assert response.status == 200
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"):
        async with http.get(f"{root}/metrics", headers={header: "127.0.0.1"}) as response:
            assert response.status == 403
    supervisor = case.run.gateway.engines.members[0].supervisor
    monkeyed, supervisor.reason = supervisor.reason, "vLLM's log says: The vault opens at noon."
    supervisor.engine, engine = None, supervisor.engine
    try:
        async with http.get(f"{root}/health") as response:
            assert "vault" in (await response.json())["reason"]
        async with http.get(f"{root}/health", headers={"Via": "1.1 proxy"}) as response:
            assert (await response.json())["reason"] == "ready"
        headers = {"authorization": f"Bearer {BOB}"}
        body = {"messages": [user("hi")]}
        async with http.post(f"{root}{CHAT}", json=body, headers=headers) as response:
            assert response.status == 503
            assert "vault" not in await response.text()
    finally:
        supervisor.engine, supervisor.reason = engine, monkeyed


@pytest.mark.parametrize("key", [None, "", "Bearer", "Bearer dk-mallory", f"Basic {ALICE}"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", CHAT),
        ("POST", "/v1/completions"),
        ("POST", "/tokenize"),
        ("GET", "/v1/models"),
        ("GET", f"/v1/models/{MODEL}"),
        ("GET", SESSIONS),
        ("GET", f"{SESSIONS}/s"),
        ("DELETE", f"{SESSIONS}/s"),
    ],
)
async def test_nothing_without_a_key(
    case: Case, http: aiohttp.ClientSession, key: str | None, method: str, path: str
) -> None:
    headers = {} if key is None else {"authorization": key}
    url = case.url.removesuffix("/v1") + path
    async with http.request(method, url, headers=headers, data=b"{") as response:
        assert response.status == 401
        assert (await response.json())["error"]["code"] == "invalid_api_key"


async def test_a_full_queue_tells_no_numbers(smollm2: Path, key_file: Path) -> None:
    limits = Limits(max_running=1, max_queued=0)
    async with (
        gateway(smollm2, Settings(limits=limits), api_key_file=key_file) as case,
        aiohttp.ClientSession() as http,
    ):
        root = case.url.removesuffix("/v1")
        alice, bob = (Client(http, root, key) for key in (ALICE, BOB))
        answers: list[Any] = []

        async def meanwhile(_: int) -> None:
            if not answers:
                answers.append(await bob.ask("POST", CHAT, {"messages": [user("hi")]}))

        case.engine.before_token = meanwhile
        await alice.chat(user(SECRET))
        [(status, body, headers)] = answers
        assert status == 429
        text = r"too many calls wait for the engine: try again in \d+ s"
        assert re.fullmatch(text, body["error"]["message"])
        assert headers.keys() <= {"content-type", "content-length", "retry-after"}
