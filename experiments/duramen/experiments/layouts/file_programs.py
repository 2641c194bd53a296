"""Programs that show or change the files that they name."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from duramen.experiments.layouts import shell_words as known
from duramen.experiments.layouts.actions import Action, Read, Write
from duramen.experiments.layouts.places import Place, place

EVERYTHING = Write(None)
SILENT = Write(())  # shows nothing and changes nothing


@dataclass(frozen=True)
class Invocation:
    """A program with its arguments. `folder`: where its paths count from, None if that is open.
    `run`: what a script does that it hands to a shell."""

    name: str
    words: tuple[str, ...]
    folder: Place | None
    stdin: str | None
    is_piped: bool
    run: Callable[[str], Action]

    @property
    def flags(self) -> list[str]:
        return [w for w in self._until_end if w.startswith("-") and w != "-"]

    @property
    def arguments(self) -> list[str]:
        """What is no option, nor the value of one that takes no place."""
        takes = known.OPTIONS.get(self.name, "").split()
        found = []
        before = ""
        for word in self._until_end:
            if not word.startswith("-") and before not in takes:
                found.append(word)
            before = word
        return found + list(self.words[len(self._until_end) + 1 :])

    @property
    def _until_end(self) -> tuple[str, ...]:
        return self.words[: self.words.index("--")] if "--" in self.words else self.words


def sed(given: Invocation) -> Action:
    in_place = [f for f in given.flags if re.match(r"-[nErszu]*i|--in-place", f)]
    script = [f for f in given.flags if re.match(r"-[nErszu]*[ef]|--(expr|file)", f)]
    if script or any(
        not re.fullmatch(r"-[nErszu]*i?|--in-place|--quiet|--debug", f) for f in given.flags
    ):
        return EVERYTHING
    if not given.arguments or not safe_sed(given.arguments[0]):
        return EVERYTHING
    return Write(targets(given.arguments[1:], given.folder)) if in_place else reads(given)


def safe_sed(script: str) -> bool:
    """Whether a script only prints or changes the lines that pass through."""
    address = r"(?:\d+|\$|\d+~\d+|/(?:\\.|[^/\\\n])*/I?)"
    where = rf"\s*(?:{address}(?:,\s*(?:{address}|[+~]\d+))?)?\s*!?\s*"
    plain = r"[pdqQ=lDPnNgGhHx]\s*\d*"
    change = r"[sy]([^\w\s\\;])(?:\\.|(?!\1)[^\\\n])*\1(?:\\.|(?!\1)[^\\\n])*\1[gpIi\d]*"
    one = re.compile(rf"{where}(?:{plain}|{change})?\s*(?:[;\n]|\Z)")
    at = 0
    while at < len(script):
        found = one.match(script, at)
        if found is None or found.end() == at:
            return False
        at = found.end()
    return bool(script.strip())


def writes(given: Invocation) -> Action:
    """What is named, a superset of what is written; for a copy the last one alone."""
    valued = [flag.partition("=")[2] for flag in given.flags if "=" in flag]
    flags = "".join(flag for flag in given.flags if not flag.startswith("--"))
    backs_up = any(f.startswith(("--backup", "--suffix")) for f in given.flags) or (
        given.name not in ("rm", "chmod", "chown", "mkdir", "tee") and re.search("[bS]", flags)
    )
    named = given.arguments
    into = "t" in flags or any(flag.startswith("--t") for flag in given.flags)
    if backs_up or (given.name in known.LAST_TARGET and len(named) < 2 and not into):
        return EVERYTHING
    if given.name in known.LAST_TARGET and not into and "d" not in flags:
        named = named[-1:]
    return Write(targets([*named, *filter(None, valued)], given.folder))


def reads(given: Invocation) -> Action:
    name, flags = given.name, given.flags
    if name == "curl":
        return _curl(given)
    if any(flag.startswith(known.WRITING_OPTIONS.get(name, ())) for flag in _all_flags(given)):
        return EVERYTHING
    if name in ("awk", "gawk") and any(
        re.search(r">(?!=)|(?<!\|)\|(?!\|)|system|getline|@|close", word) for word in given.words
    ):
        return EVERYTHING
    shown = given.arguments
    if name in known.TWO_ENDS and len(shown) > 1:
        return EVERYTHING
    from_file = any(re.match(r"-\w*[ef]|--(reg|file|from|expr|slurp|raw)", flag) for flag in flags)
    if name in known.PATTERN_FIRST:
        if from_file and any(re.match(r"-\w*f|--(file|from|slurp|raw)", flag) for flag in flags):
            return Read("", None)
        shown = shown if from_file else shown[1:]
    if name == "find":
        shown = _before_tests(given.words) or ["."]
    if not shown and given.is_piped:
        return Read("", ())
    if not shown and name in known.FOLDER_IF_NONE:
        shown = ["."]
    places = targets(shown, given.folder) if name not in ("which", "type") else None
    if places is not None and name in known.LISTERS:
        places = tuple(replace(each, listed=True) for each in places)
    is_whole = name == "cat" and list(given.words) == shown and len(shown) == 1
    return Read("", places, is_whole and places is not None)


def _all_flags(given: Invocation) -> list[str]:
    """Short flags one by one, too: `-no` may be `-n -o`."""
    split = [f"-{c}" for f in given.flags if re.fullmatch(r"-[a-zA-Z]+", f) for c in f[1:]]
    return [*given.flags, *([] if given.name in ("find", "awk", "gawk") else split)]


def _curl(given: Invocation) -> Action:
    urls: list[str] = []
    words = list(given.words)
    while words:
        word = words.pop(0)
        if word in known.CURL_OPTIONS:
            words = words[1:]
        elif not word.startswith("-"):
            urls.append(word if "://" in word else f"http://{word}")
        elif word not in known.CURL_FLAGS:
            return EVERYTHING
    return Read("", targets(urls, None)) if urls else EVERYTHING


def _before_tests(words: Sequence[str]) -> list[str]:
    named = [word for word in words if word not in ("-L", "-H", "-P")]
    end = next((i for i, word in enumerate(named) if word.startswith(("-", "(", "!"))), len(named))
    return named[:end]


def targets(texts: Sequence[str], folder: Place | None) -> tuple[Place, ...] | None:
    """None if there are none, or one that cannot be told."""
    found = [place(text, folder=folder) for text in texts]
    known_ones = tuple(each for each in found if each is not None)
    return known_ones if known_ones and len(known_ones) == len(found) else None
