"""No text that a file system says is stale stands in the trunk, whatever was done in between."""

import json
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from duramen.experiments.layouts.artifacts import WorkingSet
from duramen.experiments.layouts.catalogue import Change

ROOT = "/repo"
PATHS = ["a.py", "src/a.py", "src/b.py", "Makefile"]
READS = {
    "tool": lambda path: ("read_file", {"path": path}),
    "tool from the root": lambda path: ("mcp__fs__read_text_file", {"path": f"{ROOT}/{path}"}),
    "tool by URL": lambda path: ("view", {"uri": f"file://{ROOT}/{path}"}),
    "with backslashes": lambda path: ("Read", {"file_path": path.replace("/", "\\")}),
    "cat": lambda path: ("bash", {"command": f"cat {path}"}),
    "cat from the root": lambda path: ("bash", {"command": f"cd {ROOT} && cat ./{path}"}),
    "head": lambda path: ("shell", {"command": ["bash", "-lc", f"cd {ROOT}; head -n 9 {path}"]}),
    "in a loop": lambda path: ("bash", {"command": f"for f in {path}; do cat $f; done"}),
    "with a folder": lambda path: ("bash", {"command": f"cat {path}", "workdir": ROOT}),
}
PATCH = "*** Begin Patch\n*** Update File: {}\n@@\n*** End Patch"
WRITES = {
    "edit": lambda path: ("edit_file", {"path": path, "new_text": "x"}),
    "unknown": lambda path: ("frobnicate", {}),
    "editor": lambda path: ("editor", {"path": f"{ROOT}/{path}", "new_text": "x"}),
    "many": lambda path: ("multi_tool", {"edits": [{"path": path}]}),
    "patch": lambda path: ("apply_patch", {"input": PATCH.format(path)}),
    "fix": lambda path: ("find_and_fix", {"path": path}),
    "other server": lambda path: ("other__write", {"uri": f"FILE://{ROOT}/{path.upper()}"}),
    "array": lambda path: ("shell", {"command": ["bash", "-lc", f"sed -i s/a/b/ {path}"]}),
    "nested": lambda path: ("bash", {"command": f"bash -c 'rm {path}'"}),
    "xargs": lambda path: ("bash", {"command": f"find . -name {path} | xargs rm"}),
    "wrapped": lambda path: ("bash", {"command": f"sudo -u x timeout -s 9 5 tee ./{path}"}),
    "grouped": lambda path: ("bash", {"command": f"if true; then {{ touch {path}; }}; fi"}),
    "python": lambda path: ("bash", {"command": f"python - <<E\nopen('{path}', 'w')\nE"}),
    "here-string": lambda path: ("bash", {"command": f"cat <<< x\nrm {path}"}),
    "subshell": lambda path: ("bash", {"command": f"(cd /tmp && ls); rm {path}"}),
    "back": lambda path: ("bash", {"command": f"cd /tmp && cd - && rm {path}"}),
    "copy": lambda path: ("bash", {"command": f"cp -t $(dirname {path}) /tmp/x"}),
    "git": lambda path: ("git_checkout", {"branch": "x"}),
    "redirected": lambda path: ("bash", {"command": f"echo x > {ROOT}/{path}"}),
    "tests": lambda path: ("run_tests", {"path": "tests"}),
    "agent's own": lambda path: ("bash", {"command": f"create {path}"}),
}
HARMLESS = [
    ("think", {"thought": "rm a.py"}),
    ("TodoWrite", {"todos": [{"content": "mend a.py", "status": "open"}]}),
    ("bash", {"command": "grep -rn rm ."}),
    ("bash", {"command": "echo rm a.py"}),
    ("calculate", {"expression": "1 > 0"}),
]
ANSWERS = ["done", "error: 1 of 2 hunks failed, 1 applied", "Error: timed out", None]
write_names = st.sampled_from(sorted(WRITES))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.sampled_from(sorted(READS)), st.sampled_from(PATHS)),
        st.tuples(
            st.sampled_from(ANSWERS), st.sampled_from(sorted(WRITES)), st.sampled_from(PATHS)
        ),
        st.tuples(st.just("harmless"), st.sampled_from(HARMLESS), st.just("")),
    ),
    max_size=10,
)


@dataclass
class Files:
    """Each file's text is its path and how often it was written."""

    counts: dict[str, int] = field(default_factory=dict)

    def text(self, path: str) -> str:
        return f"text {self.counts.get(path, 0)} of {path}"

    def write(self, path: str) -> None:
        self.counts[path] = self.counts.get(path, 0) + 1


def called(number: int, name: str, arguments: dict, result: str | None):
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": str(number), "type": "function", "function": function}
    yield {"role": "assistant", "content": "", "tool_calls": [call]}
    if result is not None:
        yield {"role": "tool", "tool_call_id": str(number), "content": result}


