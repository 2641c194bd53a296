"""Attaching to what is no vLLM, or to one that wants a key."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from duramen.layout.errors import EngineError, RequestError
from duramen.serving.vllm.engine import attach


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """A web page at /page, and a server that asks for the key "sesame" at /locked."""

    async def page(request: web.Request) -> web.Response:
        return web.Response(text="<html>hello</html>", content_type="text/html")

    async def locked(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer sesame":
            return web.json_response({"error": {"message": "Unauthorized"}}, status=401)
        return web.json_response(["no version here"])

    app = web.Application()
    app.router.add_get("/page/{rest:.*}", page)
    app.router.add_get("/locked/{rest:.*}", locked)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_a_web_page_is_not_vllm(server: str) -> None:
    with pytest.raises(EngineError, match=r"/page/version answers, but not in JSON"):
        await attach(f"{server}/page")


async def test_the_key_is_asked_for_and_sent(server: str) -> None:
    with pytest.raises(RequestError, match=r"401.*DURAMEN_API_KEY"):
        await attach(f"{server}/locked")
    with pytest.raises(EngineError, match="names no version"):
        await attach(f"{server}/locked", api_key="sesame")
