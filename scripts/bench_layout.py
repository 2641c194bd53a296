"""Times one turn of a long agent transcript: layout and encoding, against transformers.

The transcript has 200 messages and 100,000 tokens: sampled replies and tool results cut from this
repository's source. A turn takes in the engine's reply and adds a tool result of 500 tokens;
transformers renders and encodes all messages. Both do it in each round, in turn; medians of the
rounds are shown, and the ratio is the median of the rounds' ratios.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

from duramen.layout.template import ChatTemplate, Message
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.transcript import Transcript
from duramen.serving.models import fetch
from duramen.serving.probe import cpu_name

NUM_MESSAGES = 200
NUM_TOKENS = 100_000
NEW_TOKENS = 500
TOOLS = [{"type": "function", "function": {"name": "read", "description": "Read a file"}}]

Turn = tuple[list[int], Message, Message]  # ids that the model gives, that reply, the tool result


def turns(tokenizer: Tokenizer, num_tokens: int) -> Iterator[Turn]:
    """Endless; reply and result have about `num_tokens` tokens together."""
    random = Random(7)
    sources = sorted(Path(__file__).parents[1].glob("*/duramen/*/*.py"))
    lines = [line for source in sources for line in source.read_text("utf-8").splitlines(True)]
    end = tokenizer.control["<|im_end|>"].id

    def text(num_tokens: int) -> str:
        start = random.randrange(len(lines) - num_tokens)
        ids = tokenizer.encode_text("".join(lines[start : start + num_tokens]))
        return tokenizer.decode(ids[:num_tokens])

    while True:
        reply: Message = {"role": "assistant", "content": text(num_tokens - NEW_TOKENS)}
        token_ids = [*tokenizer.encode_text(reply["content"]), end]
        yield token_ids, reply, {"role": "tool", "content": text(NEW_TOKENS)}


def measure(num_rounds: int) -> dict[str, Any]:
    directory = fetch("smollm2", lambda line: None)
    source = (files("duramen.configs") / "chatml_tools.jinja").read_text("utf-8")
    # The replies' ids come from a tokenizer of their own: nothing is in the cache beforehand.
    script = turns(Tokenizer.load(directory, source), 2 * NUM_TOKENS // NUM_MESSAGES)
    transcript = Transcript(Tokenizer.load(directory, source), ChatTemplate(source), tools=TOOLS)
    reference = AutoTokenizer.from_pretrained(directory, chat_template=source)

    transcript.start([{"role": "user", "content": "Mend the bug."}])
    while len(transcript.messages) < NUM_MESSAGES - 1 or len(transcript.token_ids) < NUM_TOKENS:
        token_ids, reply, result = next(script)
        transcript.sampled(token_ids, reply)
        transcript.extend([result])
    rounds = [one_round(transcript, reference, next(script)) for _ in range(num_rounds)]
    return {
        "num_messages": len(transcript.messages),
        "prompt_tokens": len(transcript.token_ids),
        "num_deviations": len(transcript.deviations),
        "duramen_ms": median(ours for ours, _ in rounds) * 1e3,
        "transformers_ms": median(theirs for _, theirs in rounds) * 1e3,
        "transformers_over_duramen": median(theirs / ours for ours, theirs in rounds),
    }


def one_round(transcript: Transcript, reference: Any, turn: Turn) -> tuple[float, float]:
    """Seconds for the same turn: ours, transformers'."""
    token_ids, reply, result = turn
    started = time.perf_counter()
    transcript.sampled(token_ids, reply)
    prompt = transcript.extend([result])
    ours = time.perf_counter() - started

    messages = list(transcript.messages)
    started = time.perf_counter()
    whole = reference.apply_chat_template(
        messages, tools=TOOLS, add_generation_prompt=True, return_dict=False
    )
    theirs = time.perf_counter() - started
    # A reply cut off in the middle of a word is canonical to neither: the ids may differ there.
    assert abs(len(whole) - len(prompt.token_ids)) < len(whole) / 100
    return ours, theirs


def as_table(result: dict[str, Any]) -> Table:
    title = f"One turn at {result['prompt_tokens']:,} tokens, {result['num_messages']} messages"
    table = Table(title=f"{title}\n{result['machine']}")
    for column in ("duramen", "transformers", "transformers : duramen"):
        table.add_column(column, justify="right")
    table.add_row(
        f"{result['duramen_ms']:.2f} ms",
        f"{result['transformers_ms']:.0f} ms",
        f"{result['transformers_over_duramen']:.0f}",
    )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", choices=["-"], help="print JSON instead of a table")
    arguments = parser.parse_args()
    cpu = f"{cpu_name()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    result = {
        "schema_version": 1,
        "duramen_version": version("duramen"),
        "command": "bench_layout",
        "machine": cpu,
        "model": "smollm2",
        "new_tokens": NEW_TOKENS,
        "num_rounds": arguments.rounds,
        **measure(arguments.rounds),
    }
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        Console().print(as_table(result))


if __name__ == "__main__":
    main()
