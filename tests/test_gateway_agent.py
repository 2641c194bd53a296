"""An agent of the openai-agents package, unchanged, runs its tool loop through the gateway."""

import socket
from typing import Any, Literal

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from gateway_live_cases import MODEL, LiveGateway

pytestmark = pytest.mark.live


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The hosts to which this process has connected."""
    hosts: set[str] = set()
    connect = socket.socket.connect

    def noted(self: socket.socket, address: Any) -> None:
        hosts.add(address[0] if isinstance(address, tuple) else str(address))
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", noted)
    return hosts


@pytest.mark.parametrize("streams", [False, True], ids=["run", "run_streamed"])
async def test_a_tool_loop(live_gateway: LiveGateway, reached: set[str], streams: bool) -> None:
    set_tracing_disabled(True)
    asked: list[str] = []

    @function_tool
    def weather(city: Literal["Paris", "Rome"]) -> str:
        """Tells the weather of a city."""
        asked.append(city)
        return f"It is sunny in {city}, 21 degrees."

    question = "What is the weather in Rome?"
    async with live_gateway.client() as client:
        before = await listed(client, live_gateway)
        agent = Agent(
            name="weather agent",
            instructions=f"You are weather desk {int(streams)}. Answer in one sentence.",
            model=OpenAIChatCompletionsModel(MODEL, client),
            model_settings=ModelSettings(tool_choice="required", temperature=0, max_tokens=48),
            tools=[weather],
        )
        if streams:
            running = Runner.run_streamed(agent, question, max_turns=4)
            kinds = [event.type async for event in running.stream_events()]
            assert "raw_response_event" in kinds
            answer = running.final_output
        else:
            answer = (await Runner.run(agent, question, max_turns=4)).final_output
        (session_id,) = await listed(client, live_gateway) - before
        session: Any = await client.get(f"/duramen/sessions/{session_id}", cast_to=object)
    assert asked
    assert set(asked) <= {"Paris", "Rome"}
    assert isinstance(answer, str)
    assert answer.strip()
    first, *later = session["calls"]
    assert later
    num_tokens = first["added_tokens"]
    for before_it, call in zip(session["calls"], later, strict=False):
        num_tokens += before_it["replies"][0]["sampled_tokens"]
        assert call["parent"] == before_it["turn"]
        assert call["account"]["relation"] == "extends"
        assert call["account"]["recorded_tokens"] == num_tokens
        assert call["account"]["break"] is None
        num_tokens += call["added_tokens"]
    assert reached == {"127.0.0.1"}


async def listed(client: Any, gateway: LiveGateway) -> set[str]:
    answer = await client.get("/duramen/sessions", cast_to=object)
    return {session["id"] for session in answer["data"]}
