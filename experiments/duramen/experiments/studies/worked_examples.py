"""Six worked examples of what a shorter or cached prefix saves, recomputed.

They are in circulation with rounded formulas, and some with slips. Each figure is given as it was
printed, by the formula that stands beside it, and by the exact model (serving/kv/work.py and
footprint.py) of a published architecture of that size, at the same rate. Times are those of the
FLOPs: bytes are left out, as they were.
"""

from collections.abc import Iterator

from duramen.experiments.studies.example_models import (
    deepseek_v2,
    llama_2_7b,
    llama_3_8b,
    llama_3_70b,
    llama_3_70b_multi_head,
)
from duramen.experiments.studies.figure import Example, Figure
from duramen.serving.kv.arch import Architecture
from duramen.serving.kv.footprint import Footprint
from duramen.serving.kv.work import num_params, prefill_work, textbook_flops

TERA, PETA, GB, GIB, KIB = 1e12, 1e15, 1e9, 2**30, 2**10
H100_PEAK = 989 * TERA  # dense BF16, FLOP/s
H100_BYTES_PER_S = 3.35e12
HALF_H100 = H100_PEAK / 2
HALF_H100_TEXT = "494.5 TFLOP/s: one H100 (989 TFLOP/s dense BF16) at an MFU of 50%"


def worked_examples() -> tuple[Example, ...]:
    return (
        one_prompt(),
        shorter_prompt(),
        distilled_prompt(),
        cached_prompt(),
        kinds_of_attention(),
        retrieved_chunks(),
    )


def one_prompt() -> Example:
    arch, num_layers, hidden_size = llama_3_8b(), 32, 4096
    num_turns, num_tokens, new_tokens, limit_s = 30, 65_536, 512, 9
    cold = sum(textbook_flops(num_layers, hidden_size, num_tokens))
    exact_cold = prefill_work(arch, num_tokens).num_flops
    per_new_token = 24 * num_layers * hidden_size**2 + 4 * num_tokens * num_layers * hidden_size
    exact_turn = prefill_work(arch, new_tokens, num_tokens - new_tokens).num_flops
    num_cached_turns = num_turns - 1
    most_new_tokens = int((limit_s * HALF_H100 - cold) / num_cached_turns / per_new_token)
    return Example(
        title="One prompt, and thirty turns of it",
        model="8B, L = 32, d = 4,096",
        formula="24·M·L·d² + 4·M²·L·d FLOPs for M tokens",
        rate=HALF_H100_TEXT,
        exact_model="Llama-3-8B",
        figures=(
            *_prompt(arch, 8192, "140.7", "25", ("ms", "285")),
            *_prompt(arch, num_tokens, "3,096", "72.7", ("s", "6.26")),
            Figure(
                "from where attention is half of it, M = 6·d",
                "tokens",
                "24,576",
                6 * hidden_size,
                _crossover_tokens(arch),
            ),
            Figure(
                f"{num_turns} turns of {num_tokens:,} tokens, nothing cached",
                "s",
                "188",
                num_turns * cold / HALF_H100,
                num_turns * exact_cold / HALF_H100,
            ),
            Figure(
                f"the same, all but {new_tokens} tokens cached from the second turn on",
                "s",
                f"< {limit_s}",
                (cold + num_cached_turns * new_tokens * per_new_token) / HALF_H100,
                (exact_cold + num_cached_turns * exact_turn) / HALF_H100,
            ),
        ),
        notes=(
            "The textbook lets every token attend to all M. In a causal model a token attends to "
            "those before it, which is half. So attention overtakes the rest later.",
            f"How many tokens are new in a turn was not printed; {new_tokens} are taken here. By "
            "the formula N new tokens cost 24·N·L·d² + 4·N·M·L·d, and the claim holds up to "
            f"N = {most_new_tokens:,}.",
        ),
    )


def _prompt(
    arch: Architecture, num_tokens: int, tflop: str, share: str, time: tuple[str, str]
) -> Iterator[Figure]:
    """FLOPs, attention's share of them and the time, as printed; `time`: unit and number."""
    textbook = textbook_flops(len(arch.layers), arch.hidden_size, num_tokens)
    total, exact = sum(textbook), prefill_work(arch, num_tokens)
    what = f"{num_tokens:,} tokens"
    yield Figure(what, "TFLOP", tflop, total / TERA, exact.num_flops / TERA)
    yield Figure(
        f"{what}, attention's share",
        "%",
        share,
        100 * textbook.attention / total,
        100 * exact.attention_flops / exact.num_flops,
    )
    unit, seconds = time
    rate = HALF_H100 / 1000 if unit == "ms" else HALF_H100
    yield Figure(f"{what}, time", unit, seconds, total / rate, exact.num_flops / rate)


def _crossover_tokens(arch: Architecture) -> int:
    """The shortest prompt of which attention is at least half."""
    low, high = 1, 2**20
    while low < high:
        middle = (low + high) // 2
        work = prefill_work(arch, middle)
        if 2 * work.attention_flops >= work.num_flops:
            high = middle
        else:
            low = middle + 1
    return low


