"""All that is certified of one chat template."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from duramen.layout.certify.history import certificate
from duramen.layout.certify.mend import Mend, mend
from duramen.layout.certify.options import Option, options
from duramen.layout.certify.rendering import Rendering
from duramen.layout.certify.transitions import FIRST, TRANSITIONS
from duramen.layout.certify.verdicts import Outcome, outcomes
from duramen.layout.errors import TemplateError
from duramen.layout.seams import SeamProver
from duramen.layout.template import ChatTemplate
from duramen.layout.tokenizer import Tokenizer

# For templates without a tokenizer: the strings that most of them are written for.
STAND_INS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}


@dataclass(frozen=True)
class Bos:
    """`template`: it writes BOS in front; `tokenizer`: that adds one unless told not to. None where
    there is no tokenizer."""

    template: bool
    tokenizer: bool | None

    @property
    def is_doubled(self) -> bool | None:
        return None if self.tokenizer is None else self.template and self.tokenizer


@dataclass(frozen=True)
class Certified:
    """`refused`: why the template is none at all; then nothing else is known.

    `history`: the gateway's policy that follows, with `history_why` where it is "template".
    `not_local_because`: why new messages cannot be rendered in a short window. `seam_family`: of
    the tokenizer, None where no cut inside ordinary text is proven, or without a tokenizer.
    """

    outcomes: Mapping[str, Outcome]
    refused: str | None = None
    history: str | None = None
    history_why: str | None = None
    not_local_because: str | None = None
    bos: Bos | None = None
    has_tokenizer: bool = False
    seam_family: str | None = None
    takes_system: bool = True
    options: tuple[Option, ...] = ()
    mend: Mend | None = None

    def verdicts_as_json(self) -> dict[str, Any]:
        return {name: outcome.as_json() for name, outcome in self.outcomes.items()}

    def as_json(self) -> dict[str, Any]:
        """All but the verdicts."""
        bos = self.bos and {**asdict(self.bos), "doubled": self.bos.is_doubled}
        mended = self.mend and {"changes": [asdict(c) for c in self.mend.changes],
                                "gained": list(self.mend.gained)}  # fmt: skip
        return {
            "refused": self.refused,
            "history": self.history,
            "history_why": self.history_why,
            "is_local": None if self.refused else self.not_local_because is None,
            "not_local_because": self.not_local_because,
            "bos": bos,
            "seam_family": self.seam_family,
            "takes_system": self.takes_system,
            "options": [option.as_json() for option in self.options],
            "mend": mended,
        }


def certified(source: str, tokenizer: Tokenizer | None = None) -> Certified:
    """`tokenizer`: loaded with this source. A source that is no template is refused in all."""
    specials = STAND_INS if tokenizer is None else {**tokenizer.special_strings}
    try:
        template = ChatTemplate(source, specials)
    except TemplateError as error:
        refused = Outcome("refused", why=str(error))
        return Certified({t.name: refused for t in TRANSITIONS}, refused=str(error))
    rendering = Rendering(template)
    found = certificate(template, tokenizer)
    return Certified(
        outcomes=outcomes(rendering, tokenizer),
        history="verbatim" if found.keeps_history else "template",
        history_why=found.why,
        not_local_because=template.not_local_because,
        bos=_bos(rendering, tokenizer),
        has_tokenizer=tokenizer is not None,
        seam_family=None if tokenizer is None else SeamProver(tokenizer).family,
        takes_system=rendering.takes_system,
        options=tuple(options(rendering)),
        mend=mend(rendering),
    )


def _bos(rendering: Rendering, tokenizer: Tokenizer | None) -> Bos | None:
    """None where the template refuses the first turn."""
    first = FIRST if rendering.takes_system else FIRST[1:]
    try:
        text = rendering.prompt(first)
    except TemplateError:
        return None
    bos = rendering.template.specials.get("bos_token")
    writes = bool(bos) and text.lstrip().startswith(str(bos))
    return Bos(writes, None if tokenizer is None else _adds_bos(tokenizer, bos))


def _adds_bos(tokenizer: Tokenizer, bos: str | None) -> bool:
    """By its post-processor, or because its configuration says so."""
    encoded = tokenizer.full.encode("a", add_special_tokens=True).tokens
    return encoded[:1] == [bos] or (
        bos is not None and tokenizer.config.get("add_bos_token") is True
    )
