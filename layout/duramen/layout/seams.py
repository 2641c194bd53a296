"""Which cuts in a text leave its token ids unchanged, whatever stands around them.

Beside a control token every cut is safe: control tokens are taken out before anything else looks
at the text. Inside ordinary text a cut is safe where the pre-tokenizer always starts a new word
and no longer match could have reached across it. That is decided from the characters at the cut,
for the splitting rules listed here; for any other rule the answer is "not proven".

Both families below scan from left to right without look-behind, so what stands before a word
boundary cannot change what follows it. Let x be the last character before the cut, y the first
after it, both ASCII (no normalizer composes across them).

* "gpt2" (ByteLevel's own rule): words never continue into white space, so x non-blank, y blank
  is a boundary. A lone newline x between two non-blanks is a word of its own.
* "cl100k" (Llama 3, Qwen2 and kin): the same for letters and digits x; punctuation swallows
  following newlines, so after it only a blank that is no newline is safe. A newline x ends its
  word when y is not blank.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from duramen.layout.tokenizer import Tokenizer

# The Split patterns whose words follow the "cl100k" rules above. Digit grouping differs, the
# behaviour at the boundaries that are used here does not.
_CL100K = re.compile(
    r"\(\?i:'s\|'t\|'re\|'ve\|'m\|'ll\|'d\)\|"
    r"\[\^\\r\\n\\p\{L\}\\p\{N\}\]\?\\p\{L\}\+\|"
    r"\\p\{N\}(?:\{1,3\})?\|"
    r" \?\[\^\\s\\p\{L\}\\p\{N\}\]\+\[\\r\\n\]\*\|"
    r"\\s\*\[\\r\\n\]\+\|\\s\+\(\?!\\S\)\|\\s\+"
)
_BLANK = " \t\n\r\v\f"


@dataclass(frozen=True)
class SeamProver:
    tokenizer: Tokenizer

    @cached_property
    def family(self) -> str | None:
        """ "gpt2", "cl100k", or None where no cut inside ordinary text can be proven."""
        spec = self.tokenizer.spec
        if (spec.get("model") or {}).get("type") != "BPE" or not _keeps_ascii(
            spec.get("normalizer")
        ):
            return None
        if any(t.lstrip or t.rstrip or t.single_word for t in self.tokenizer.ordinary):
            return None
        parts = _flatten(spec.get("pre_tokenizer"))
        while parts and parts[0].get("type") == "Digits":
            parts = parts[1:]
        match parts:
            case [{"type": "ByteLevel", "use_regex": True, "add_prefix_space": False}]:
                return "gpt2"
            case [
                {
                    "type": "Split",
                    "pattern": {"Regex": rule},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {"type": "ByteLevel", "use_regex": False, "add_prefix_space": False},
            ] if _CL100K.fullmatch(rule):
                return "cl100k"
        return None

    def is_proven(self, before: str, after: str) -> bool:
        """encode(before) + encode(after) == encode(before + after), in any surroundings.

        Both are ordinary text of one section (no control token between them).
        """
        if not before or not after:
            return True
        x, y = before[-1], after[0]
        if self.family is None or not (x.isascii() and y.isascii()):
            return False
        if any(x + y in token.content for token in self.tokenizer.ordinary):
            return False
        if y in _BLANK:
            return self._word_ends(x, y)
        return self._newline_ends(before, x)

    def _word_ends(self, x: str, y: str) -> bool:
        if x in _BLANK or not x.isprintable():
            return False
        return self.family == "gpt2" or x.isalnum() or y in " \t"

    def _newline_ends(self, before: str, x: str) -> bool:
        if self.family == "cl100k":
            return x in "\r\n"
        lone = len(before) > 1 and before[-2].isprintable() and before[-2] not in _BLANK
        return x == "\n" and lone and before[-2].isascii()


def _flatten(pre_tokenizer: Any) -> list[dict[str, Any]]:
    if not isinstance(pre_tokenizer, dict):
        return []
    if pre_tokenizer.get("type") == "Sequence":
        return [p for part in pre_tokenizer["pretokenizers"] for p in _flatten(part)]
    return [pre_tokenizer]


def _keeps_ascii(normalizer: Any) -> bool:
    """The normalizer changes no ASCII character and composes none with its neighbours."""
    return normalizer is None or normalizer.get("type") in ("NFC", "NFKC")
