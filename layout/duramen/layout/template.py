"""A model's chat template: messages in, text with origins out.

`is_local` is the proof that makes delta rendering possible: it holds when a message's text depends
on nothing but that message, the first one and its direct neighbours. Then the text that new
messages add can be rendered from a short window instead of the whole conversation.
"""

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from duramen.layout.chat_messages import takes_parts, template_messages
from duramen.layout.errors import TemplateError
from duramen.layout.jinja import TrackedEnvironment
from duramen.layout.locality import why_not_local
from duramen.layout.tokenizer_files import read_json, special_strings
from duramen.layout.tracked import OTHER, TOOLS, Tracked, origin_of

Message = Mapping[str, Any]

# Words of the interface, not data: some templates build <|user|> from them.
ROLES = frozenset(["system", "developer", "user", "assistant", "tool", "function"])


def with_origin(value: Any, origin: int) -> Any:
    """A deep copy of JSON-like `value` whose strings (keys too) are data of `origin`."""
    if isinstance(value, str):
        return Tracked.data(str(value), origin)
    if type(value) is dict or isinstance(value, Mapping):  # the first is faster to ask
        return {with_origin(k, origin): with_origin(v, origin) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [with_origin(item, origin) for item in value]
    return value


class Marked(list[Any]):
    """Messages or tools whose strings know their origin already."""


def marked_messages(messages: Sequence[Message]) -> Marked:
    if isinstance(messages, Marked):
        return messages
    try:
        return Marked(_with_message_origin(m, i + 1) for i, m in enumerate(messages))
    except RecursionError:
        raise TemplateError("the messages are nested too deeply") from None


def marked_tools(tools: Sequence[Mapping[str, Any]] | None) -> Marked | None:
    if isinstance(tools, Marked):
        return tools or None
    return Marked(with_origin(tools, TOOLS)) if tools else None


def _with_message_origin(message: Message, origin: int) -> Any:
    tracked = with_origin(message, origin)
    role = message.get("role")
    if isinstance(role, str) and role in ROLES:
        tracked["role"] = role
    return tracked


class ChatTemplate:
    """`specials`: bos_token, eos_token ... as the template may name them; they are its own text."""

    def __init__(self, source: str, specials: Mapping[str, str] | None = None) -> None:
        self.source = source
        self.specials = dict(specials or {})
        environment = TrackedEnvironment()
        try:
            self._template = environment.from_string(source)
            tree = environment.parse(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"chat template, line {error.lineno}: {error.message}") from None
        except (SyntaxError, RecursionError) as error:  # of the Python code that Jinja made of it
            raise TemplateError(f"chat template cannot be compiled: {error}") from None
        self.not_local_because = why_not_local(tree)
        self.takes_parts = takes_parts(tree)  # else vLLM hands it text parts as one text

    @property
    def is_local(self) -> bool:
        return self.not_local_because is None

    def prepared(self, messages: Sequence[Message]) -> list[Message]:
        """OpenAI messages in the form in which vLLM would hand them to this template."""
        knows_developer = any(f"{q}developer{q}" in self.source for q in "\"'")
        prepared = template_messages(
            messages, takes_parts=self.takes_parts, knows_developer=knows_developer
        )
        return list(prepared)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        now: datetime.datetime | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Tracked:
        """The text of the conversation; characters of message i, known roles apart, have origin
        i + 1.

        `now` is what `strftime_now` shows. Raises TemplateError when the template refuses the
        messages, with its own reason.
        """

        def strftime_now(format: str) -> Tracked:
            if now is None:
                raise TemplateError("the chat template asks for the time: give `now`")
            return Tracked.data(now.strftime(format), origin_of(format))

        variables = {
            **self.specials,
            "messages": marked_messages(messages),
            "tools": marked_tools(tools),
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            "strftime_now": strftime_now,
            **with_origin(dict(arguments or {}), OTHER),
        }
        try:
            text = self._template.render(variables)
        except TemplateError:
            raise
        except Exception as error:  # a template can fail in any way Python can
            raise TemplateError(f"the chat template refuses these messages: {error}") from None
        assert isinstance(text, Tracked)
        try:
            str.encode(text)
        except UnicodeEncodeError:
            raise TemplateError("the messages hold a lone surrogate: not valid Unicode") from None
        return text


def load_template(directory: Path, file: Path | None = None, *, has_tools: bool = False) -> str:
    """Source of the chat template: `file`, else the model folder's own.

    A folder with several named ones gives "tool_use" when there are tools, else "default".
    Raises TemplateError if there is none.
    """
    path = file if file is not None else directory / "chat_template.jinja"
    if file is not None or path.exists():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TemplateError(f"chat template {path} cannot be read: {error}") from None
    found = read_json(directory / "tokenizer_config.json", required=False).get("chat_template")
    if isinstance(found, list):
        named = {entry["name"]: entry["template"] for entry in found}
        found = named.get("tool_use") if has_tools else None
        found = found or named.get("default")
    if not isinstance(found, str):
        raise TemplateError(f"{directory} holds no chat template: name one with --chat-template")
    return found


def load_chat_template(
    directory: Path, file: Path | None = None, *, has_tools: bool = False
) -> ChatTemplate:
    """The template of a model folder (or `file`), with the folder's BOS and EOS strings."""
    config = read_json(directory / "tokenizer_config.json", required=False)
    return ChatTemplate(
        load_template(directory, file, has_tools=has_tools), special_strings(config)
    )
