"""A file that is given under two names is imported twice: paths are compared unresolved."""

from duramen.experiments.record.scenario import Near, Scenario, Turn, Use

IMPORTERS = "experiments/duramen/experiments/importers"
READ = f"{IMPORTERS}/read.py"
FILES = f"{IMPORTERS}/documents.py"
TEST = "tests/test_given_twice.py"
TEST_TEXT = """\
import pytest

from duramen.experiments.importers.read import read_sessions
from duramen.layout.errors import TrajectoryError

LINE = '{"messages": [{"role": "user", "content": "Hello"}], "response": "Good morning."}'


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(LINE)
    return path


def test_a_file_and_its_folder(log):
    with pytest.raises(TrajectoryError, match="given twice"):
        list(read_sessions([log, log.parent]))


def test_a_file_and_a_link_to_it(log):
    link = log.with_name("link.jsonl")
    link.symlink_to(log)
    with pytest.raises(TrajectoryError, match="given twice"):
        list(read_sessions([link, log]))
"""
SOUND = """\
            real = realpath(file)  # Path.resolve raises at a loop of links
            if real in given:
                raise TrajectoryError(f"{file} is given twice")
            given.add(real)
"""
FAULTY = """\
            if file in given:
                raise TrajectoryError(f"{file} is given twice")
            given.add(file)
"""

SCENARIO = Scenario(
    name="given-twice",
    task=(
        "A cost study counted every call double: a folder of logs and a link to one of the logs "
        "were both on the command line. The import should refuse a file that is given twice, "
        "under whatever name. tests/test_given_twice.py has the two cases we know of. Please find "
        "out why one of them is not caught, and mend it."
    ),
    path=FILES,
    fault=(SOUND, FAULTY),
    test_path=TEST,
    test_text=TEST_TEXT,
    turns=(
        Turn(
            "I find the message first, and run the tests to see which case fails.",
            (
                Use("grep", {"pattern": "given twice", "path": "experiments"}),
                Use("run_tests", {"path": TEST}),
            ),
        ),
        Turn(
            "The link is the case that slips through. I read the function that lists the files.",
            (Use("read_file", {"path": FILES}, Near("def files_of(", 0, 16)),),
        ),
        Turn(
            "Paths are compared as they were written. Two names of one file are two different "
            "paths, so the set never meets. What is resolved anywhere else?",
            (Use("grep", {"pattern": r"resolve\(\)|realpath|samefile", "path": IMPORTERS}),),
        ),
        Turn(
            "realpath is imported and not used. I compare resolved paths, and keep the name as it "
            "was given for the message.",
            (Use("edit_file", {"path": FILES, "old_text": FAULTY, "new_text": SOUND}),),
        ),
        Turn(
            "Again the tests.",
            (Use("run_tests", {"path": TEST}),),
        ),
        Turn(
            "Both cases are refused now. Is the order of the files in a folder still fixed? The "
            "helper below should sort them.",
            (Use("read_file", {"path": FILES}, Near("def _files_below", 0, 5)),),
        ),
        Turn(
            "It sorts. Does the docstring of read_sessions mention files that are given twice?",
            (Use("read_file", {"path": READ}, Near("def read_sessions", 0, 8)),),
        ),
        Turn(
            "It does not. I add half a sentence.",
            (
                Use(
                    "edit_file",
                    {
                        "path": READ,
                        "old_text": "at the file that is broken or of no known form;",
                        "new_text": "at the file that is broken, given twice or of no known form;",
                    },
                ),
            ),
        ),
        Turn(
            "A last run, together with a look at the line that I changed.",
            (
                Use("run_tests", {"path": TEST}),
                Use("grep", {"pattern": "given twice", "path": READ}),
            ),
        ),
        Turn(
            "Done. importers/documents.py kept the paths it had seen as they were written, so a "
            "link and its target counted as two files. It now keeps resolved paths. The message "
            "still shows the name that was given. Both tests in tests/test_given_twice.py pass, "
            "and the docstring of read_sessions says that a file given twice is refused."
        ),
    ),
)
