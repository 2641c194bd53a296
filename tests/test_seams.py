"""layout.seams: a cut that is called proven leaves the ids as they are, in any surroundings."""

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from duramen.layout.encode import Encoder, num_differing
from duramen.layout.seams import SeamProver
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.tokenizer_files import read_json
from duramen.layout.tracked import TEMPLATE, Tracked

PIECES = [
    *"aBz09 \n\n\t.,'\"!{}<>|_-\r/;:()s",
    "  ",
    "\n\n",
    "'s",
    "日",
    "é",
    "🎉",
    "\u0301",
    "\x0b",
    "\x1c",
    "\x85",
    "\u00a0",
    "hello",
    " the",
    "\n ",
    " \n",
]

# Of random cuts, the share that must be proven at least, so that the prover is of use.
FAMILIES = {
    "smollm2": ("gpt2", 0.05),
    "gpt-2": ("gpt2", 0.05),
    "starcoder": ("gpt2", 0.05),
    "deepseek-coder": ("gpt2", 0.05),
    "llama-bpe": ("cl100k", 0.05),
    "qwen2": ("cl100k", 0.05),
    "llama-spm": (None, 0.0),
    "phi-3": (None, 0.0),
}


def sample(random: Random, pieces: list[str], most: int) -> str:
    return "".join(random.choice(pieces) for _ in range(random.randint(1, most)))


@pytest.fixture(scope="module")
def provers(tokenizer_folders: dict[str, Path]) -> dict[str, SeamProver]:
    return {name: SeamProver(Tokenizer.load(folder)) for name, folder in tokenizer_folders.items()}


def test_families(provers: dict[str, SeamProver]) -> None:
    assert {name: prover.family for name, prover in provers.items()} == {
        name: FAMILIES[name][0] for name in provers
    }


def test_proven_seams_hold_in_any_surroundings(provers: dict[str, SeamProver]) -> None:
    random = Random(2)
    for name, prover in provers.items():
        tokenizer = prover.tokenizer
        added = [token.content for token in tokenizer.ordinary]
        pieces = [*PIECES * (1 + len(added) // 60), *added]
        num_cuts = num_proven = 0
        for _ in range(3000):
            around, before, after, behind = (sample(random, pieces, 5) for _ in range(4))
            num_cuts += 1
            if not prover.is_proven(before, after):
                continue
            num_proven += 1
            left, right = around + before, after + behind
            halves = [*tokenizer._encode_plain(left, True), *tokenizer._encode_plain(right, False)]
            assert halves == tokenizer._encode_plain(left + right, True), (name, left, right)
        assert num_proven >= FAMILIES[name][1] * num_cuts, (name, num_proven, num_cuts)
        assert FAMILIES[name][0] or not num_proven


@pytest.mark.parametrize(
    ("before", "after", "proven"),
    [
        ("a", " b", True),
        ("a", "\nb", True),
        (".", " b", True),
        (".", "\nb", True),
        ("a\n", "b", True),  # a lone newline is a word of its own
        ("\n", "b", False),  # it may be the last of several
        ("\n\n", "b", False),
        (" \n", "b", False),
        ("a", "b", False),
        (" ", "b", False),
        (" ", " b", False),
        ("é", " b", False),  # not ASCII: a normalizer might compose
        ("a", "é", False),
        ("", "b", True),
        ("a", "", True),
    ],
)
def test_cuts_of_the_gpt2_family(smollm2: Path, before: str, after: str, proven: bool) -> None:
    assert SeamProver(Tokenizer.load(smollm2)).is_proven(before, after) is proven


@pytest.mark.parametrize(
    "change",
    [
        {"model": {"type": "Unigram"}},
        {"model": {"type": "WordPiece"}},
        {"normalizer": {"type": "Lowercase"}},
        {"normalizer": {"type": "Prepend", "prepend": "▁"}},
        {"pre_tokenizer": None},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"pre_tokenizer": {"type": "ByteLevel", "use_regex": True, "add_prefix_space": True}},
        {
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"Regex": "a"},
                "behavior": "Isolated",
                "invert": False,
            }
        },
    ],
    ids=str,
)
def test_unknown_kinds_prove_nothing(smollm2: Path, change: dict[str, object]) -> None:
    tokenizer = Tokenizer.load(smollm2)
    tokenizer.spec = {**tokenizer.spec, **change}
    prover = SeamProver(tokenizer)
    assert prover.family is None
    assert not prover.is_proven("a", " b")