def shorter_prompt() -> Example:
    arch = llama_3_70b()
    figures = []
    for num_tokens, pflop, seconds, gib in (
        (98_304, "39.06", "79.0", "30.0"),
        (24_576, "5.02", "10.15", "7.5"),
    ):
        what = f"{num_tokens:,} tokens"
        flops = 2 * 70e9 * num_tokens + 4 * 80 * 8192 * num_tokens**2
        exact = prefill_work(arch, num_tokens).num_flops
        figures += [
            Figure(what, "PFLOP", pflop, flops / PETA, exact / PETA),
            Figure(f"{what}, time", "s", seconds, flops / HALF_H100, exact / HALF_H100),
            _cache(what, "GiB", gib, 327_680 * num_tokens, _cache_bytes(arch, num_tokens)),
        ]
    return Example(
        title="A prompt cut to a quarter",
        model="70B, L = 80, d = 8,192; 327,680 bytes of keys and values per token",
        formula="2·70e9·N + 4·80·8192·N² FLOPs for N tokens",
        rate=f"{HALF_H100_TEXT}, which the printed times imply",
        exact_model="Llama-3-70B",
        figures=tuple(figures),
        notes=(
            "39.06 does not follow from the formula, which gives 13.76 + 25.33. The printed times "
            "are the printed PFLOPs over 494.5 TFLOP/s, slip and rounding included.",
            "70B does not fit on one H100 in BF16: the times are of the arithmetic alone.",
        ),
    )


def distilled_prompt() -> Example:
    arch = llama_3_70b()
    rate = 8 * 1975 * TERA * 0.45
    figures = []
    for num_tokens, pflop, seconds, gigabytes in (
        (114_688, "63.94", "9.00", "37.58"),
        (3584, "0.957", "0.135", "1.17"),
    ):
        what = f"{num_tokens:,} tokens"
        flops = 48 * 80 * 8192**2 * num_tokens + 4 * 80 * 8192 * num_tokens**2
        right = sum(textbook_flops(80, 8192, num_tokens))
        exact = prefill_work(arch, num_tokens).num_flops
        dense = rate / 2
        figures += [
            Figure(what, "PFLOP", pflop, flops / PETA, exact / PETA, right / PETA),
            Figure(f"{what}, time", "s", seconds, flops / rate, exact / dense, right / dense),
            _cache(what, "GB", gigabytes, 327_680 * num_tokens, _cache_bytes(arch, num_tokens)),
        ]
    return Example(
        title="A prompt distilled to a thirty-second",
        model="70B, L = 80, d = 8,192; 327,680 bytes of keys and values per token",
        formula="48·80·8192²·N + 4·80·8192·N² FLOPs for N tokens; corrected: 24 for 48",
        rate="8 GPUs of 1,975 TFLOP/s at an MFU of 45%; corrected: 8 of 987.5 TFLOP/s at 45%",
        exact_model="Llama-3-70B, at the corrected rate",
        figures=tuple(figures),
        notes=(
            "63.94 does not follow from the formula, which gives 29.55 + 34.48. Over 7,110 TFLOP/s "
            "the sum takes 9.01 s, and 63.94 would take 8.99: 9.00 follows from neither.",
            "48 counts every matrix twice. A layer of the textbook has 12·d² weights, which take "
            "24·d² FLOPs per token.",
            "1,975 TFLOP/s is an H100's BF16 peak with sparsity, which needs weights that are half "
            "zeros. The dense peak is half of it.",
            "The two slips pull in opposite directions. The shorter prompt hides them, the longer "
            "one does not.",
        ),
    )


def cached_prompt() -> Example:
    arch, num_tokens, new_tokens = llama_3_70b(), 24_472, 128
    cold, warm = 2 * 70e9 * num_tokens, 2 * 70e9 * new_tokens
    exact_cold = prefill_work(arch, num_tokens)
    exact_warm = prefill_work(arch, new_tokens, num_tokens - new_tokens)
    rate, right = 0.6 * 3350 * TERA / 1000, 0.6 * H100_PEAK / 1000  # FLOPs per ms
    read_ms = 1000 * exact_warm.num_bytes / H100_BYTES_PER_S
    return Example(
        title="A prompt that is cached but for its end",
        model="70B",
        formula="2·70e9·N FLOPs for N tokens",
        rate="3,350 TFLOP/s at an MFU of 60%; corrected: one H100 (989 TFLOP/s dense BF16) at 60%",
        exact_model="Llama-3-70B, at the corrected rate",
        figures=(
            Figure(
                f"{num_tokens:,} tokens, time",
                "ms",
                "1,704",
                cold / rate,
                exact_cold.num_flops / right,
                cold / right,
            ),
            Figure(
                f"{new_tokens} tokens behind {num_tokens - new_tokens:,}, time",
                "ms",
                "8.9",
                warm / rate,
                exact_warm.num_flops / right,
                warm / right,
            ),
            Figure(
                "faster",
                "times",
                "191",
                cold / warm,
                exact_cold.num_flops / exact_warm.num_flops,
                cold / warm,
            ),
        ),
        notes=(
            "1,704 was cut off, not rounded.",
            "3,350 is an H100's memory bandwidth in GB/s, and no peak of its arithmetic. The ratio "
            "does not depend on it.",
            "That ratio is one of tokens. The new ones attend to the cached ones too, which the "
            "formula leaves out.",
            "Arithmetic is not all that bounds 128 tokens. Reading "
            f"{exact_warm.num_bytes / GB:.0f} GB of weights, keys and values takes {read_ms:.1f} "
            f"ms at the 3.35 TB/s of one H100 and {read_ms / 8:.1f} ms at those of eight.",
        ),
    )


