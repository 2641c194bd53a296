"""The times that vLLM sums up itself, out of its /metrics page."""

import aiohttp.web
import pytest
from aiohttp.test_utils import TestServer

from duramen.serving.vllm.engine import VllmEngine
from duramen.serving.vllm.http import EngineHttp
from duramen.serving.vllm.protocol import EngineInfo
from duramen.serving.vllm.seam import ChatSeam
from duramen.serving.vllm.timings import EngineTimes, Summed, parse_times

PAGE = """\
# HELP vllm:time_to_first_token_seconds Histogram of time to first token in seconds.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="m"} 0.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 3.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 1.5
vllm:time_to_first_token_seconds_created{engine="0",model_name="m"} 1.7e+09
vllm:request_queue_time_seconds_count{engine="0",model_name="m"} 2.0
vllm:request_queue_time_seconds_sum{engine="0",model_name="m"} 2.5e-05
"""
TTFT = "vllm:time_to_first_token_seconds"


def test_a_page() -> None:
    assert parse_times(PAGE) == EngineTimes(Summed(1.5, 3), Summed(2.5e-05, 2), None)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (f"{TTFT}_count 2\n{TTFT}_sum 0.5", Summed(0.5, 2)),  # no labels, no last line end
        (f"{TTFT}_count 2 1700000000000\n{TTFT}_sum 0.5 -1\n", Summed(0.5, 2)),  # timestamps
        (f'{TTFT}_count{{m="a}} 9 {{"}} 2\n{TTFT}_sum{{m="a}} 9 {{"}} 0.5\n', Summed(0.5, 2)),
        (  # two engines
            f'{TTFT}_count{{e="0"}} 2\n{TTFT}_count{{e="1"}} 3\n'
            f'{TTFT}_sum{{e="0"}} 0.5\n{TTFT}_sum{{e="1"}} 0.25\n',
            Summed(0.75, 5),
        ),
        (f"{TTFT}_count 0.0\n{TTFT}_sum 0.0\n", Summed(0.0, 0)),
        (f"{TTFT}_count 2\n", None),
        (f"{TTFT}_sum 2\n", None),
        (f"{TTFT}_count 2\n{TTFT}_sum NaN\n", None),
        (f"{TTFT}_count +Inf\n{TTFT}_sum 1\n", None),
        (f"{TTFT}_count two\n{TTFT}_sum 1\n", None),
        (f"{TTFT}_counts 2\n{TTFT}_sum 1\nmy_{TTFT}_count 1\n", None),
        ("", None),
        ("<html>", None),
    ],
)
def test_time_to_first_token(page: str, expected: Summed | None) -> None:
    found = parse_times(page)
    assert (found.ttft if found else None) == expected


def test_only_the_difference_says_something() -> None:
    before = EngineTimes(Summed(2.0, 4), Summed(1.0, 4), None)
    after = EngineTimes(Summed(2.75, 7), Summed(0.5, 2), Summed(1.0, 7))
    assert after.since(before) == EngineTimes(Summed(0.75, 3), None, None)  # queue: began anew
    assert Summed(0.75, 3).mean_s == 0.25
    assert before.since(before).ttft == Summed(0.0, 0)
    assert Summed(0.0, 0).mean_s is None


INFO = EngineInfo("vllm", "0.32", "m", 100, 16, None, (), True)


@pytest.mark.parametrize(
    ("status", "page", "expected"),
    [(200, PAGE, 3), (200, "nothing of ours", None), (404, PAGE, None), (403, PAGE, None)],
)
async def test_a_server_that_shows_no_metrics(status: int, page: str, expected: int | None) -> None:
    async def metrics(request: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.Response(status=status, text=page)

    app = aiohttp.web.Application()
    app.router.add_get("/metrics", metrics)
    async with TestServer(app) as server:
        http = EngineHttp(str(server.make_url("/")), lambda: "")
        engine = VllmEngine(http, ChatSeam(http, "m"), INFO, dev_mode=False)
        times = await engine.times()
        await engine.close()
    assert (times.ttft.num if times and times.ttft else None) == expected
