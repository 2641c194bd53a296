"""What a structured call reads or writes: its name, its places, its statement, its answer."""

import pytest

from duramen.experiments.layouts.actions import Plan, Read, State, Write, supersedes
from duramen.experiments.layouts.observations import Use
from duramen.experiments.layouts.outcomes import action_of
from duramen.experiments.layouts.places import may_touch, place
from duramen.experiments.layouts.tools import tool_action


def kind(action) -> str:
    match action:
        case Write(None, changes):
            return "writes all and the plan" if State.PLAN in changes else "writes all"
        case Write((), changes):
            return f"moves {' '.join(sorted(state.value for state in changes))}"
        case Write():
            return "writes"
        case Plan():
            return "plan"
        case Read():
            return "reads"
    return "neither"


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("read_file", {"path": "a.py"}, "reads"),
        ("getUserDetails", {"user_id": "u"}, "reads"),
        ("mcp__github__list_issues", {}, "reads"),
        ("file_system.read", {"path": "a"}, "reads"),
        ("search_direct_flight", {"origin": "A", "destination": "B"}, "reads"),
        ("calculate", {"expression": "1+1"}, "neither"),
        ("think", {"thought": "get it"}, "neither"),
        ("run_tests", {"path": "tests"}, "writes all"),
        ("edit_file", {"path": "a.py", "new_text": "x"}, "writes"),
        ("book_reservation", {"user_id": "u"}, "writes all"),
        ("get_booking", {"id": 3}, "reads"),
        ("set_status", {"id": 3}, "writes all"),
        ("find_and_replace", {"file": "a.py"}, "writes"),
        ("apply_patch", {"patch": "..."}, "writes all"),
        ("str_replace_editor", {"command": "view", "path": "/w/a.py"}, "reads"),
        ("str_replace_editor", {"command": "create", "path": "/w/a.py"}, "writes"),
        ("str_replace_editor", {"command": "undo_edit", "path": "/w/a.py"}, "writes"),
        ("http", {"method": "GET", "url": "http://h/x"}, "reads"),
        ("http", {"method": "POST", "url": "http://h/x"}, "writes"),
        ("query", {"sql": "SELECT a FROM t"}, "reads"),
        ("query", {"sql": "WITH x AS (DELETE FROM t) SELECT 1"}, "writes all"),
        ("search", {"query": "how to delete a branch"}, "reads"),
        ("read_file", {"path": "$HOME/x"}, "reads"),
        ("", {}, "neither"),
        ("execute_bash", {"command": "ls -l /w"}, "reads"),
        ("bash", {"command": "ls"}, "reads"),
        ("bash", {"command": "python x.py"}, "writes all"),
        ("bash", {"command": ""}, "neither"),
        ("bash", {"command": None}, "neither"),
    ],
)
def test_what_a_tool_does(name, arguments, expected):
    assert kind(action_of(Use(0, 1, name, arguments), "fine")) == expected


@pytest.mark.parametrize(
    ("result", "read", "write"),
    [
        ("error: a.py does not exist", False, False),
        ('{"error": "no such user"}', False, False),
        ("<returncode>1</returncode>\n<output>", False, False),
        ("ls: cannot access 'a': No such file or directory\n[exit code 2.]", False, True),
        ("1\n2\n[The command completed with exit code 1.]", False, True),
        ("1\n2\n[The command completed with exit code 0.]", True, True),
        ("def error(): ...", True, True),
        ("", True, True),
    ],
)
def test_a_call_that_failed_is_neither(result, read, write):
    """In doubt a read gave nothing and a write was done."""
    assert (action_of(Use(0, 1, "read", {"path": "a"}), result) is not None) == read
    assert (action_of(Use(0, 1, "write", {"path": "a"}), result) is not None) == write


def test_a_chain_that_failed_may_have_written():
    use = Use(0, 1, "bash", {"command": "rm a.py && false"})
    assert isinstance(action_of(use, "<returncode>1</returncode>"), Write)


