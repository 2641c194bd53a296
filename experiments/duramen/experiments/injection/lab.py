"""Models by name, and the plain way to a call's tokens: render and encode the whole, compare.

Nothing here is shared with what is judged: no delta, no cache, no diagnosis.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from duramen.experiments.history import Turn
from duramen.experiments.layouts.model import Model, call_time_s, utc
from duramen.experiments.trajectory import Call, Message, Session
from duramen.layout.chat_messages import template_tools
from duramen.layout.errors import TemplateError
from duramen.layout.template import ChatTemplate
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tokenizer_files import read_json, special_strings

NOT_ARGUMENTS = ("chat_template_kwargs", "tool_choice")  # of what Sending.options may hold


@dataclass
class Lab:
    """`own`: small templates by name. `shared`: the folder of published templates and tokenizers;
    None where it is not there.

    A model's name is "chatml" or a name in `own`, with SmolLM2's tokenizer; "TEMPLATE@TOKENIZER"
    of published ones; or "chatml@TOKENIZER", ours with a published tokenizer.
    """

    smollm2: Path
    own: Mapping[str, str]
    shared: Path | None = None
    _models: dict[str, Model] = field(default_factory=dict)
    _tokenizers: dict[tuple[Path, str], Tokenizer] = field(default_factory=dict)

    def model(self, name: str) -> Model:
        if name not in self._models:
            self._models[name] = self._load(name)
        return self._models[name]

    def _load(self, name: str) -> Model:
        template, _, tokenizer = name.partition("@")
        folder = self.smollm2
        if tokenizer:
            assert self.shared is not None, f"{name} needs the published tokenizers"
            folder = self.shared / "tokenizers" / tokenizer
        source = self._source(template)
        specials = special_strings(read_json(folder / "tokenizer_config.json", required=False))
        return Model(self._tokenizer(folder, template, source), ChatTemplate(source, specials))

    def _tokenizer(self, folder: Path, template: str, source: str) -> Tokenizer:
        """Our templates spell the same control tokens: one tokenizer for all of them."""
        is_ours = template in self.own or template == "chatml"
        key = folder, "" if is_ours else template
        if key not in self._tokenizers:
            self._tokenizers[key] = Tokenizer.load(folder, source)
        return self._tokenizers[key]

    def _source(self, template: str) -> str:
        if template in self.own:
            return self.own[template]
        if template == "chatml":
            return (files("duramen.configs") / "chatml_tools.jinja").read_text("utf-8")
        assert self.shared is not None, f"{template} needs the published templates"
        return (self.shared / "templates" / f"{template}.jinja").read_text("utf-8")

    def text(self, model: str, session: Session, index: int) -> str | None:
        """The rendered prompt of a call; None if the template refuses it."""
        chosen, call = self.model(model), session.calls[index]
        try:
            return chosen.template.render(
                chosen.template.prepared(call.messages),
                tools=template_tools(session.tools_of(call)),
                add_generation_prompt=True,
                now=utc(call_time_s(session, call, index)),
                arguments={**chosen.arguments, **template_arguments(call)},
            )
        except TemplateError:
            return None

    def prompt_ids(self, model: str, session: Session, index: int) -> list[int] | None:
        """As the engine reported them, else encoded; None if the template refuses the call."""
        call = session.calls[index]
        if call.sending.token_ids is not None:
            return list(call.sending.token_ids)
        text = self.text(model, session, index)
        return None if text is None else self.model(model).tokenizer.encode(text).token_ids  # type: ignore[arg-type]

    def reply_ids(self, model: str, session: Session, index: int) -> list[int]:
        """As reported, else as the tokenizer spells the recorded reply; [] where there is none."""
        call = session.calls[index]
        if call.sending.reply_ids is not None:
            return list(call.sending.reply_ids)
        if call.reply is None:
            return []
        turn = Turn(call.messages, session.tools_of(call))
        return self.spelled(model, turn, call_time_s(session, call, index), call.reply)

    def spelled(self, model: str, turn: Turn, time_s: float, reply: Message) -> list[int]:
        return self.model(model).recorded_reply(turn, time_s, reply)


def template_arguments(call: Call) -> dict[str, Any]:
    options: Mapping[str, Any] = call.sending.options
    given = {key: value for key, value in options.items() if key not in NOT_ARGUMENTS}
    return {**given, **options.get("chat_template_kwargs", {})}
