"""What a shell command line reads or writes.

A line is a read only if each of its commands surely is one, or is silent; one that writes, that is
not known or not understood makes the whole a write. Paths count from the folder that the line
itself goes to, as far as it is sure that it got there: after `cd x &&`, until the next `;`, line
end or `||`. Else it is open where they stand. Commands that are no programs of a shell, as some
agents define them (`open`, `search_file`), go by their words.
"""

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from duramen.experiments.layouts import shell_words as known
from duramen.experiments.layouts.actions import Action, Read, State, Write
from duramen.experiments.layouts.file_programs import EVERYTHING, SILENT, Invocation
from duramen.experiments.layouts.places import Place, place, plain_path
from duramen.experiments.layouts.programs import nameless, program_action, unwrapped
from duramen.experiments.layouts.shell_syntax import Command, Parser, ShellSyntax
from duramen.experiments.layouts.tool_words import LISTS, OPENERS, WINDOW, Doing, doing, name_words

MAX_DEPTH = 8


@dataclass(frozen=True)
class Folder:
    """Where a shell stands, `place`; `path` as written, if it counts from the root. Both are None
    where it is open: where the line began, or, `is_lost`, somewhere else."""

    place: Place | None = None
    path: str | None = None
    is_lost: bool = False

    def into(self, path: str) -> "Folder":
        found = place(path, folder=self.place)
        if found is None or not (found.absolute or found.fixed):
            return Folder(found, is_lost=True)
        joined = posixpath.join(self.path or "", plain_path(path))
        return Folder(found, posixpath.normpath(joined) if joined.startswith("/") else None)

    def named(self, path: str) -> str | None:
        """The name of a file here; None if it has none or stands for several."""
        plain = plain_path(path)
        if re.search(r"[*?\[{$`]", plain):
            return None
        if plain.startswith(("/", "~")) or self == START:
            return plain
        return None if self.path is None else posixpath.normpath(f"{self.path}/{plain}")


START = Folder()
LOST = Folder(is_lost=True)
PIPES = ("|", "|&")


def shell_action(text: str, workdir: str | None = None) -> Action:
    """What a command line does that starts in `workdir`."""
    folder = START if workdir is None else START.into(workdir)
    if (own := _agents_own(text, folder)) is not None:
        action = own.action
    else:
        action = _script(text, folder, 0)
    if not isinstance(action, Read) or action.key:
        return action
    key = text.strip()
    return replace(action, key=key if workdir is None else f"cd {shlex.quote(workdir)} && {key}")


@dataclass(frozen=True)
class _Own:
    action: Action


def _agents_own(text: str, folder: Folder) -> _Own | None:
    """A command that goes by its line; the lines that follow a writing one are its input. None for
    what is a shell's."""
    first, _, rest = text.strip().partition("\n")
    line = first.split()
    if not line or not re.fullmatch(r"[A-Za-z][\w-]*", line[0]) or line[0] in known.PROGRAMS:
        return None
    spoken = name_words(line[0])
    kind = doing(spoken)
    arguments = [word for word in line[1:] if not re.fullmatch(r"-.*|[\d:.,]+|\".*|'.*", word)]
    is_line = not rest.strip() and not re.search(r"[;&|<>`$()]", first)
    if WINDOW.intersection(spoken) and is_line and not arguments:
        return _Own(Write((), frozenset({State.WINDOW})))
    if kind is Doing.HARMLESS and is_line:
        return _Own(None)
    if kind is Doing.WRITES:
        named = [place(word, folder=folder.place) for word in arguments]
        sure = tuple(each for each in named if each is not None)
        return _Own(Write(sure if is_line and sure and None not in named else None))
    is_own = len(spoken) > 1 or spoken[0] in ("open", "view", "show")
    if kind is not Doing.READS or not is_line or not is_own:
        return None
    return _Own(_own_read(spoken, line, arguments, folder))


def _own_read(
    spoken: Sequence[str], line: Sequence[str], arguments: Sequence[str], folder: Folder
) -> Read:
    searches = LISTS.intersection(spoken)
    named = [place(word, folder=folder.place) for word in (line[2:] if searches else arguments)]
    shown = tuple(replace(each, listed=bool(searches)) for each in named if each is not None)
    moves = frozenset({State.WINDOW}) if OPENERS.intersection(spoken) else frozenset()
    is_whole = spoken in (["open"], ["view"]) and len(line) == 2 and len(shown) == 1
    path = folder.named(line[1]) if is_whole else None
    places = shown if shown and None not in named else None
    return Read(path or "", places, path is not None, changes=moves)