@pytest.mark.parametrize(
    ("written", "shown", "expected"),
    [
        ("/w/a.py", "/w/a.py", True),
        ("/w/a.py", "/w/./x/../A.py", True),
        ("/w/a.py", "/w", True),  # listed
        ("/w/src", "/w/src/a.py", True),  # removed with its folder
        ("/w/a.py", "/w/b.py", False),
        ("/w/a.py", "/w/a.pyc", False),
        ("/w/a.py", "a.py", True),  # counts from a folder that nobody knows
        ("/w/a.py", "src", True),
        ("/w/a.py", "b.py", False),
        ("src/a.py", "a.py", True),
        ("src/*.py", "src/a.py", True),
        ("/w/pkg-1.0/a.py", "pkg-1.0", True),
        ("~/a.py", "/home/u/a.py", True),
        (".", "/w/a.py", True),
        ("http://h/x", "http://h/y", True),
        ("http://h/x", "http://g/x", False),
        ("http://h/a.py", "/w/a.py", False),
    ],
)
def test_what_a_write_may_touch(written, shown, expected):
    assert may_touch(place(written), place(shown)) is expected


def test_arguments_of_tools_count_from_one_folder():
    a, b = place("src/a.py", fixed="tools"), place("tests", fixed="tools")
    assert not may_touch(a, b)
    assert may_touch(a, place("src", fixed="tools"))
    assert may_touch(a, place(".", fixed="tools"))
    assert may_touch(a, place("../x", fixed="tools"))  # it climbs: nobody knows where to


@pytest.mark.parametrize("text", ["", " ", "$X/a", "`x`", "a\0b"])
def test_a_place_that_cannot_be_told(text):
    assert place(text) is None


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"path": "a.py"}, "a.py"),
        ({"path": "a.py", "reason": "to see"}, "a.py"),
        ({"path": "a.py", "start": 1, "end": 9}, "a.py?end=9&start=1"),
        ({"end": 9, "path": "a.py", "start": 1}, "a.py?end=9&start=1"),
        ({"path": "a.py", "start": "1"}, 'a.py?start="1"'),
        ({"id": "x", "b": [1]}, "read_file?b=[1]&id=x"),
        ({}, "read_file"),
    ],
)
def test_keys_say_place_and_view(arguments, key):
    action = tool_action(Use(0, 1, "read_file", arguments))
    assert isinstance(action, Read)
    assert action.key == key


def test_a_search_of_a_folder_is_not_its_listing():
    grep, listing = (
        tool_action(Use(0, 1, name, {"path": "src"})) for name in ("grep", "list_files")
    )
    assert grep.key != listing.key


EDIT = "--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-x\n+y\n"


