"""A shell's text taken apart into simple commands, as far as that is sure.

What is not understood raises ShellSyntax, so that nobody takes half of it for the whole.
"""

import re
from dataclasses import dataclass, field

_REDIRECT = re.compile(r"(\d*|\{\w+\})(<<<|<<-|<<|<>|<&|<|&>>|&>|>>|>\||>&|>)")
_OPERATOR = re.compile(r"&&|\|\||;;&?|;&|\|&|[;|&\n()]")
_NOWHERE = {"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"}


class ShellSyntax(Exception):
    """The text is no shell line that is understood here."""


@dataclass
class Command:
    """One simple command. `before`: the operator in front of it; `group`: the numbers of the
    subshells that it stands in; `outputs`, `inputs`: what it is redirected to and from; `stdin`:
    the text it is given; `inner`: scripts of substitutions that run before it."""

    before: str = ""
    group: tuple[int, ...] = ()
    words: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    stdin: str | None = None
    inner: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.outputs or self.inputs or self.inner)


@dataclass
class _Heredoc:
    command: Command
    end: str
    strips_tabs: bool
    is_literal: bool


class Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.commands: list[Command] = []
        self.heredocs: list[_Heredoc] = []
        self.groups: list[int] = []
        self.num_groups = 0
        self.command = Command()

    def parse(self) -> list[Command]:
        """Raises ShellSyntax."""
        while self.at < len(self.text):
            self._step()
        self._end("")
        if self.groups:
            raise ShellSyntax("a group does not close")
        return self.commands

    def _step(self) -> None:
        text, at = self.text, self.at
        if text[at] in " \t\r":
            self.at += 1
        elif text.startswith("\\\n", at):
            self.at += 2
        elif text[at] == "#":
            self.at = _find(text, "\n", at)
        elif found := _REDIRECT.match(text, at):
            self._redirect(found[2], found.end())
        elif found := _OPERATOR.match(text, at):
            self.at = found.end()
            self._operator(found[0])
        elif text.startswith("[[", at) and not self.command.words:
            self.at = _find(text, "]]", at, must=True) + 2
            if re.search(r"[$<>]\(|`", text[at : self.at]):
                raise ShellSyntax("a condition that runs something")
            self.command.words.append("[[")
        else:
            word, _ = self._word()
            self.command.words.append(word)

    def _operator(self, operator: str) -> None:
        if operator == "(":
            if self.command.words:
                raise ShellSyntax("a function")
            if not self.command.is_empty:
                raise ShellSyntax("a redirected group")
            self.num_groups += 1
            self.groups.append(self.num_groups)
            self.command.group = tuple(self.groups)
        elif operator == ")":
            if not self.groups:
                raise ShellSyntax("a group that did not open")
            self._end(")")
            self.groups.pop()
            self.command.group = tuple(self.groups)
        elif operator.startswith(";;") or operator == ";&":
            raise ShellSyntax("a case")
        else:
            self._end(operator)
            if operator == "\n":
                self._bodies()

    def _end(self, operator: str) -> None:
        """The command is complete; an empty one leaves its operator to the next."""
        before = operator
        if not self.command.is_empty:
            self.commands.append(self.command)
        elif operator in ("", "\n", ")"):
            before = self.command.before or operator
        self.command = Command(before, tuple(self.groups))

    def _redirect(self, operator: str, at: int) -> None:
        while at < len(self.text) and self.text[at] in " \t":
            at += 1
        self.at = at
        has_target = at < len(self.text) and self.text[at] not in ";&|()<>\n"
        target, is_literal = self._word() if has_target else ("", False)
        command = self.command
        if operator in ("<<", "<<-"):
            if target:
                self.heredocs.append(_Heredoc(command, target, operator == "<<-", is_literal))
        elif operator == "<<<":
            command.stdin = target
        elif operator in (">&", "<&") and re.fullmatch(r"\d+-?|-", target):
            pass
        elif operator in ("<", "<&"):
            command.inputs += [target] if target not in _NOWHERE else []
        elif target not in _NOWHERE:
            command.outputs.append(target)

    def _bodies(self) -> None:
        for heredoc in self.heredocs:
            lines = []
            while self.at < len(self.text):
                stop = _find(self.text, "\n", self.at)
                line, self.at = self.text[self.at : stop], stop + 1
                line = line.lstrip("\t") if heredoc.strips_tabs else line
                if line.rstrip("\r") == heredoc.end:
                    break
                lines.append(line)
            body = "\n".join(lines)
            if not heredoc.is_literal and re.search(r"\$\(|`", body):
                raise ShellSyntax("a here-document that runs something")
            heredoc.command.stdin = body
        self.heredocs = []

    def _word(self) -> tuple[str, bool]:
        """The word that begins here, unquoted, and whether it was quoted."""
        text, parts, quoted = self.text, [], False
        start = self.at
        while self.at < len(text) and text[self.at] not in " \t\r\n;&|<>()":
            char, at = text[self.at], self.at
            if char == "'":
                self.at = _find(text, "'", at + 1, must=True) + 1
                parts.append(text[at + 1 : self.at - 1])
                quoted = True
            elif char == '"':
                parts.append(self._double())
                quoted = True
            elif char == "\\":
                parts.append("" if text.startswith("\n", at + 1) else text[at + 1 : at + 2])
                self.at += 2
                quoted = True
            elif char in "$`":
                parts.append(self._expansion())
            else:
                parts.append(char)
                self.at += 1
        if self.at < len(text) and text[self.at] == "(" and self.at > start:
            raise ShellSyntax("an array, a function or a pattern")
        if self.at == start:
            raise ShellSyntax("a word is missing")
        return "".join(parts), quoted

    def _double(self) -> str:
        text, parts = self.text, []
        self.at += 1
        while self.at < len(text) and text[self.at] != '"':
            if text[self.at] == "\\":
                following = text[self.at + 1 : self.at + 2]
                parts.append(following if following in '"\\$`' else "\\" + following)
                self.at += 2
            elif text[self.at] in "$`":
                parts.append(self._expansion())
            else:
                parts.append(text[self.at])
                self.at += 1
        if self.at >= len(text):
            raise ShellSyntax("a quote does not close")
        self.at += 1
        return "".join(parts)

    def _expansion(self) -> str:
        """What stands at `$` or a backtick, as it is; what it runs goes to `inner`."""
        text, at = self.text, self.at
        if text[at] == "`":
            stop = _find(text, "`", at + 1, must=True)
            self.command.inner.append(text[at + 1 : stop].replace("\\`", "`"))
        elif text.startswith(("$((", "${"), at):
            stop = _closing(text, at + 1)
            if re.search(r"\$\([^(]|`", text[at + 2 : stop]):
                raise ShellSyntax("an expansion that runs something")
        elif text.startswith("$(", at):
            stop = _closing(text, at + 1)
            self.command.inner.append(text[at + 2 : stop])
        elif text.startswith("$'", at):
            raise ShellSyntax("a quote of another kind")
        else:
            stop = at
        self.at = stop + 1
        return text[at : self.at]


def _find(text: str, wanted: str, at: int, *, must: bool = False) -> int:
    found = text.find(wanted, at)
    if found < 0 and must:
        raise ShellSyntax(f"{wanted} is missing")
    return len(text) if found < 0 else found


def _closing(text: str, at: int) -> int:
    """Where the bracket that opens at `at` closes, quotes left out."""
    opening = text[at]
    closing = {"(": ")", "{": "}"}[opening]
    depth = 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == "'" or text[at] == '"':
            at = _find(text, text[at], at + 1, must=True)
        elif text[at] == opening:
            depth += 1
        elif text[at] == closing:
            depth -= 1
            if not depth:
                return at
        at += 1
    raise ShellSyntax("a bracket does not close")
