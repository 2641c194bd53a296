"""Every real recording is read with the right number of calls, or refused with one clear line."""

import json
import re
from itertools import pairwise

import pytest
from importer_files import read_lines

from duramen.experiments.importers.read import read_sessions
from duramen.layout.errors import TrajectoryError

# Sessions and calls of the files, counted by hand in the files themselves: lines of one message id
# are one call; of Codex, what the model made between two items that are not its own.
READ = {
    "claude-code/as_large.jsonl": (1, 5),
    "claude-code/as_small.jsonl": (3, 8),
    "claude-code/as_subagent_0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7f_subagents_agent-a0ad4f44468bdf20d"
    ".jsonl": (1, 1),
    "claude-code/ccl_edge_cases.jsonl": (2, 4),
    "claude-code/ccl_session_b.jsonl": (1, 1),
    "claude-code/sw_sample_session.jsonl": (1, 3),
    "codex-cli/as_large.jsonl": (1, 7),
    "codex-cli/as_session_branch.jsonl": (1, 2),
    "codex-cli/as_session_toolcall.jsonl": (1, 2),
    "codex-cli/pc_sample_rollout_known_event_types.jsonl": (1, 1),
    "codex-cli/pc_sample_rollout_unknown_event.jsonl": (1, 1),
    "otel-genai/code_review_workflow.json": (1, 15),
    "otel-genai/fan_in_dependencies.json": (1, 4),
    "otel-genai/parallel_requests.json": (1, 5),
    "otel-genai/simple_chain.json": (1, 3),
    "otel-genai/software_architecture_review.json": (1, 15),
    "mini-swe-agent/github_issue.traj.json": (1, 10),
    "openhands/basic.json": (1, 2),
    "openhands/basic_interactions.json": (1, 3),
    "openhands/output.jsonl": (2, 56),
    "sharegpt/sharegpt.json": (2, 2),
    "tau-bench/airline_a.json": (100, 1229),
}
SWE_AGENT_CALLS = [11, 15, 14, 18, 4, 7, 21, 5, 4, 5, 5, 12, 11, 11, 12]  # by file name
REFUSED = {
    "claude-code/ccusage_session-alpha_chat.jsonl": r"Claude Code lines \(3 with usage\), but no",
    "claude-code/ccusage_test-transcript.jsonl": r"Claude Code lines \(2 with usage\), but no",
    "codex-cli/as_codex_050_legacy.jsonl": "a Codex rollout without any text of the model",
    "codex-cli/as_codex_052_raw.jsonl": "a Codex rollout without any text of the model",
    "codex-cli/ccusage_project-alpha_session-alpha.jsonl": "a Codex rollout without any text",
    "tau-bench/MockAirlineDomainEnv-few_shot.jsonl": "tau-bench few-shot text has lost its tool",
    "tracelab/artifacts_utils_pricing.json": "unknown form, an object with _comment, as_of, exact",
    "tracelab/example_sessions_sanitized_round_trace.jsonl": "a trace of token counts",
    "mooncake/synthetic_trace.jsonl": "a trace of hash ids",
}
TEXTLESS = {
    "tracelab/example_sessions_codex_trace.json": "starts with a # comment and is no JSON",
    "tracelab/replay_examples_multi_session_large.csv": "bears no text; use `duramen simulate`",
}
NO_TRAJECTORIES = {"templates", "tokenizers"}  # not recordings: Jinja, and JSON of another kind


@pytest.mark.parametrize("name", READ)
def test_a_file_that_is_read(shared_data, name):
    sessions = list(read_sessions([shared_data / name]))
    assert (len(sessions), sum(len(session.calls) for session in sessions)) == READ[name]
    for session in sessions:
        assert {"messages", "reply"} <= session.origins.keys()
        for call in session.calls:
            assert call.reply is not None
            assert call.messages or "without any message before" in session.notes[1]


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_is_refused(shared_data, name):
    with pytest.raises(TrajectoryError, match=rf"{name}:1: {REFUSED[name]}") as raised:
        list(read_sessions([shared_data / name]))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", TEXTLESS)
def test_a_file_that_is_no_json(shared_data, name):
    with pytest.raises(TrajectoryError, match=f"{name}.*{TEXTLESS[name]}"):
        list(read_sessions([shared_data / name]))


def test_swe_agent(shared_data):
    paths = sorted((shared_data / "swe-agent").iterdir())
    sessions = [list(read_sessions([path])) for path in paths]
    assert [sum(len(s.calls) for s in found) for found in sessions] == SWE_AGENT_CALLS


def test_no_other_file_is_there_but_traces_of_hash_ids(shared_data):
    paths = [path for path in shared_data.rglob("*") if path.is_file()]
    names = {str(path.relative_to(shared_data)) for path in paths} - {"MANIFEST.tsv"}
    told = READ.keys() | REFUSED.keys() | TEXTLESS.keys()
    for name in sorted(names - told):
        folder = name.split("/")[0]
        if folder not in {*NO_TRAJECTORIES, "swe-agent"}:
            with pytest.raises(
                TrajectoryError, match=r"a trace of hash ids \(Weka\) bears no text"
            ):
                list(read_sessions([shared_data / name]))
    assert told <= names


def test_templates_and_tokenizers_are_refused_with_one_line(shared_data):
    for folder in NO_TRAJECTORIES:
        for path in (shared_data / folder).rglob("*.*"):
            refused = []
            assert not list(read_sessions([path], refused.append))
            assert refused[0].startswith(str(path))
            assert "\n" not in refused[0]


def test_a_real_codex_rollout(shared_data, tmp_path):
    """TraceLab shows one for readers: the records between lines of ===== make a rollout again."""
    shown = (shared_data / "tracelab" / "example_sessions_codex_trace.json").read_text("utf-8")
    records = [json.loads(r) for r in re.split(r"^===== record \d+ =====$", shown, flags=re.M)[1:]]
    counts = [
        r["payload"].get("info") for r in records if r["payload"].get("type") == "token_count"
    ]
    [session] = read_lines(tmp_path, records)
    assert len(session.calls) == len(counts) == 9
    total = counts[-1]["total_token_usage"]
    used = [call.usage for call in session.calls]
    assert sum(usage.prompt_tokens or 0 for usage in used) == total["input_tokens"]
    assert sum(usage.cached_tokens or 0 for usage in used) == total["cached_input_tokens"]
    assert sum(usage.completion_tokens or 0 for usage in used) == total["output_tokens"]
    assert session.calls[0].messages[0]["content"].startswith("You are Codex")
    for before, after in pairwise(session.calls):
        assert after.messages[: len(before.messages)] == before.messages
        assert after.messages[len(before.messages)] is before.reply
