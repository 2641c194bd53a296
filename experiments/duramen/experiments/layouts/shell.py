"""What a shell command line reads or writes.

A line is taken apart at `;`, `&&`, `||`, `|`, `&` and line ends. It is a read only if all parts
are; one part that writes makes it a write. Commands that are no programs of a shell, as some agents
define them (`open`, `search_file`), go by their words. What cannot be taken apart writes if it
holds a writing word, else it is unknown.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from duramen.experiments.layouts.actions import Action, Read, Write, name_words, verb, words
from duramen.experiments.layouts.places import Place, place

NEUTRAL = words("cd echo true pwd export set printf : test [ pushd popd clear")
READERS = words(
    "cat head tail less more ls ll dir find fd tree wc stat file diff cmp sort uniq cut nl od xxd "
    "hexdump strings jq awk gawk sed column tac tr which type readlink realpath basename dirname "
    "md5sum sha1sum sha256sum du grep egrep fgrep rg ag ack zcat git curl perl xargs"
)
PATTERN_FIRST = words("grep egrep fgrep rg ag ack sed awk gawk jq tr perl")
FOLDER_IF_NONE = words("ls ll dir find fd tree du rg ag ack git")
ALL_TARGETS = words("rm rmdir mkdir touch truncate mv unlink chmod chown sed perl tee")
LAST_TARGET = words("cp ln install")
WRITERS = (
    ALL_TARGETS
    | LAST_TARGET
    | words(
        "dd patch unzip tar gunzip gzip wget pip pip3 pipx uv npm npx yarn pnpm apt apt-get yum "
        "dnf brew conda cargo make cmake black isort prettier rsync scp ruff autopep8 sqlite3"
    )
)
GIT_READS = words("status diff log show ls-files ls-tree blame grep rev-parse describe")
WRAPPERS = words("sudo time nice env command nohup builtin exec")
CURL_WRITES = re.compile(r"-[a-zA-Z]*[XdoOTF]|--(request|data|form|output|upload|json|remote)")
HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
WRITING_WORD = re.compile(
    r"(^|[\s;&|(`])(" + "|".join(map(re.escape, sorted(WRITERS - {"sed", "perl"}))) + r")\s"
    r"|\bsed\s+(-\w+\s+)*-\w*i|[^0-9&<=-]>"
)


@dataclass(frozen=True)
class _Part:
    """One simple command. `is_piped`: it reads what the one before it wrote."""

    words: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    is_piped: bool = False


def shell_action(text: str) -> Action:
    own = _agents_own(text)
    if own is not None:
        return own
    try:
        parts = _parts(_without_heredocs(text))
    except ValueError:  # quotes that do not close
        return Write(None) if WRITING_WORD.search(text) else None
    folder: Place | None = None
    actions: list[Action] = []
    is_neutral = []
    for part in parts:
        actions += [Write(_targets([output], folder)) for output in part.outputs]
        is_neutral += [False] * len(part.outputs)
        line = _unwrapped(part.words)
        if line[:1] == ("cd",):
            folder = place(line[1], folder=folder) if len(line) > 1 else None
        is_neutral.append(not line or line[0] in NEUTRAL)
        actions.append(None if is_neutral[-1] else _part_action(replace(part, words=line), folder))
    return _joined(text, [a for a, skip in zip(actions, is_neutral, strict=True) if not skip])


def _joined(text: str, actions: Sequence[Action]) -> Action:
    writes = [action for action in actions if isinstance(action, Write)]
    if writes:
        known = [place for write in writes for place in write.places or ()]
        return Write(None if any(write.places is None for write in writes) else tuple(known))
    reads = [action for action in actions if isinstance(action, Read)]
    if not reads or len(reads) < len(actions):
        return None
    shown = [place for read in reads for place in read.places or ()]
    key = reads[0].key if len(actions) == 1 else _key(text)
    return Read(key, None if any(read.places is None for read in reads) else tuple(shown))


def _agents_own(text: str) -> Action:
    """A command that goes by its line; the lines that follow a writing one are its input."""
    first, _, rest = text.strip().partition("\n")
    line = first.split()
    if not line or not re.fullmatch(r"[A-Za-z][\w-]*", line[0]):
        return None
    if line[0] in READERS | WRITERS | NEUTRAL | WRAPPERS:
        return None
    kind = verb(name_words(line[0]))
    arguments = [word for word in line[1:] if not re.fullmatch(r"-.*|[\d:.,]+|\".*|'.*", word)]
    if kind is Write:
        return Write(_targets(arguments, None))
    if kind is None or rest.strip() or re.search(r"[;&|<>`$]", first):
        return None
    searches = {"search", "find", "grep", "query", "lookup"}.intersection(name_words(line[0]))
    shown = line[2:] if searches else arguments
    key = line[1] if line[0] in ("open", "cat", "view") and len(line) == 2 else _key(first)
    return Read(key, _targets(shown, None))


def _part_action(part: _Part, folder: Place | None) -> Action:
    name, given = part.words[0].rpartition("/")[2], part.words[1:]
    arguments = [word for word in given if not word.startswith("-")]
    if any("$(" in word or "`" in word for word in part.words):
        return Write(None) if WRITING_WORD.search(" ".join(part.words)) else None
    if _writes(name, given):
        if name in ALL_TARGETS:
            has_script = name in PATTERN_FIRST
            return Write(_targets(arguments[has_script:], folder))
        return Write(_targets(arguments[-1:], folder) if name in LAST_TARGET else None)
    if name == "xargs":
        inner = _unwrapped(tuple(arguments))
        action = _part_action(_Part(inner, (), True), folder) if inner else None
        return Write(None) if isinstance(action, Write) else action and Read(_key(" "), None)
    if name not in READERS:
        return None
    if name == "git":
        return Read(_key(" ".join(part.words)), None)
    shown = arguments[1:] if name in PATTERN_FIRST else arguments
    if name == "find":
        shown = list(_until_option(given)) or ["."]
    if not shown and part.is_piped:
        return Read(_key(" ".join(part.words)), ())
    if not shown and name in FOLDER_IF_NONE:
        shown = ["."]
    is_whole = name == "cat" and len(given) == len(shown) == 1 and folder is None
    return Read(shown[0] if is_whole else _key(" ".join(part.words)), _targets(shown, folder))


def _writes(name: str, given: Sequence[str]) -> bool:
    flags = [word for word in given if word.startswith("-")]
    match name:
        case "sed" | "perl":
            in_place = any(re.match(r"-\w*i|--in-place", flag) for flag in flags)
            script = next((word for word in given if not word.startswith("-")), "")
            return in_place or name == "perl" or re.search(r"(^|[;\s/])[wWe]\s", script) is not None
        case "find" | "fd":
            wanted = (
                "-delete",
                "-exec",
                "-execdir",
                "-ok",
                "-okdir",
                "-x",
                "-X",
                "-fprint",
                "-fls",
            )
            at = next((i for i, word in enumerate(given) if word.startswith(wanted)), None)
            if at is None:
                return False
            runs = list(given[at + 1 :])
            return not (runs and given[at].startswith("-e") and _reads_only(runs))
        case "git":
            line = [word for word in given if not word.startswith("-")]
            return not line or line[0] not in GIT_READS or "--output" in " ".join(flags)
        case "sort":
            return any(flag.startswith(("-o", "--output")) for flag in flags)
        case "awk" | "gawk":
            return any(re.search(r">|system|print\s*\||inplace", word) for word in given)
        case "curl":
            return any(CURL_WRITES.match(flag) for flag in flags)
        case "jq" | "tree":
            return any(flag.startswith(("-o", "-i")) for flag in flags)
        case "tar":
            return not any(re.fullmatch(r"-?\w*t\w*|--list", word) for word in given[:1])
        case _:
            return name in WRITERS


def _reads_only(line: Sequence[str]) -> bool:
    name = line[0].rpartition("/")[2]
    return name in READERS - {"find", "fd", "xargs"} and not _writes(name, line[1:])


def _parts(text: str) -> list[_Part]:
    """Raises ValueError where quotes do not close."""
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars=";&|()<>\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    parts: list[_Part] = []
    words: list[str] = []
    outputs: list[str] = []
    is_piped = skip = False
    tokens = list(lexer)
    for token, following in pairwise([*tokens, ";", ""]):
        kinds = set(token)
        if skip:
            skip = False
        elif token and kinds <= set(";&|()\n"):
            if words or outputs:
                parts.append(_Part(tuple(words), tuple(outputs), is_piped))
            words, outputs, is_piped = [], [], token in ("|", "|&")
        elif token and kinds <= set("<>&|"):
            skip = not set(following) <= set(";&|()<>\n")
            joins_streams = "&" in token and re.fullmatch(r"[0-9]+|-", following)
            if ">" in token and following != "/dev/null" and not joins_streams:
                outputs.append(following if skip else "")  # a target that cannot be told
            if words[-1:] in (["1"], ["2"]):  # the stream's number
                words.pop()
        else:
            words.append(token)
    return parts


def _without_heredocs(text: str) -> str:
    """The lines that a shell runs, not those that it hands to a program as input."""
    kept = []
    end: str | None = None
    for line in text.split("\n"):
        if end is not None:
            end = None if line.strip() == end else end
            continue
        found = HEREDOC.search(line)
        end = found[2] if found else None
        kept.append(HEREDOC.sub("< /dev/null", line))
    return "\n".join(kept)


def _unwrapped(line: tuple[str, ...]) -> tuple[str, ...]:
    """Without assignments and programs that only run another one."""
    first = 0
    while first < len(line):
        if re.match(r"[A-Za-z_]\w*=", line[first]) or line[first] in WRAPPERS:
            first += 1
        elif line[first] == "timeout" and len(line) > first + 2:
            first += 2
        else:
            break
    return line[first:]


def _until_option(words: Sequence[str]) -> list[str]:
    found = []
    for word in words:
        if word.startswith(("-", "(", "!")):
            break
        found.append(word)
    return found


def _targets(texts: Sequence[str], folder: Place | None) -> tuple[Place, ...] | None:
    """None if there are none, or one that cannot be told."""
    found = [place(text, folder=folder) for text in texts]
    known = tuple(each for each in found if each is not None)
    return known if known and len(known) == len(found) else None


def _key(text: str) -> str:
    return " ".join(text.split())