@pytest.mark.parametrize(
    ("name", "arguments", "places"),
    [
        ("apply_patch", {"input": "*** Begin Patch\n*** Update File: a.py\n@@"}, ["a.py"]),
        (
            "apply_patch",
            {"patch": "*** Delete File: x/b.py\n*** Move to: c.py"},
            ["x/b.py", "c.py"],
        ),
        ("patch_file", {"diff": EDIT}, ["src/a.py"]),
        ("apply_patch", {"input": "no patch"}, None),
        ("execute_sql", {"sql": "update t set n = 2"}, None),
        ("execute_sql", {"query": "DELETE FROM t"}, None),
        ("db", {"statements": ["select 1", "drop table t"]}, None),
        ("read_query", {"query": "select 1; truncate t"}, None),
        ("query", {"sql": "/* x */ vacuum"}, None),
        ("git_checkout", {"branch": "x"}, None),
        ("git_checkout", {"path": "a.py"}, None),
        ("git_pull", {}, None),
        ("editor", {"path": "a.py", "new_text": "x"}, ["a.py"]),
        ("file_editor", {"path": "a.py", "new_text": "x"}, ["a.py"]),
        ("format_file", {"path": "a.py"}, ["a.py"]),
        ("download_file", {"url": "http://h/a.py"}, None),
        ("download_file", {"url": "http://h/a.py", "path": "a.py"}, ["http://h/a.py", "a.py"]),
        ("browser_click", {"ref": "e"}, None),
        ("toggle_flag", {"name": "x"}, None),
        ("multi_tool", {"edits": [{"path": "a.py"}, {"path": "b.py"}]}, ["a.py", "b.py"]),
        (
            "multi_tool",
            {"tool_uses": [{"recipient_name": "bash", "parameters": {"path": "b"}}]},
            None,
        ),
        ("MultiEdit", {"file_path": "a.py", "edits": [{"old_string": "x"}]}, ["a.py"]),
        ("find_and_fix", {"path": "a.py"}, ["a.py"]),
        ("search_and_replace", {"path": "a.py"}, ["a.py"]),
        ("get_or_create", {"path": "a.py"}, ["a.py"]),
        ("fs__write_text_file", {"path": "a.py"}, ["a.py"]),
        ("mcp__fs__edit_file", {"path": "a.py"}, ["a.py"]),
        ("writeFile", {"filePath": "a.py"}, ["a.py"]),
        ("strReplace", {"path": "a.py"}, ["a.py"]),
        ("move_file", {"source": "b", "destination": "a.py"}, None),
        ("move_file", {"path": "b", "destination": "a.py"}, ["b", "a.py"]),
        ("rename_file", {"path": "b"}, None),
        ("write_file", {"path": "b.py", "output": "a.py"}, ["b.py", "a.py"]),
        ("write_file", {"path": "b.py", "log": "logs/x.txt"}, ["b.py", "logs/x.txt"]),
        ("edit_files", {"paths": "a.py, b.py"}, ["a.py, b.py", "a.py", "b.py"]),
        ("run_script", {"path": "a.py"}, None),
        ("python", {"code": "x", "path": "a.py"}, None),
        ("unzip_file", {"path": "a.zip"}, None),
        ("fetch", {"url": "http://h/x", "body": "x"}, None),
        ("open_ticket", {"title": "x"}, None),
        ("read_file", {"path": "a.py", "mode": "w"}, ["a.py"]),
        ("read_file", {"path": "a.py", "action": "frobnicate"}, ["a.py"]),
        ("fix_list", {}, None),
        ("refresh_view", {}, None),
        ("transfer_money", {"to": "x"}, None),
        ("reply", {"thread_id": 3}, None),
        ("frobnicate", {}, None),
    ],
)
def test_where_a_call_writes(name, arguments, places):
    action = tool_action(Use(0, 1, name, arguments))
    assert isinstance(action, Write)
    wanted = None if places is None else {place(text).parts for text in places}
    assert (None if action.places is None else {p.parts for p in action.places}) == wanted


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("fs__read_text_file", {"path": "a.py"}, "reads"),
        ("mcp__server__read_file", {"path": "a.py"}, "reads"),
        ("readHTTPFile", {"path": "a.py"}, "reads"),
        ("file_read", {"path": "a.py"}, "reads"),
        ("web_search", {"query": "update policy"}, "reads"),
        ("execute_sql", {"sql": "select n from t"}, "reads"),
        ("execute_sql", {"query": "WITH x AS (SELECT 1) SELECT * FROM x"}, "reads"),
        ("git_status", {}, "reads"),
        ("git_diff_staged", {}, "reads"),
        ("browser_snapshot", {}, "reads"),
        ("browser_navigate", {"url": "http://h/x"}, "reads"),
        ("open", {"path": "a.py", "mode": "r"}, "reads"),
        ("get_current_time", {}, "neither"),
        ("goto", {"line_number": 50}, "moves window"),
        ("scroll_down", {}, "moves window"),
        ("final_answer", {"answer": "x"}, "neither"),
        ("submit", {}, "neither"),
        ("respond", {"text": "x"}, "neither"),
        ("finish", {"message": "m"}, "neither"),
        ("transfer_to_human_agents", {"summary": "s"}, "neither"),
        ("ask_followup_question", {"question": "x"}, "neither"),
        ("sequentialthinking", {"thought": "x", "branchId": "b"}, "neither"),
        ("TodoWrite", {"todos": [{"content": "a", "status": "done"}]}, "plan"),
        ("update_plan", {"explanation": "x", "plan": [{"step": "a"}]}, "plan"),
        ("todo_list", {"todos": ["a"]}, "plan"),
        ("manage_todo_list", {"operation": "write", "todoList": [{"title": "a"}]}, "plan"),
        ("exit_plan_mode", {"plan": "1. look\n2. change what is to be changed\n3. test"}, "plan"),
        ("TodoRead", {}, "reads"),
        ("TaskUpdate", {"taskId": "1", "status": "done"}, "moves plan"),
        ("complete_todo", {"id": 1}, "moves plan"),
        ("update_plan", {"customer": "c", "plan": "gold"}, "writes all and the plan"),
        ("execute_plan", {"plan": ["a"]}, "writes all and the plan"),
        ("write_plan", {"path": "plan.md", "content": "x"}, "writes"),
        ("create_task", {"title": "x"}, "writes all"),
        ("Agent", {"prompt": "mend a.py"}, "writes all"),
        ("transfer_to_agent", {"name": "coder"}, "writes all"),
        ("Task", {"prompt": "mend a.py"}, "writes all"),
    ],
)
def test_what_names_say(name, arguments, expected):
    assert kind(tool_action(Use(0, 1, name, arguments))) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:///repo/a.py", "/repo/a.py"),
        ("file://localhost/repo/a%20b.py", "/repo/a b.py"),
        ("src\\a.py", "src/a.py"),
        (".\\src\\a.py", "./src//a.py"),
        ("C:\\r\\a.py", "c:/R/a.py"),
        ("/C:/r/a.py", "C:/r/a.py"),
        ("my\\ file.py", "my file.py"),
        ("caf\u00e9.py", "cafe\u0301.py"),
        ("STRASSE.py", "stra\u00dfe.py"),
        ("src/", "src"),
        ("'a.py'", "a.py"),
        ("a.py:10-20", "a.py"),
        ("a.py#L3", "a.py"),
        ("http://h/x", "https://h/x"),
        ("https://h:443/x", "https://H/x/"),
        ("http://h:80/x", "http://h/x"),
        ("http://u:p@h/x", "http://h/x"),
        ("https://api.h.com/x", "https://h.com/x"),
        ("http://localhost:8000/x", "http://127.0.0.1/x"),
    ],
)
def test_spellings_of_one_place(one, other):
    assert place(one) == place(other)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("workspace://src/a.py", "/r/src/a.py"),
        ("file://repo/a.py", "/x/repo/a.py"),
        ("C:\\r\\a.py", "/mnt/c/r/a.py"),
        ("http://localhost:3000/files", "/r/a.py"),
    ],
)
def test_places_that_may_be_one(written, shown):
    assert may_touch(place(written), place(shown))