def test_an_ordinary_added_token_across_the_cut_is_seen(smollm2: Path) -> None:
    spec = read_json(smollm2 / "tokenizer.json")
    token = {
        "id": 49152,
        "content": "a b",
        "special": False,
        "normalized": False,
        "lstrip": False,
        "rstrip": False,
        "single_word": False,
    }
    prover = SeamProver(Tokenizer({**spec, "added_tokens": [*spec["added_tokens"], token]}, {}))
    assert not prover.is_proven("xa", " by")
    assert prover.is_proven("xb", " by")
    greedy = SeamProver(
        Tokenizer({**spec, "added_tokens": [*spec["added_tokens"], {**token, "rstrip": True}]}, {})
    )
    assert greedy.family is None


def cut_somewhere(random: Random, text: str) -> list[int]:
    return sorted(random.randint(0, len(text)) for _ in range(random.randint(0, 4)))


def test_encoder_gives_whole_ids_and_marks_for_any_cuts(provers: dict[str, SeamProver]) -> None:
    random = Random(6)
    for name, prover in provers.items():
        tokenizer = prover.tokenizer
        controls = list(tokenizer.control)[:4]
        for _ in range(250):
            text = Tracked.data(sample(random, [*PIECES, *controls * 2], 20), TEMPLATE)
            cuts = cut_somewhere(random, text)
            encoded = Encoder(prover).encode(text, cuts)
            whole = tokenizer.encode(text)
            assert encoded.token_ids == whole.token_ids, (name, text, cuts)
            assert encoded.marks == [slow_mark(tokenizer, text, cut) for cut in cuts], (name, text)
            assert encoded.num_deviating == 0


def slow_mark(tokenizer: Tokenizer, text: Tracked, cut: int) -> int:
    """Tokens that start before character `cut`."""
    num_tokens = 0
    for section in tokenizer.encode(text).sections:
        if section.control:
            num_tokens += section.start < cut
            continue
        piece = str.__getitem__(text, slice(section.start, section.end))
        starts = tokenizer.token_starts(piece, at_start=section.start == 0)
        assert len(starts) == len(section.token_ids)
        num_tokens += sum(section.start + start < cut for start in starts)
    return num_tokens


def test_independent_pieces_are_encoded_alone_and_counted(provers: dict[str, SeamProver]) -> None:
    random = Random(7)
    for name, prover in provers.items():
        tokenizer = prover.tokenizer
        num_unlike = 0
        for _ in range(200):
            text = Tracked.data(sample(random, PIECES, 12), TEMPLATE)
            cuts = sorted({cut for cut in cut_somewhere(random, text) if 0 < cut < len(text)})
            encoded = Encoder(prover, independent=True).encode(text, cuts)
            bounds = [0, *cuts, len(text)]
            alone = [
                token_id
                for a, b in pairwise(bounds)
                for token_id in tokenizer._encode_plain(str(text)[a:b], a == 0)
            ]
            whole = tokenizer._encode_plain(str(text), True)
            assert encoded.token_ids == alone, (name, text)
            assert encoded.num_deviating == slow_num_differing(alone, whole)
            num_unlike += alone != whole
        assert num_unlike


def slow_num_differing(token_ids: list[int], canonical: list[int]) -> int:
    head = 0
    while head < min(len(token_ids), len(canonical)) and token_ids[head] == canonical[head]:
        head += 1
    token_ids, canonical = token_ids[head:], canonical[head:]
    while token_ids and canonical and token_ids[-1] == canonical[-1]:
        token_ids, canonical = token_ids[:-1], canonical[:-1]
    return len(token_ids)


@pytest.mark.parametrize(
    ("token_ids", "canonical", "expected"),
    [
        ([1, 2, 3], [1, 2, 3], 0),
        ([1, 5, 3], [1, 2, 3], 1),
        ([1, 1], [1], 1),
        ([1], [1, 1], 0),
        ([], [1], 0),
    ],
)
def test_num_differing(token_ids: list[int], canonical: list[int], expected: int) -> None:
    assert num_differing(token_ids, canonical) == expected