def kinds_of_attention() -> Example:
    num_tokens = 131_072
    per_token, at_length = [], []
    for kind, num_bytes, arch, kib, gigabytes in (
        ("MHA", 2 * 80 * 64 * 128 * 2, llama_3_70b_multi_head(), "2,560", "43"),
        ("GQA", 2 * 80 * 8 * 128 * 2, llama_3_70b(), "320", "42.9"),
        ("MLA", 60 * (512 + 64) * 2, deepseek_v2(), "67.5", "9.06"),
    ):
        exact = Footprint.of(arch).bytes_per_token
        token = Figure(
            f"{kind}, a token", "KiB", kib, num_bytes / KIB, exact / KIB, printed_unit="B"
        )
        per_token.append(token)
        what, total = f"{kind}, {num_tokens:,} tokens", num_bytes * num_tokens
        at_length.append(_cache(what, "GB", gigabytes, total, _cache_bytes(arch, num_tokens)))
    _, gqa, mla = per_token
    deeper = mla.recomputed / 60 * 80
    return Example(
        title="Three kinds of attention",
        model="MHA and GQA: 80 layers, 64 and 8 KV heads of 128; MLA: 60 layers of 512 + 64; BF16",
        formula="2·L·heads·head size·2 bytes per token; MLA: L·(512 + 64)·2",
        rate="none, bytes only",
        exact_model="Llama-3-70B with 64 KV heads and as it is, DeepSeek-V2",
        figures=(
            *per_token,
            *at_length,
            Figure(
                "GQA over MLA",
                "times",
                "4.74",
                gqa.recomputed / mla.recomputed,
                gqa.exact / mla.exact,
            ),
        ),
        notes=(
            "The figures per token were printed as bytes. They are KiB.",
            "43 GB, printed for MHA, is what GQA takes. MHA takes eight times that.",
            f"4.74 compares 80 layers with 60. Over 80 layers MLA takes {deeper:g} KiB, and the "
            f"ratio is {gqa.recomputed / deeper:.2f}.",
        ),
    )


def retrieved_chunks() -> Example:
    arch, tokens_per_s = llama_2_7b(), 50_000
    figures = []
    for num_chunks, milliseconds, gigabytes in ((50, "300", "7.86"), (5, "30", "0.79")):
        what, num_tokens = f"{num_chunks} chunks", 300 * num_chunks
        seconds = num_tokens / tokens_per_s
        exact_s = prefill_work(arch, num_tokens).num_flops / HALF_H100
        num_bytes = 2 * 32 * 32 * 128 * 2 * num_tokens
        figures += [
            Figure(f"{what}, time", "ms", milliseconds, 1000 * seconds, 1000 * exact_s),
            _cache(what, "GB", gigabytes, num_bytes, _cache_bytes(arch, num_tokens)),
        ]
    weights = num_params(arch)
    flops_per_s = 2 * (weights.active - weights.embedding) * tokens_per_s
    quarter = _cache_bytes(llama_3_8b(), 50 * 300)
    return Example(
        title="Fifty retrieved chunks, or five",
        model="L = 32, 32 heads of 128, fp16; chunks of 300 tokens",
        formula="N/50,000 seconds and N·2·32·32·128·2 bytes for N tokens",
        rate="50,000 tokens/s, on a device that was not named",
        exact_model=f"Llama-2-7B; {HALF_H100_TEXT}",
        figures=tuple(figures),
        notes=(
            f"50,000 tokens/s of this model are {flops_per_s / TERA:.0f} TFLOP/s without any "
            f"attention: an MFU of {flops_per_s / H100_PEAK:.0%} on one H100.",
            "One rate for every length leaves out that attention grows with the square.",
            f"With the 8 KV heads of Llama-3-8B, 50 chunks take a quarter: {quarter / GB:.2f} GB.",
        ),
    )


def _cache(what: str, unit: str, printed: str, num_bytes: int, exact_bytes: int) -> Figure:
    unit_bytes = {"GB": GB, "GiB": GIB}[unit]
    return Figure(
        f"{what}, KV cache", unit, printed, num_bytes / unit_bytes, exact_bytes / unit_bytes
    )


def _cache_bytes(arch: Architecture, num_tokens: int) -> int:
    return Footprint.of(arch).bytes_at(num_tokens)