def test_paths_of_two_servers_or_origins_count_from_two_folders():
    def touches(write, read):
        return supersedes(tool_action(Use(0, 1, *write)), tool_action(Use(0, 1, *read)))

    read = ("read_file", {"path": "src/a.py"})
    assert not touches(("edit_file", {"path": "a.py"}), read)
    assert touches(("fs__edit_file", {"path": "a.py"}), read)
    assert touches(("edit_file", {"path": "a.py", "root": "/r/src"}), read)
    assert tool_action(Use(0, 1, "fs__read", {"path": "a.py"})).key == "fs:a.py"


@pytest.mark.parametrize(
    ("name", "arguments", "answer", "is_done"),
    [
        ("apply_patch", {"patch": EDIT}, "error: 1 of 2 hunks failed, 1 applied", True),
        ("apply_patch", {"patch": "..."}, "Error: hunk #2 failed", True),
        ("multi_edit", {"path": "a", "edits": [{}]}, "Error: edit 2 failed", True),
        ("edit_file", {"path": "a"}, "Error: partially applied", True),
        ("edit_file", {"path": "a"}, "error: timed out", True),
        ("edit_file", {"path": "a"}, "Error: no match", False),
        ("edit_file", {"path": "a"}, "Error: saved, but lint failed", True),
        ("book_reservation", {"flights": [{"n": 1}]}, "Error: no seats", False),
        ("run_job", {}, "Error: exit 1", True),
        ("bash", {"command": "sed -i s/a/b/ a b"}, "<returncode>1</returncode>", True),
        ("execute_sql", {"sql": "insert into t values (1)"}, "error: x", True),
    ],
)
def test_a_write_that_failed_in_part_is_done(name, arguments, answer, is_done):
    assert (action_of(Use(0, 1, name, arguments), answer) is not None) is is_done
