"""What a shell's command line reads or writes, and from which folder its paths count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.experiments.layouts.actions import Read, Write
from duramen.experiments.layouts.file_programs import safe_sed
from duramen.experiments.layouts.observations import Use
from duramen.experiments.layouts.outcomes import action_of, command_line
from duramen.experiments.layouts.places import place
from duramen.experiments.layouts.shell import shell_action
from duramen.experiments.layouts.shell_syntax import Parser


def kind(action) -> str:
    match action:
        case Write(None):
            return "writes all"
        case Write((), changes):
            return f"moves {' '.join(sorted(state.value for state in changes))}"
        case Write():
            return "writes"
        case Read():
            return "reads"
    return "neither"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat a.py", "reads"),
        ("cat src/a.py | head -n 20", "reads"),
        ("cd /w && grep -n foo src | wc -l", "reads"),
        ("cd /w && python x.py", "writes all"),
        ("cat a.py && python x.py", "writes all"),
        ("cat a.py; rm b.py", "writes"),
        ("echo hi > x.txt", "writes"),
        ("ls 2>/dev/null >&2", "reads"),
        ("cat a > $OUT", "writes all"),
        ("cat <<'EOF' > foo.py\nimport os; rm y\nEOF\n", "writes"),
        ("cat <<EOF\nrm y\n", "reads"),
        ("sed -n 1,5p f.py", "reads"),
        ("sed -i 's/a/b/' f.py", "writes"),
        ("git status", "reads"),
        ("git checkout .", "writes all"),
        ("pip install x", "writes all"),
        ("sudo FOO=1 timeout 5 cat /etc/x", "reads"),
        ("find . -name '*.py' -exec grep x {} +", "reads"),
        ("find . -exec rm {} +", "writes all"),
        ("find . -delete", "writes all"),
        ("find . | xargs rm", "writes all"),
        ("find . | xargs grep q", "reads"),
        ("cat `rm x`", "writes"),
        ('cat "$(rm x)"', "writes"),
        ("cat $(rm x)", "writes"),
        ("cat 'x", "writes all"),
        ("rm 'x", "writes all"),
        ("awk '{print > \"f\"}' a", "writes all"),
        ("curl -s http://h/x", "reads"),
        ("curl -X POST http://h/x", "writes all"),
        ("open chall.py", "reads"),
        ("goto 1474", "moves window"),
        ('search_file "foo" f.py', "reads"),
        ("edit 1:1\nimport os\nls\nend_of_edit", "writes all"),
        ("create d.py", "writes"),
        ("python -c \"print('a > b')\"", "writes all"),
        ("echo hi", "neither"),
        ("", "neither"),
        ("<" * 50, "neither"),
        ("cat a > 1", "writes"),
        ("cat a 2>&1", "reads"),
        ('cat ">" && rm b', "writes"),
        ("cat a >", "writes all"),
    ],
)
def test_what_a_command_line_does(command, expected):
    assert kind(shell_action(command)) == expected


def test_the_script_of_sed_is_no_target():
    assert shell_action("sed -i s/a/b/ x.py") == Write((place("x.py"),))


@pytest.mark.parametrize(
    "command",
    [
        "bash -c 'rm a.py'",
        "sh -lc 'ls && sed -i s/a/b/ a.py'",
        "bash -lc \"bash -c 'touch a.py'\"",
        "bash <<'EOF'\nrm a.py\nEOF",
        "echo 'rm a.py' | sh",
        "bash build.sh",
        "bash --rcfile x -c ls",
        'eval "rm a.py"',
        'eval "$X"',
        "find . -name a.py | xargs -n 1 rm -f",
        "ls | xargs -I{} sh -c 'rm {}'",
        "find . -name '*.py' -exec sed -i s/a/b/ {} \\;",
        "find . -type f -exec grep x {} \\; -exec rm {} \\;",
        "find . -type f -exec grep x {} \\; -delete",
        "find . -fprintf out.txt %p",
        "fd -x rm",
        "sudo -u root rm a.py",
        "sudo -s rm a.py",
        "nice -n 10 rm a.py",
        "nice -10 rm a.py",
        "timeout -s 9 10 rm a.py",
        "timeout --signal=KILL 10s rm a.py",
        "env A=1 B=2 rm a.py",
        "env -i rm a.py",
        "A=1 rm a.py",
        "time -p rm a.py",
        "nohup rm a.py &",
        "stdbuf -oL rm a.py",
        "stdbuf -o L rm a.py",
        "docker exec -it c rm a.py",
        "ssh -p 22 host rm a.py",
        "kubectl exec pod -- rm a.py",
        "for f in *.py; do rm $f; done",
        "for f in *.py\ndo\n  sed -i s/a/b/ $f\ndone",
        "if true; then rm a.py; fi",
        "if [ -f a.py ]; then cat a.py; else touch a.py; fi",
        "while read f; do rm $f; done < list.txt",
        "until rm a.py; do sleep 1; done",
        "{ rm a.py; }",
        "( rm a.py )",
        "! rm a.py",
        "f() { rm a.py; }; f",
        "function f { rm a.py; }\nf",
        "case $x in a) rm a.py;; esac",
        "alias ls='rm a.py'; ls",
        "trap 'rm a.py' EXIT",
        "[[ -f a.py ]] && rm a.py",
        "x=$(rm a.py)",
        "echo ${x:-$(rm a.py)}",
        "echo $((1 + $(rm a.py)))",
        "cat <<EOF\n$(rm a.py)\nEOF",
        "cat <(rm a.py)",
        "python -c \"open('a.py','w')\"",
        "python - <<'EOF'\nopen('a.py', 'w')\nEOF",
        "python3 reproduce.py",
        "node -e 'fs.writeFileSync(1)'",
        "perl -pi -e 's/a/b/' a.py",
        "perl -ne 'print' a.py",
        "ruby -e 'x'",
        'psql -c "UPDATE t SET n = 1"',
        "sqlite3 db 'delete from t'",
        "pytest -q",
        "make",
        "npm test",
        "./run.sh",
        "$CMD a.py",
        'grep foo <<< "bar"\nrm a.py',
        "cat <<< x; rm a.py",
        "echo $((1 << 3))\nrm a.py",
        "(( x = 1 << 3 ))\nrm a.py",
        "cat <<A <<B\nx\nA\ny\nB\nrm a.py",
        "cat <<-EOF\n\tx\n\tEOF\nrm a.py",
        "cat <<EOF; rm a.py\nx\nEOF",
        "echo '<<EOF'\nrm a.py",
        "ls # <<EOF\nrm a.py",
        "echo a#b; rm a.py",
        "ls \\\n; rm a.py",
        "ls &rm a.py",
        "ls |& tee a.py",
        "ls &> a.py",
        "ls >| a.py",
        "ls 2> a.py",
        "ls <> a.py",
        "sort -o a.py a.py",
        "sort -uo a.py b.py",
        "uniq a b",
        "xxd -r a.hex a.py",
        "awk -i inplace 1 a.py",
        "awk '{print | \"sh\"}' a",
        "sed -n 'w a.py' b.py",
        "sed '1w a.py' b.py",
        "sed 's/a/b/w a.py' b.py",
        "sed 's/a/rm a.py/e' b.py",
        "sed -i.bak s/a/b/ a.py",
        "sed --in-place s/a/b/ a.py",
        "git checkout a.py",
        "git -C sub pull",
        "git -c alias.x='!rm a.py' x",
        "git stash",
        "git branch -D x",
        "git diff --output=a.py",
        "GIT_PAGER='rm a.py' git log",
        "tee a.py < b.py",
        "curl -sSLo a.py http://h/x",
        "curl http://h/x -K conf",
        "wget http://h/a.py",
        "truncate -s 0 a.py",
        "dd if=/dev/zero of=a.py",
        "cp --backup b a.py",
        "Remove-Item a.py",
        "date -s 12:00",
        "submit; rm a.py",
        "create b.py\nrm a.py",
        "open b.py; rm a.py",
        "nosuchprogram",
    ],
)
def test_what_is_not_surely_a_read_may_write_to_a_file_here(command):
    action = shell_action(command)
    assert isinstance(action, Write)
    assert action.places is None or place("a.py") in action.places or place(".") in action.places


@pytest.mark.parametrize(
    ("command", "key", "places"),
    [
        ("cat a.py", "a.py", ["a.py"]),
        ("cat ./a.py", "a.py", ["a.py"]),
        ("sudo -u x cat /etc/x", "/etc/x", ["/etc/x"]),
        ("cd /x && cat a.py", "/x/a.py", ["/x/a.py"]),
        ("cd /x && cd y && cat a.py", "/x/y/a.py", ["/x/y/a.py"]),
        ("cd /x && cat a.py | head -n 20", None, ["/x/a.py"]),
        ("cd /x && grep -n foo a.py", None, ["/x/a.py"]),
        ("cd src && cat a.py", None, ["src/a.py"]),
        ("cd /x; cat a.py", None, ["a.py"]),
        ("cd /x\ncat a.py", None, ["a.py"]),
        ("cd /x || cat a.py", None, ["a.py"]),
        ("ls || cd /x && cat a.py", None, [".", "a.py"]),
        ("cd /x && cd - && cat a.py", None, ["a.py"]),
        ("cd /x && cd && cat a.py", None, ["a.py"]),
        ("cd /x && cd $Y && cat a.py", None, ["a.py"]),
        ("cd /x && cd .. && cat a.py", None, ["a.py"]),
        ("pushd /x && cat a.py && popd && cat b.py", None, ["/x/a.py", "b.py"]),
        ("(cd /tmp && ls); cat a.py", None, ["/tmp", "a.py"]),
        ("cd /x && (cd /y && cat a.py) && cat b.py", None, ["/y/a.py", "/x/b.py"]),
        ("cd /x | cat a.py", None, ["a.py"]),
        ("cd /x & cat a.py", None, ["a.py"]),
        ("! cd /x && cat a.py", None, ["a.py"]),
        ("bash -c 'cd /x && cat a.py'", None, ["/x/a.py"]),
        ("cd /x && bash -c 'cat a.py' && cat b.py", None, ["/x/a.py", "/x/b.py"]),
        ("git -C /x log", None, None),
        ("git status", None, None),
        ("ls -l /w 2>/dev/null", None, ["/w"]),
        ("wc -l < a.py", None, None),
        ("head -n 20 a.py", None, ["a.py"]),
        ("grep -f pats a.py", None, None),
        ("grep --regexp=x a.py b.py", None, ["a.py", "b.py"]),
        ("for f in *.py; do head -5 $f; done", None, None),
        ("if [ -f a.py ]; then cat a.py; fi", None, ["a.py"]),
        ("cat *.py", None, ["."]),
        ("curl -s example.com/x", None, ["http://example.com/x"]),
        ("open a.py", "a.py", ["a.py"]),
        ("open a.py 50", None, ["a.py"]),
        ("search_dir foo src", None, ["src"]),
        ("search_file foo", None, None),
        ("awk 'NR>=5 && NR<=9' a.py", None, ["a.py"]),
        ("time cat a.py", None, ["a.py"]),
    ],
)
def test_what_a_read_shows_and_its_name(command, key, places):
    """`key` None: the command as it is."""
    action = shell_action(command)
    assert isinstance(action, Read)
    assert action.key == (key or command)
    shown = (
        None if action.places is None else [(p.host, p.parts, p.absolute) for p in action.places]
    )
    wanted = None if places is None else [place(text) for text in places]
    assert shown == (wanted and [(p.host, p.parts, p.absolute) for p in wanted])


@pytest.mark.parametrize(
    ("command", "places"),
    [
        ("(cd /tmp && ls); rm a.py", ["a.py"]),
        ("cd /tmp && ls && cd - && rm a.py", ["a.py"]),
        ("pushd /x; rm a.py", ["a.py"]),
        ("pushd /x && popd && rm a.py", ["a.py"]),
        ("cd /x && rm a.py", ["/x/a.py"]),
        ("cd /x; rm a.py", ["a.py"]),
        ("cd /x && ls || rm a.py", ["a.py"]),
        ("cp /tmp/b.py a.py", ["a.py"]),
        ("cp -t /r/src /tmp/a.py", ["/r/src", "/tmp/a.py"]),
        ("cp --target-directory=/r/src a.py", ["a.py", "/r/src"]),
        ("mv -t /r a.py", ["/r", "a.py"]),
        ("cp -at /r a.py", ["/r", "a.py"]),
        ("cp a.py", None),
        ("rm -- -f", ["-f"]),
        ("rm a.py $X", None),
        ("make -C /x", None),
        ("git -C /x checkout .", None),
        ("cd /x && python y.py", None),
        ("apply_patch '*** Begin Patch\n*** Update File: a.py\n*** End Patch'", ["a.py"]),
        ("cd /x && apply_patch <<'E'\n*** Begin Patch\n*** Add File: b.py\nE", ["/x/b.py"]),
        ("create a.py", ["a.py"]),
    ],
)
def test_where_a_write_goes(command, places):
    action = shell_action(command)
    assert isinstance(action, Write)
    assert action.places == (None if places is None else tuple(place(text) for text in places))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cd /x", "moves folder"),
        ("cd", "moves folder"),
        ("cd /x && pwd", "moves folder"),
        ("(cd /x)", "neither"),
        ("pwd", "neither"),
        ("date; cat a.py", "neither"),
        ("echo $(date)", "neither"),
        ("echo x | cat", "neither"),
        ("export A=1", "neither"),
        ("goto 50", "moves window"),
        ("scroll_down", "moves window"),
        ("submit", "neither"),
        ("submit flag{a b}", "neither"),
        ("command -v python", "reads"),
        ("kubectl get pods", "neither"),
        ("docker ps", "neither"),
    ],
)
def test_what_is_no_artifact_and_no_write(command, expected):
    assert kind(shell_action(command)) == expected


@pytest.mark.parametrize(
    ("name", "arguments", "line"),
    [
        ("shell", {"command": ["bash", "-lc", "rm a.py"]}, "bash -lc 'rm a.py'"),
        ("local_shell", {"cmd": ["ls", "a b"]}, "ls 'a b'"),
        ("bash", {"commands": ["ls", "rm a.py"]}, "ls\nrm a.py"),
        ("shell", {"command": ["ls -l", "rm a.py"]}, "ls -l\nrm a.py"),
        ("run_process", {"command": "rm", "args": ["a.py"]}, "rm a.py"),
        ("exec", {"command": "rm", "args": "a.py"}, "rm a.py"),
        ("terminal", {"input": "ls"}, "ls"),
        ("tool", {"command": "rm a.py"}, "rm a.py"),
        ("apply_patch", {"input": "*** Begin Patch\n*** Update File: a.py"}, None),
        ("editor", {"command": "view", "path": "a.py"}, None),
        ("run_python", {"script": "print(1)"}, None),
        ("bash", {}, None),
        ("bash", {"command": 3}, None),
    ],
)
def test_the_command_line_of_a_call(name, arguments, line):
    found = command_line(Use(0, 1, name, arguments))
    assert (found and found.text) == line


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"command": "cat a.py"}, "a.py"),
        ({"command": "cat a.py", "timeout": 5, "description": "Look"}, "a.py"),
        ({"command": "cat a.py", "workdir": "/x"}, "/x/a.py"),
        ({"command": "cat a.py", "cwd": "/y"}, "/y/a.py"),
        ({"command": ["cat", "a.py"], "workingDirectory": "/y"}, "/y/a.py"),
        ({"command": "cat a.py", "workdir": "sub"}, "cd sub && cat a.py"),
        ({"command": "ls", "workdir": "/x"}, "cd /x && ls"),
        ({"command": "cat /a.py", "host": "web1"}, "/a.py?host=web1"),
    ],
)
def test_two_folders_or_machines_have_two_names(arguments, key):
    assert action_of(Use(0, 1, "bash", arguments), "text").key == key


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("1,5p", True),
        ("$p", True),
        ("/a/,/b/p", True),
        ("10q", True),
        ("s/a/b/g;s|c|d|2", True),
        ("/x/d\n1p", True),
        ("w f", False),
        ("1w f", False),
        ("s/a/b/w f", False),
        ("s/a/b/ge", False),
        ("e", False),
        ("1e rm", False),
        ("r f", False),
        ("p;w f", False),
        ("", False),
    ],
)
def test_sed_scripts_that_only_print(script, expected):
    assert safe_sed(script) is expected


def test_a_lines_parts():
    text = "a 'b c' \"d$x\" 2>/dev/null | e >f <g && (h; i)\n# j\nk <<E\nl\nE\nm"
    parts = [
        (c.before, len(c.group), c.words, c.outputs, c.inputs, c.stdin)
        for c in Parser(text).parse()
    ]
    assert parts == [
        ("", 0, ["a", "b c", "d$x"], [], [], None),
        ("|", 0, ["e"], ["f"], ["g"], None),
        ("&&", 1, ["h"], [], [], None),
        (";", 1, ["i"], [], [], None),
        (")", 0, ["k"], [], [], "l"),
        ("\n", 0, ["m"], [], [], None),
    ]


BITS = [
    *[
        "rm a.py",
        "ls",
        "cd /x",
        "<<E",
        "E",
        "$(",
        ")",
        "(",
        "'",
        '"',
        "`",
        "|",
        "&&",
        ";",
        "\n",
        " ",
    ],
    *["#", "$((1<<2))", "if", "then", "fi", "{", "}", "<<<", ">", "[[", "]]", "\\"],
]


@given(st.lists(st.sampled_from(BITS), max_size=14))
def test_any_text_is_taken_apart_or_refused(bits):
    """No input fails, and one that begins with a plain removal is never a read."""
    shell_action("".join(bits))
    assert isinstance(shell_action("rm a.py; " + " ".join(bits)), Write)
