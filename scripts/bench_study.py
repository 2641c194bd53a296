"""Times a study of 10,000 calls of 50,000 tokens each on average, and its peak memory.

Synthetic sessions: 50 calls each, a reply of some 200 tokens and an observation of some 1,300 in
each call, so that prompts grow from 2,400 to 100,000 tokens.
"""

import random
import resource
import sys
import time
from collections.abc import Iterator

from duramen.experiments.layouts.catalogue import Layout
from duramen.experiments.opening import load_model
from duramen.experiments.prices.own_gpu import packaged_gpus
from duramen.experiments.prices.read import packaged_book
from duramen.experiments.study.arms import Arm
from duramen.experiments.study.schedule import Pace, with_times
from duramen.experiments.study.study import Study
from duramen.experiments.trajectory import Call, Message, Session
from duramen.serving.models import fetch

NUM_SESSIONS, NUM_CALLS = 200, 50
WORDS = [
    "the",
    "cache",
    "of",
    "a",
    "prompt",
    "holds",
    "what",
    "was",
    "read",
    "before",
    "it",
    "error",
]


def main() -> None:
    layout = Layout.parse(sys.argv[1] if len(sys.argv) > 1 else "stable")
    num_sessions = int(sys.argv[2]) if len(sys.argv) > 2 else NUM_SESSIONS
    model = load_model(fetch("smollm2", print), None)
    sessions = with_times(list(made_sessions(num_sessions)), Pace())
    started_s = time.perf_counter()
    entries = list(packaged_book())
    [result] = Study(sessions, model, [Arm(16)], packaged_gpus(), entries).run([layout])
    elapsed_s = time.perf_counter() - started_s
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    mean = result.prompt_tokens / result.num_calls
    print(
        f"{layout.label}: {result.num_calls:,} calls of {mean:,.0f} tokens on average, "
        f"{len(entries)} prices: {elapsed_s:.1f} s, peak memory {peak_gib:.2f} GiB"
    )


def made_sessions(num_sessions: int) -> Iterator[Session]:
    for number in range(num_sessions):
        draw = random.Random(number)
        messages: list[Message] = [
            {"role": "system", "content": text(random.Random("root"), 1_700)},
            {"role": "user", "content": text(draw, 100)},
        ]
        calls = []
        for _ in range(NUM_CALLS):
            reply = {"role": "assistant", "content": text(draw, 150)}
            calls.append(Call(tuple(messages), reply))
            messages += [reply, {"role": "user", "content": text(draw, 1_020)}]
        yield Session(f"session {number}", tuple(calls))


def text(draw: random.Random, num_words: int) -> str:
    words = draw.choices(WORDS, k=num_words)
    return " ".join(
        word if i % 7 else f"{word} {draw.randrange(10**4)}" for i, word in enumerate(words)
    )


if __name__ == "__main__":
    main()
