"""What the words of a tool's name say, whoever named it.

A name reads if it begins with a reading word, what it reads before it at most (`file_read`), and if
no word of it writes; where it joins two doings (`find_and_fix`), both must read. It is harmless if
all of its words are of thinking, answering, handing over or reckoning. All else may write.
"""

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import groupby


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Doing(Enum):
    READS = "reads"
    WRITES = "writes"  # there is a word that says so
    UNKNOWN = "unknown"  # it may write
    HARMLESS = "harmless"


READS = words(
    "read get list search find view open cat show fetch lookup query grep glob ls tree browse "
    "inspect describe retrieve peek scan explore display print look head options count compare "
    "diff stat exists info visit navigate snapshot screenshot goto"
)
OPENERS = words("open browse visit navigate goto")  # of a page or a window: reads if they name one
WINDOW = words("scroll next previous prev back forward goto")  # moves what a window shows
LISTS = words("list ls tree glob grep search find scan explore browse lookup query")
READ_OBJECTS = words(  # what may stand before the reading word
    "file files fs filesystem system text code repo repository project workspace folder folders "
    "directory directories dir dirs path web page url browser db database table tables memory doc "
    "docs document documents symbol symbols image images pdf log logs user issue issues pr "
    "semantic codebase source content contents sql schema resource resources knowledge note notes "
    "line lines "
    "plan plans todo todos task tasks"
)
WRITES = words(  # wherever they stand in a name
    "write create edit update delete insert replace remove modify cancel rename append save upload "
    "install uninstall drop truncate undo redo revert rollback overwrite patch apply erase "
    "prepend substitute swap purge wipe fix repair refactor reformat rewrite rebuild regenerate "
    "reindex sync synchronize migrate deploy checkout rebase destroy kill toggle"
)
LEADING_WRITES = words(  # nouns, too: these count where no reading word stands before them
    "set book add move put post change send rm mv cp copy mkdir touch reset clear push commit "
    "exchange return pay buy purchase submit restore merge store upsert mark assign "
    "enable disable start stop close refund register record format"
)
ELSEWHERE = words(  # what they write is not, or not only, the place that they name
    "run exec execute test tests build make compile eval evaluate start launch invoke call extract "
    "unzip untar unpack decompress clone convert import load restore install uninstall checkout "
    "pull merge migrate generate scaffold init refactor sync synchronize deploy rebase script "
    "rename move mv copy cp symbol export batch parallel task agent dispatch upload"
)
METHODS = words("post put patch delete")  # of HTTP: they write to the URL that they name
MOVES = words("rename move mv copy cp")  # they write what they name if both ends are named
JOINS = words("and or then")
HARMLESS = (  # the words that such a name begins with, and those that may follow
    (
        "think thinking thought reflect reason reasoning ponder brainstorm sequential "
        "sequentialthinking",
        "thinking thought thoughts deep step by aloud",
    ),
    (
        "final answer finish finished done conclude respond response reply submit attempt end exit",
        "answer response completion conversation to user",
    ),
    (
        "transfer escalate handoff hand ask",
        "off over to a the human humans user users agent agents supervisor operator support "
        "representative followup follow up question questions clarification for help",
    ),
    ("calculate calculator calc compute math wait sleep noop", "arithmetic math expression"),
)
CLOCKS = words("time now date clock datetime timestamp today random uuid")
PLAN_WORDS = words("plan plans todo todos todolist checklist milestone milestones subtask subtasks")
PLAN_NAMES = {"task create", "task update", "task list", "task get", "enter plan mode"}
NAMING = words(
    "path paths file files filename filenames filepath filepaths uri uris url urls href dir dirs "
    "directory directories folder folders pathname"
)
GIT_READS = words(
    "status diff log show ls-files ls-tree blame grep rev-parse describe cat-file shortlog "
    "rev-list merge-base name-rev for-each-ref show-ref diff-tree ls-remote whatchanged "
    "count-objects check-ignore"
)


def name_words(name: str) -> list[str]:
    """The words of a tool's name, without the server or module that it may name first."""
    own = re.split(r"__|[./:]", name)[-1] or name
    spaced = re.sub(r"([a-z0-9])([A-Z])|([A-Z])(?=[A-Z][a-z])", r"\1\3 \2", own)
    return re.sub(r"[_-]", " ", spaced).lower().split()


def server(name: str) -> str:
    """The server or module that a name begins with; empty if none."""
    own = re.split(r"__|[./:]", name)[-1]
    return re.sub(r"^mcp__", "", name[: len(name) - len(own)]).rstrip("_./:") if own else ""


def doing(spoken: Sequence[str]) -> Doing:
    """What the words of a name say."""
    if _is_harmless(spoken):
        return Doing.HARMLESS
    if spoken[:1] == ["git"]:
        return Doing.READS if "-".join(_until(spoken[1:], "staged unstaged")) in GIT_READS else (
            Doing.WRITES if WRITES.intersection(spoken) else Doing.UNKNOWN
        )  # fmt: skip
    if WRITES.intersection(spoken):
        return Doing.WRITES
    pieces = [list(g) for joins, g in groupby(spoken, JOINS.__contains__) if not joins]
    found = [_of_piece(piece) for piece in pieces]
    if Doing.WRITES in found:
        return Doing.WRITES
    return Doing.READS if found and set(found) == {Doing.READS} else Doing.UNKNOWN


def is_plan(spoken: Sequence[str]) -> bool:
    return " ".join(spoken) in PLAN_NAMES or bool(PLAN_WORDS.intersection(spoken))


def _is_harmless(spoken: Sequence[str]) -> bool:
    """An agent that is no person may do anything."""
    is_person = not {"agent", "agents"}.intersection(spoken) or "human" in spoken
    return is_person and any(
        set(spoken[:1]) <= words(first) and set(spoken[1:]) <= words(rest) and bool(spoken)
        for first, rest in HARMLESS
    )


def _of_piece(spoken: Sequence[str]) -> Doing:
    for word in spoken:
        if word in READS:
            return Doing.READS
        if word in LEADING_WRITES:
            return Doing.WRITES
        if word not in READ_OBJECTS:
            break
    return Doing.WRITES if LEADING_WRITES.intersection(spoken) else Doing.UNKNOWN


def _until(spoken: Iterable[str], ends: str) -> list[str]:
    return [word for word in spoken if word not in ends.split()]
