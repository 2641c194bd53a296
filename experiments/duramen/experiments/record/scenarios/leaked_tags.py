"""Bookkeeping of SWE-agent gets into prompts: one key is missing from a set."""

from duramen.experiments.record.scenario import Near, Scenario, Turn, Use

IMPORTERS = "experiments/duramen/experiments/importers"
SWE_AGENT = f"{IMPORTERS}/swe_agent.py"
TEST = "tests/test_swe_agent_messages.py"
TEST_TEXT = """\
from duramen.experiments.importers.documents import Document
from duramen.experiments.importers.swe_agent import read_swe_agent

HISTORY = [
    {"role": "system", "content": "Mend it.", "agent": "main", "message_type": "system_prompt"},
    {"role": "user", "content": "It fails.", "agent": "main", "tags": ["keep_output"]},
    {"role": "assistant", "content": "ls", "agent": "main", "thought": "", "action": "ls"},
]


def test_a_prompt_holds_nothing_but_chat_messages():
    [session] = read_swe_agent(iter([Document("run.traj:1", {"history": HISTORY})]), "run")
    assert session.calls[0].messages == (
        {"role": "system", "content": "Mend it."},
        {"role": "user", "content": "It fails."},
    )
"""
SOUND = '    "message_type",\n    "tags",\n'
FAULTY = '    "message_type",\n'

SCENARIO = Scenario(
    name="leaked-tags",
    task=(
        "Some templates refuse messages from our SWE-agent import: there is an unknown key in "
        "them. It happens for runs whose history processor marks observations. "
        "tests/test_swe_agent_messages.py reproduces it. Find the key, keep it out of the "
        "messages, and make sure that no other importer writes it."
    ),
    path=SWE_AGENT,
    fault=(SOUND, FAULTY),
    test_path=TEST,
    test_text=TEST_TEXT,
    turns=(
        Turn(
            "Let me see the failure and the files that are involved.",
            (
                Use("run_tests", {"path": TEST}),
                Use("list_files", {"path": IMPORTERS}),
            ),
        ),
        Turn(
            "The key is `tags`. Where does the importer decide which keys stay?",
            (Use("grep", {"pattern": "BOOKKEEPING|bookkeeping", "path": SWE_AGENT}),),
        ),
        Turn(
            "There is a set of them. I read it.",
            (Use("read_file", {"path": SWE_AGENT}, Near("BOOKKEEPING = {", 0, 9)),),
        ),
        Turn(
            "`tags` is missing there. The module docstring should say what is meant to be left "
            "out.",
            (Use("read_file", {"path": SWE_AGENT}, Near("Bookkeeping left out", 0, 6)),),
        ),
        Turn(
            "The docstring lists tags, so the set is what is wrong. Now the place that uses it, "
            "to be sure that one more key is enough.",
            (Use("read_file", {"path": SWE_AGENT}, Near("def _message", 0, 9)),),
        ),
        Turn(
            "Every key in the set is dropped for all roles. I add tags.",
            (Use("edit_file", {"path": SWE_AGENT, "old_text": FAULTY, "new_text": SOUND}),),
        ),
        Turn(
            "Run the test again.",
            (Use("run_tests", {"path": TEST}),),
        ),
        Turn(
            "It passes. The second half of the task: does any other importer know this key?",
            (Use("grep", {"pattern": r"\btags\b", "path": IMPORTERS}),),
        ),
        Turn(
            "Done. The SWE-agent importer keeps a set of bookkeeping keys that do not belong into "
            "a chat message. `tags`, which history processors use to mark observations, was in the "
            "docstring but not in the set, so it stayed in the messages. I added it; the test in "
            "tests/test_swe_agent_messages.py failed before and passes now. No other importer "
            "writes that key."
        ),
    ),
)