def _script(text: str, folder: Folder, depth: int) -> Action:
    """A read that has no name of its own has an empty key."""
    try:
        commands = Parser(text).parse()
    except ShellSyntax:
        return EVERYTHING
    if depth > MAX_DEPTH:
        return EVERYTHING
    walk = _Walk(folder, depth)
    actions = [action for i in range(len(commands)) for action in walk.actions(commands, i)]
    return _joined([action for action in actions if action is not SILENT], walk)


def _joined(actions: Sequence[Action], walk: "_Walk") -> Action:
    changes = frozenset({State.FOLDER}) if walk.moved else frozenset()
    stands = walk.folders[()].place if walk.moved else None
    writes = [action for action in actions if isinstance(action, Write)]
    reads = [action for action in actions if isinstance(action, Read)]
    if writes:
        named = tuple(dict.fromkeys(each for write in writes for each in write.places or ()))
        return Write(None if any(w.places is None for w in writes) else named, changes, stands)
    if not reads or len(reads) < len(actions) or all(read.places == () for read in reads):
        return Write((), changes, stands) if changes else None
    shown = tuple(dict.fromkeys(each for read in reads for each in read.places or ()))
    is_whole = walk.num_programs == 1 and reads[0].is_whole
    key = reads[0].key if is_whole else ""
    is_open = any(read.places is None for read in reads)
    return Read(key, None if is_open else shown, is_whole, changes=changes, folder=stands)


class _Walk:
    """Goes through commands and keeps the folder of each group of them."""

    def __init__(self, folder: Folder, depth: int) -> None:
        self.depth = depth
        self.folders: dict[tuple[int, ...], Folder] = {(): folder}
        self.gone: set[tuple[int, ...]] = set()  # groups that went elsewhere in this list
        self.moved = self.has_or = False
        self.num_programs = 0

    def actions(self, commands: Sequence[Command], i: int) -> Iterator[Action]:
        command, group = commands[i], commands[i].group
        if group not in self.folders:
            self.folders[group] = self.folders.get(group[:-1], LOST)
        if command.before not in ("", "&&", *PIPES):
            self._leave_list(command.before)
        folder = self.folders[group]
        for script in command.inner:
            inner = _script(script, folder, self.depth + 1)
            yield nameless(inner)
        for output in command.outputs:
            found = place(output, folder=folder.place)
            yield Write(None if found is None else (found,))
        for source in command.inputs:
            found = place(source, folder=folder.place)
            yield Read("", None if found is None else (found,))
        after = commands[i + 1].before if i + 1 < len(commands) else ""
        yield self._action(command, folder, in_pipe=command.before in PIPES or after in PIPES)

    def _leave_list(self, before: str) -> None:
        """It is not sure that the list came to its end."""
        self.has_or = before == "||"
        for group in self.gone:
            self.folders[group] = LOST
        self.gone.clear()

    def _action(self, command: Command, folder: Folder, *, in_pipe: bool) -> Action:
        line = unwrapped(command.words)
        if not line:
            return EVERYTHING if line is None else SILENT
        if line[0] in ("cd", "pushd", "popd"):
            is_plain = command.words[0] == line[0] and not (in_pipe or self.has_or)
            self._go(line, command.group, folder if is_plain else None)
            return SILENT
        self.num_programs += 1
        if re.search(r"[$`]", line[0]):
            return EVERYTHING
        name = line[0].rpartition("/")[2]
        given = Invocation(
            name,
            line[1:],
            folder.place,
            command.stdin,
            command.before in PIPES,
            lambda script: _script(script, folder, self.depth + 1),
        )
        if name == "eval":
            self._go(line, command.group, None)
        action = program_action(given)
        if isinstance(action, Read) and action.is_whole:
            path = None if "time" in command.words else folder.named(line[1])
            return replace(action, key=path or "", is_whole=path is not None)
        return action

    def _go(self, line: Sequence[str], group: tuple[int, ...], folder: Folder | None) -> None:
        """`folder`: where from; None if it is not sure that this command runs and lasts."""
        named = [word for word in line[1:] if word not in ("-P", "-L", "-e", "--")]
        is_known = line[0] != "popd" and len(named) == 1 and not named[0].startswith(("-", "+"))
        self.folders[group] = folder.into(named[0]) if folder and is_known else LOST
        self.gone.add(group)
        self.moved = self.moved or not group