@settings(max_examples=300)
@given(steps, st.sampled_from(Change))
@example([("read", "tool", "a.py"), (None, "unknown", "a.py")], Change.REWRITE)
def test_no_text_in_the_trunk_is_stale(done, change):
    files = Files()
    working_set = WorkingSet(change)
    messages = [{"role": "user", "content": "task"}]
    for number, (what, how, path) in enumerate(done):
        if what == "read":
            messages += called(number, *READS[how](path), files.text(path))
        elif what == "harmless":
            messages += called(number, *how, "fine")
        else:
            files.write(path)
            messages += called(number, *WRITES[how](path), what)
        working_set.advance(messages, 1)
        current = {v.text for v in working_set.trunk if working_set.is_current(v)}
        if change is Change.REWRITE:
            assert len(current) == len({v.text for v in working_set.trunk})
        stale = {text for text in current if text.startswith("text ")}
        assert stale <= {files.text(path) for path in PATHS}


@given(st.sampled_from(sorted(READS)), st.sampled_from(PATHS))
def test_what_is_harmless_leaves_what_was_read(how, path):
    working_set = WorkingSet(Change.REWRITE)
    messages = [{"role": "user", "content": "t"}, *called(0, *READS[how](path), "text of it")]
    for number, (name, arguments) in enumerate(HARMLESS, 1):
        messages += called(number, name, arguments, "fine")
    working_set.advance(messages, 1)
    assert "text of it" in {version.text for version in working_set.trunk}


def plan_of(*turns) -> WorkingSet:
    messages = [{"role": "user", "content": "t"}]
    for number, turn in enumerate(turns):
        messages += called(number, *turn)
    working_set = WorkingSet(Change.REWRITE)
    working_set.advance(messages, 1)
    return working_set


READ = ("read_file", {"path": "a.py"}, "text")


def test_a_plan_is_an_artifact_that_its_own_tools_alone_change():
    first = ("update_plan", {"plan": [{"step": "look", "status": "open"}]}, "Plan updated")
    second = ("update_plan", {"plan": [{"step": "look", "status": "done"}]}, "Plan updated")
    working_set = plan_of(first, READ, second, ("bash", {"command": "make"}, "ok"))
    [plan] = working_set.trunk
    assert (plan.key, plan.number) == ("update_plan", 2)
    assert json.loads(plan.text) == second[1]
    assert set(working_set.results) == {4}  # its answer stays in its place
    both = plan_of(first, READ, second).trunk
    assert [v.key for v in both] == ["a.py", "update_plan"]  # what changed stands behind
    failed = (*second[:2], "error: no such status")
    assert plan_of(first, failed).trunk == plan_of(first).trunk


def test_a_plans_text_is_the_answer_that_holds_it():
    turn = ("TodoWrite", {"todos": [{"content": "look", "status": "open"}]}, "1. look (open)")
    working_set = plan_of(turn, ("TodoRead", {}, "1. look (open)"))
    assert [(v.key, v.text) for v in working_set.trunk] == [
        ("TodoWrite", "1. look (open)"),
        ("TodoRead", "1. look (open)"),
    ]
    assert plan_of(turn, ("complete_todo", {"id": 1}, "ok"), READ).trunk == plan_of(READ).trunk


def test_an_empty_plan_is_the_arguments():
    assert [v.text for v in plan_of(("TodoWrite", {"todos": []}, "ok")).trunk] == [
        '{\n "todos": []\n}'
    ]


def test_another_text_of_the_same_file_under_another_name_supersedes_it():
    other = ("read_file", {"path": "/r/a.py"}, "other")
    assert [v.text for v in plan_of(READ, other).trunk] == ["other"]
    same = ("read_file", {"path": "/r/a.py"}, "text")
    assert len(plan_of(READ, same).trunk) == 2
    apart = ("read_file", {"path": "/r/b.py"}, "other")
    assert len(plan_of(READ, apart).trunk) == 2


def test_a_shell_that_went_elsewhere_means_other_files():
    cat = ("bash", {"command": "cat a.py"}, "text")
    went = ("bash", {"command": "cd /x"}, "")
    assert plan_of(cat, went).trunk == []
    assert len(plan_of(went, cat, went).trunk) == 1  # it stood there
    assert len(plan_of(READ, went).trunk) == 1  # a tool's path counts from one folder


def test_a_page_is_another_after_each_step_on_it():
    page = ("browser_snapshot", {}, "page")
    for step in [
        ("browser_click", {"ref": "e"}, "ok"),
        ("browser_navigate", {"url": "http://h/x"}, "ok"),
        ("scroll_down", {}, "ok"),
    ]:
        assert "browser_snapshot" not in {v.key for v in plan_of(page, step).trunk}
