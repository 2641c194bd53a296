"""What a tokenizer's files say of special strings and added tokens, and what is built of them.

What counts as a control token is defined here, in one place: `is_control`.
"""

import codecs
import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import tokenizers

from duramen.layout.errors import TokenizerError

SPECIAL_KEYS = (
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
)  # fmt: skip

# transformers 5 rebuilds these classes with a normalizer even where tokenizer.json has none.
CLASS_NORMALIZERS = {"Qwen2Tokenizer": {"type": "NFC"}, "Qwen2TokenizerFast": {"type": "NFC"}}

# Spellings that models are trained to treat as structure, whether or not their tokenizer file
# marks them special: <|...|> and its full-width twin, sequence ends, thinking and tool markers.
_MARKER = re.compile(
    r"<[|｜].*[|｜]>|</?(?:s|bos|eos|pad|unk|mask)>"
    r"|[<\[(]/?\|?/?[\w:｜▁ -]*(?:think|tool|function|call|inst|system"
    r"|assistant|user|turn|image|audio|video)[\w:｜▁ -]*\|?[>\])]",
    re.IGNORECASE,
)

_FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")


@dataclass(frozen=True)
class AddedToken:
    """An entry of tokenizer.json's added_tokens; the flags mean what they mean there."""

    id: int
    content: str
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False


def is_control(token: AddedToken, template: str, special_strings: Iterable[str]) -> bool:
    """Whether the token is structure that data must never reach (the definition, in one place).

    It is, if the file calls it special, if it is a BOS/EOS-like string of the configuration, or if
    it has the shape of a marker; and if the template spells it, unless it is made of letters,
    digits or blanks alone (some vocabularies add single letters).
    """
    if token.special or token.content in special_strings or _MARKER.fullmatch(token.content):
        return True
    looks_like_text = all(c.isalnum() or c.isspace() or c in "▁Ġ" for c in token.content)
    return not looks_like_text and token.content in template


def read_json(path: Path, *, required: bool = True) -> dict[str, Any]:
    """The JSON object in a tokenizer's file. Raises TokenizerError, naming the file."""
    try:
        value = msgspec.json.decode(path.read_bytes().removeprefix(codecs.BOM_UTF8))
    except FileNotFoundError:
        if not required:
            return {}
        raise TokenizerError(
            f"{path} is missing: give the folder that holds the model's tokenizer files"
        ) from None
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise TokenizerError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value


def special_strings(config: dict[str, Any]) -> dict[str, str]:
    """bos_token, eos_token and the like as strings: what a template is given by name."""
    named = {}
    for key in SPECIAL_KEYS:
        value = config.get(key)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            named[key] = value
    return named


def added_tokens(spec: dict[str, Any], config: dict[str, Any]) -> list[AddedToken]:
    """The added tokens of tokenizer.json. A token is special if either file says so."""
    decoder = config.get("added_tokens_decoder") or {}
    tokens = []
    for entry in spec.get("added_tokens") or []:
        try:
            flags = {flag: bool(entry.get(flag)) for flag in _FLAGS}
            flags["special"] |= bool(decoder.get(str(entry["id"]), {}).get("special"))
            tokens.append(AddedToken(id=entry["id"], content=entry["content"], **flags))
        except (AttributeError, KeyError, TypeError):
            raise TokenizerError(f"tokenizer.json has a broken added token: {entry!r}") from None
    return tokens


def without_control(spec: dict[str, Any], control: Iterable[str]) -> dict[str, Any]:
    """A copy of tokenizer.json that does not know the control tokens."""
    gone = set(control)
    kept = [e for e in spec.get("added_tokens") or [] if e["content"] not in gone]
    return {
        **spec,
        "added_tokens": kept,
        "pre_tokenizer": copy.deepcopy(spec.get("pre_tokenizer")),
        "post_processor": None,
    }


def drop_first_prefix(pre_tokenizer: Any) -> bool:
    """Set Metaspace's "first" to "never", in place; whether there was one."""
    if not isinstance(pre_tokenizer, dict):
        return False
    if pre_tokenizer.get("type") == "Metaspace" and pre_tokenizer.get("prepend_scheme") == "first":
        pre_tokenizer["prepend_scheme"] = "never"
        return True
    dropped = [drop_first_prefix(part) for part in pre_tokenizer.get("pretokenizers") or []]
    return any(dropped)


def build(spec: dict[str, Any]) -> tokenizers.Tokenizer:
    """Raises TokenizerError if `tokenizers` does not understand the file."""
    try:
        built = tokenizers.Tokenizer.from_str(msgspec.json.encode(spec).decode())
    except Exception as error:  # tokenizers raises bare Exception
        raise TokenizerError(f"tokenizer.json is not understood: {error}") from None
    built.no_truncation()
    built.no_padding()
    return built
