"""A JSONL file with blank lines is refused: the reader looks at the raw line, ending included."""

from duramen.experiments.record.scenario import Near, Scenario, Turn, Use

IMPORTERS = "experiments/duramen/experiments/importers"
DOCUMENTS = f"{IMPORTERS}/documents.py"
TEST = "tests/test_blank_lines.py"
TEST_TEXT = """\
from duramen.experiments.importers.documents import read_documents


def test_blank_lines_are_allowed(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a": 1}\\r\\n\\r\\n{"a": 2}\\n\\n')
    assert [document.value for document in read_documents(path)] == [{"a": 1}, {"a": 2}]
"""
LINE_TEST = """\
    assert [document.value for document in read_documents(path)] == [{"a": 1}, {"a": 2}]
"""
NUMBER_TEST = """\


def test_lines_keep_their_number(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a": 1}\\n\\n{"a": 2}\\n')
    assert [document.where for document in read_documents(path)] == [f"{path}:1", f"{path}:3"]
"""
SOUND = "                if line.strip() and number not in self.skipped:\n"
FAULTY = "                if line and number not in self.skipped:\n"

SCENARIO = Scenario(
    name="blank-lines",
    task=(
        "A log from a proxy on Windows cannot be imported: it separates its records by blank "
        "lines, and the import stops at the first of them. Blank lines are documented as allowed. "
        "tests/test_blank_lines.py reproduces it. Mend the reader, and add a test that line "
        "numbers in error messages still count blank lines."
    ),
    path=DOCUMENTS,
    fault=(SOUND, FAULTY),
    test_path=TEST,
    test_text=TEST_TEXT,
    turns=(
        Turn(
            "I look at which module reads lines.",
            (Use("grep", {"pattern": r"enumerate\(file|\.open\(", "path": IMPORTERS}),),
        ),
        Turn(
            "Only documents.py opens files. What does it promise about blank lines?",
            (Use("read_file", {"path": DOCUMENTS}, Near('"""Reading JSON', 0, 6)),),
        ),
        Turn(
            "They are allowed, indeed. Let me see the failure.",
            (Use("run_tests", {"path": TEST}),),
        ),
        Turn(
            "The blank line reached the decoder. Now the generator that should drop it.",
            (Use("read_file", {"path": DOCUMENTS}, Near("def _lines", 0, 8)),),
        ),
        Turn(
            "`if line` is always true here: a line that was read from a file still has its "
            "ending, so even a blank one holds at least a newline. The test has to look at what is "
            "left without whitespace.",
            (Use("edit_file", {"path": DOCUMENTS, "old_text": FAULTY, "new_text": SOUND}),),
        ),
        Turn(
            "Does the test pass now?",
            (Use("run_tests", {"path": TEST}),),
        ),
        Turn(
            "It does. For the line numbers I check how the place of a document is made.",
            (Use("grep", {"pattern": r"\{path\}:\{number\}", "path": DOCUMENTS}),),
        ),
        Turn(
            "The number comes from enumerate over all lines, so blank ones count. I add a test "
            "that holds this.",
            (
                Use(
                    "edit_file",
                    {"path": TEST, "old_text": LINE_TEST, "new_text": LINE_TEST + NUMBER_TEST},
                ),
            ),
        ),
        Turn(
            "Run both.",
            (Use("run_tests", {"path": TEST}),),
        ),
        Turn(
            "Done. The line reader in importers/documents.py asked whether a line is empty, but "
            "lines keep their ending, so a blank line never was. It now strips whitespace before "
            "it asks. A second test shows that the numbers in error messages still count blank "
            "lines. Both tests in tests/test_blank_lines.py pass."
        ),
    ),
)
