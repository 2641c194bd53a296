"""`duramen verify` on the real engine: all that is claimed of vLLM holds, also from the outside."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from duramen.cli.verify import load_prompts
from duramen.serving.verify.suite import CLAIMS, verify
from duramen.serving.vllm.launch import VllmProcess

pytestmark = pytest.mark.live

DURAMEN = Path(sys.executable).with_name("duramen")


async def test_every_claim_holds(live_server: VllmProcess) -> None:
    verified = await verify(
        live_server.url,
        prompts=load_prompts(live_server.model_dir, None),
        events=live_server.events,
    )
    assert [(c.claim.name, c.verdict) for c in verified.checks if c.verdict != "holds"] == []
    assert verified.is_fit


def test_as_a_command(live_server: VllmProcess, tmp_path: Path) -> None:
    events = f"{live_server.events.publish},{live_server.events.replay}"
    asked = ["verify", "--upstream", live_server.url, "--tokenizer", str(live_server.model_dir)]
    result = tmp_path / "verified.json"
    done = subprocess.run(
        [DURAMEN, *asked, "--kv-events", events, "--json", result],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(result.read_text())
    assert (found["command"], found["fit"], found["unit_tokens"]) == ("verify", True, 32)
    assert found["engine"] == "vllm 0.32.0"
    assert [check["name"] for check in found["checks"]] == [claim.name for claim in CLAIMS]
    assert {check["verdict"] for check in found["checks"]} == {"holds"}
