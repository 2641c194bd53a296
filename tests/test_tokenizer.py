"""layout.tokenizer: ids equal those of transformers, except where data spells a control token."""

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from duramen.layout.errors import TokenizerError
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tokenizer_files import AddedToken, is_control, read_json
from duramen.layout.tracked import TEMPLATE, Tracked, concat

TEXTS = [
    "a",
    "B",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\t",
    ".",
    "'s",
    "é",
    "e\u0301",
    "日本",
    "🎉",
    "123",
    "<|",
    "|>",
    "</",
    '{"k": 1}',
    "\r\n",
    "Ω",
    "ß",
    "\u200b",
    "\u202e",
    "\x00",
    "hello",
    " the",
    "\u00a0",
    "\x1c",
]


def own(text: str) -> Tracked:
    return Tracked.data(text, TEMPLATE)


def data(text: str) -> Tracked:
    return Tracked.data(text, 1)


def sample(random: Random, pieces: list[str]) -> str:
    return "".join(random.choice(pieces) for _ in range(random.randint(1, 12)))


@pytest.fixture(scope="module")
def loaded(tokenizer_folders: dict[str, Path]) -> dict[str, Tokenizer]:
    return {name: Tokenizer.load(folder) for name, folder in tokenizer_folders.items()}


def test_ids_equal_transformers(
    tokenizer_folders: dict[str, Path], loaded: dict[str, Tokenizer]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoTokenizer
    random = Random(1)
    for name, tokenizer in loaded.items():
        reference = AutoTokenizer.from_pretrained(tokenizer_folders[name])
        added = [token.content for token in tokenizer.added]
        pieces = [*TEXTS * (1 + len(added) // 30), *added]
        for _ in range(200):
            text = sample(random, pieces)
            expected = reference(text, add_special_tokens=False)["input_ids"]
            assert tokenizer.encode(own(text)).token_ids == expected, (name, text)


def test_control_tokens_in_data_stay_plain(loaded: dict[str, Tokenizer]) -> None:
    random = Random(2)
    for name, tokenizer in loaded.items():
        controls = list(tokenizer.control)
        for _ in range(150):
            text = sample(random, [*TEXTS, *controls * 3])
            encoded = tokenizer.encode(data(text))
            assert not set(encoded.token_ids) & tokenizer.control_ids, (name, text)
            assert all(spelling in text for spelling in encoded.plain)
            assert bool(encoded.plain) == any(c in text for c in controls), (name, text)


def test_a_spelling_half_template_half_data_stays_plain(loaded: dict[str, Tokenizer]) -> None:
    for tokenizer in loaded.values():
        for content in tokenizer.control:
            for cut in range(1, len(content)):
                for halves in ((own, data), (data, own)):
                    text = concat([halves[0](content[:cut]), halves[1](content[cut:])])
                    encoded = tokenizer.encode(text)
                    assert not any(section.control for section in encoded.sections) or any(
                        other != content and other in content for other in tokenizer.control
                    )


def test_text_that_no_encoder_likes(loaded: dict[str, Tokenizer]) -> None:
    """Lone surrogates, a megabyte in one go: an id list or one clear error, never a traceback."""
    tokenizer = loaded["smollm2"]
    long = "word " * 200_000
    assert len(tokenizer.encode(data(long)).token_ids) == 200_001
    for text in ("\x00", "\u202e", "\u200b" * 5, "\ufeff"):
        assert tokenizer.decode(tokenizer.encode(data(text)).token_ids) == text
    with pytest.raises(TokenizerError, match="surrogate"):
        tokenizer.encode(data("a\ud800b"))


@pytest.mark.parametrize(
    ("token", "template", "expected"),
    [
        (AddedToken(1, "</x>", special=True), "", True),
        (AddedToken(1, "<s>"), "", True),
        (AddedToken(1, "<|end|>"), "", True),
        (AddedToken(1, "<｜end▁of▁sentence｜>"), "", True),
        (AddedToken(1, "<think>"), "", True),
        (AddedToken(1, "</tool_call>"), "", True),
        (AddedToken(1, "[INST]"), "", True),
        (AddedToken(1, "<x>"), "{{ '<x>' }}", True),  # the template spells it
        (AddedToken(1, "<x>"), "", False),
        (AddedToken(1, "END"), "", True),  # the configuration's EOS
        (AddedToken(1, "e"), "{{ message }}", False),  # letters alone, whatever the template says
        (AddedToken(1, "    "), "{{    message }}", False),
        (AddedToken(1, "ö"), "", False),
    ],
)
def test_what_a_control_token_is(token: AddedToken, template: str, expected: bool) -> None:
    assert is_control(token, template, ["END"]) is expected


def test_ordinary_added_tokens_are_no_control_tokens(loaded: dict[str, Tokenizer]) -> None:
    if "deepseek-coder" not in loaded:
        pytest.skip("deepseek-coder's tokenizer is not here")
    tokenizer = loaded["deepseek-coder"]
    assert len(tokenizer.ordinary) == 247
    text = "".join(token.content for token in tokenizer.ordinary)
    assert tokenizer.encode(data(text)).token_ids == tokenizer.encode(own(text)).token_ids


# -- variants of SmolLM2 --


@pytest.fixture(scope="module")
def variant(smollm2: Path) -> Callable[..., tuple[Tokenizer, tokenizers.Tokenizer]]:
    """SmolLM2 with other flags on <|im_end|>: ours and the reference."""
    spec = read_json(smollm2 / "tokenizer.json")

    def make(**flags: bool) -> tuple[Tokenizer, tokenizers.Tokenizer]:
        added = [
            {**entry, **(flags if entry["content"] == "<|im_end|>" else {})}
            for entry in spec["added_tokens"]
        ]
        changed = {**spec, "added_tokens": added}
        return Tokenizer(changed, {}), tokenizers.Tokenizer.from_str(json.dumps(changed))

    return make


@pytest.mark.parametrize(
    "flags",
    [{"rstrip": True}, {"lstrip": True}, {"lstrip": True, "rstrip": True}, {"single_word": True}],
    ids=str,
)
def test_flags_of_control_tokens(
    variant: Callable[..., tuple[Tokenizer, tokenizers.Tokenizer]], flags: dict[str, bool]
) -> None:
    ours, reference = variant(**flags)
    random = Random(3)
    pieces = [
        "<|im_end|>",
        "<|im_end|>",
        "<|im_start|>",
        " ",
        "\n",
        "\t\u3000",
        "\x1c",
        "\x85",
        "a",
        "_",
        "é",
        ".",
    ]
    for _ in range(600):
        text = sample(random, pieces)
        expected = reference.encode(text, add_special_tokens=False).ids
        assert ours.encode(own(text)).token_ids == expected, text


def test_bos_of_the_template_is_not_doubled(smollm2: Path) -> None:
    spec = read_json(smollm2 / "tokenizer.json")
    post = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {
            "<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}
        },
    }
    tokenizer = Tokenizer({**spec, "post_processor": post}, {"bos_token": "<|im_start|>"})
    assert tokenizer.full.encode("a").ids[0] == 1
    assert tokenizer.encode(own("<|im_start|>a")).token_ids.count(1) == 1
    assert tokenizer.encode(own("a")).token_ids.count(1) == 0


# -- tiny tokenizers of other kinds --


def added(token_id: int, content: str, **flags: bool) -> dict[str, Any]:
    defaults = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    return {"id": token_id, "content": content, "special": True, **defaults, **flags}


def as_spec(tokenizer: tokenizers.Tokenizer, *tokens: dict[str, Any]) -> dict[str, Any]:
    return {**json.loads(tokenizer.to_str()), "added_tokens": list(tokens)}


def check_equal(spec: dict[str, Any], pieces: list[str]) -> Tokenizer:
    ours, reference = Tokenizer(spec, {}), tokenizers.Tokenizer.from_str(json.dumps(spec))
    random = Random(4)
    for _ in range(400):
        text = sample(random, pieces)
        assert ours.encode(own(text)).token_ids == reference.encode(text).ids, text
    return ours


def test_unigram_whose_vocabulary_spells_a_control_token() -> None:
    vocab = [("<unk>", 0.0), ("</s>", -0.1), *((c, -3.0) for c in "</s>ab▁"), ("ab", -2.0)]
    bare = tokenizers.Tokenizer(models.Unigram(vocab, unk_id=0, byte_fallback=False))
    bare.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    spec = as_spec(bare, added(0, "<unk>"), added(1, "</s>"))
    tokenizer = check_equal(spec, ["a", "b", " ", "</s>", "<", "s", ">", "a</s>b"])
    encoded = tokenizer.encode(data("ab</s>ab"))
    assert encoded.plain == ("</s>",)
    assert 1 not in encoded.token_ids
    assert "".join(map(tokenizer.token_text, encoded.token_ids)) == "▁ab</s>ab"


def test_word_piece_that_lowers_letters() -> None:
    words = ["[UNK]", "[CLS]", "[SEP]", "hello", "world", "##s", "[", "]", "cls", "sep", "é", "e"]
    bare = tokenizers.Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    bare.normalizer = normalizers.BertNormalizer(lowercase=True)
    bare.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    spec = as_spec(bare, added(0, "[UNK]"), added(1, "[CLS]"), added(2, "[SEP]"))
    tokenizer = check_equal(
        spec, ["Hello", "worlds", " ", "[CLS]", "[SEP]", "[cls]", "É", "[", "]"]
    )
    assert tokenizer.encode(data("[CLS] HELLO")).token_ids == [6, 8, 7, 3]


def test_normalizer_that_composes() -> None:
    vocab = {"a": 0, "é": 1, "e": 2, "\u0301": 3, "<x>": 4, "<": 5, "x": 6, ">": 7}
    bare = tokenizers.Tokenizer(models.BPE(vocab, []))
    bare.normalizer = normalizers.NFC()
    tokenizer = check_equal(
        as_spec(bare, added(4, "<x>")), ["a", "e", "\u0301", "é", "<x>", "<", "x"]
    )
    assert tokenizer.encode(data("e\u0301<x>")).token_ids == [1, 5, 6, 7]


# -- decoding and errors --


def test_token_prefix_is_the_longest_head_that_fits(loaded: dict[str, Tokenizer]) -> None:
    tokenizer, random = loaded["smollm2"], Random(5)
    for _ in range(100):
        text = sample(random, TEXTS)
        token_ids = tokenizer.encode(data(text)).token_ids
        wanted = text[: random.randint(0, len(text))]
        head = tokenizer.token_prefix(token_ids, wanted)
        slow = [
            n
            for n in range(len(token_ids) + 1)
            if wanted.startswith(tokenizer.decode(token_ids[:n]))
        ]
        assert head == token_ids[: max(slow)], (text, wanted)


def broken_folders() -> Iterator[tuple[dict[str, str], str]]:
    yield {}, r"tokenizer\.json is missing: give the folder"
    yield {"tokenizer.json": "{"}, r"tokenizer\.json cannot be read as JSON"
    yield {"tokenizer.json": "[]"}, r"tokenizer\.json must hold a JSON object, not list"
    yield {"tokenizer.json": "[" * 100_000}, r"tokenizer\.json cannot be read as JSON"
    yield {"tokenizer.json": '{"model": {"type": "Magic"}}'}, r"tokenizer\.json is not understood"
    yield {"tokenizer.json": '{"model": {"dropout": 0.1}}'}, "BPE dropout"
    yield {"tokenizer.json": '{"model": 3}'}, r"tokenizer\.json describes no model"
    broken = '{"model": {}, "added_tokens": [{"id": 1}]}'
    yield {"tokenizer.json": broken}, r"tokenizer\.json has a broken added token: {'id': 1}"
    yield {"tokenizer.json": "{}", "tokenizer_config.json": "nonsense"}, r"tokenizer_config\.json"


@pytest.mark.parametrize(("files", "message"), [*broken_folders()])
def test_broken_folders_give_one_line(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(TokenizerError, match=message) as raised:
        Tokenizer.load(tmp_path).encode(data("a"))
    assert "\n" not in str(raised.value)
