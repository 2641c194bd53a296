"""The text that `why` shows around a token, and the character at which the token starts."""

from pathlib import Path

import numpy as np
import pytest
import tokenizers
from why_cases import model_of

from duramen.experiments.trajectory import Call, Message
from duramen.experiments.why.around import around, character_of
from duramen.experiments.why.rendering import Renderer
from duramen.layout.tokenizer import Tokenizer

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role ~ ':\n' ~ m.content ~ '\n' }}"
    "{{ eos_token }}{% endfor %}"
)
MESSAGES: list[Message] = [
    {"role": "system", "content": "\u00a0Cafe\u0301  \u65e5\u672c\u8a9e \U0001f600\n\nhe's"},
    {"role": "user", "content": " where? 12:30" + "e\u0301" * 600},
    {"role": "assistant", "content": "l\u00e0-bas\t\u2581\u200bthere"},
]


@pytest.fixture(scope="module")
def folded(smollm2: Path) -> Tokenizer:
    """SmolLM2's, which composes characters and puts a blank before each stretch of text."""
    plain = Tokenizer.load(smollm2)
    parts = [{"type": "NFC"}, {"type": "Prepend", "prepend": " "}]
    normalizer = {"type": "Sequence", "normalizers": parts}
    return Tokenizer(plain.spec | {"normalizer": normalizer}, plain.config, TEMPLATE)


def check_characters(tokenizer: Tokenizer) -> None:
    """Against the offsets of the published tokenizer, over the whole text."""
    renderer = Renderer(model_of(tokenizer, TEMPLATE))
    call = Call(tuple(MESSAGES), None)
    rendered = renderer.render(renderer.setting((), call, 0.0), MESSAGES)
    whole: tokenizers.Encoding = tokenizer.full.encode(
        str.__str__(rendered.text), add_special_tokens=False
    )
    assert rendered.token_ids.tolist() == whole.ids
    found = [character_of(tokenizer, rendered, token) for token in range(len(whole.ids))]
    assert found == [start for start, _ in whole.offsets]


def test_characters_of_tokens_under_a_normalizer(folded: Tokenizer) -> None:
    check_characters(folded)


def test_characters_of_tokens(tokenizer_folders: dict[str, Path]) -> None:
    for folder in tokenizer_folders.values():
        check_characters(Tokenizer.load(folder, TEMPLATE))


def test_no_piece_of_a_character_is_shown_at_the_ends(smollm2: Path) -> None:
    tokenizer = Tokenizer.load(smollm2)
    texts = ["\U0001f9ff" * 40 + "a" + "\U0001f9ff" * 40, "\U0001f9ff" * 40 + "b"]
    before, after = (np.asarray(tokenizer.encode_text(text), np.uint32) for text in texts)
    token = next(i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
    assert around(tokenizer, before, after, token + 1)[0].strip("\U0001f9ff") == "a"
    cut = around(tokenizer, before[: token - 1], after, token - 2)
    assert cut[0].endswith("\ufffd")  # the prompt itself ends within a character
