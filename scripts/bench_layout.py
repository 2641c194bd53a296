"""Times one turn of a long agent transcript: layout and encoding, against transformers.

The transcript has about 320 messages and 100,000 tokens: sampled replies and tool results cut from
this repository's source. A turn takes in the engine's reply and adds a tool result of 500 tokens;
transformers renders and encodes all messages. A round is five of our turns and then one of theirs,
at the same length; medians are shown, and the ratio is the median of the rounds' ratios.
"""

import argparse
import platform
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer
from transformers.utils import logging

from duramen.cli.output import write_json
from duramen.layout.template import ChatTemplate, Message
from duramen.layout.tokenizer import Tokenizer
from duramen.layout.transcript import Transcript
from duramen.serving.models import fetch
from duramen.serving.probe import device_name

START_TOKENS = 88_500  # so that the middle round has 100,000
REPLY_TOKENS = 100  # sampled, so never encoded
TURNS_PER_ROUND = 5
NEW_TOKENS = 500
TOOLS = [{"type": "function", "function": {"name": "read", "description": "Read a file"}}]

Turn = tuple[list[int], Message, Message]  # ids that the model gives, that reply, the tool result


def turns(tokenizer: Tokenizer) -> Iterator[Turn]:
    """Endless: a sampled reply of REPLY_TOKENS and a tool result of NEW_TOKENS, about."""
    random = Random(7)
    sources = sorted(Path(__file__).parents[1].glob("*/duramen/*/*.py"))
    lines = [line for source in sources for line in source.read_text("utf-8").splitlines(True)]
    lines = [line for line in lines if not any(c in line for c in tokenizer.control)]
    end = tokenizer.control["<|im_end|>"].id

    def text(num_tokens: int) -> str:
        start = random.randrange(len(lines) - num_tokens)
        ids = tokenizer.encode_text("".join(lines[start : start + num_tokens]))
        # A reply that began with a blank would not have the ids of the same text encoded anew.
        return tokenizer.decode(ids[:num_tokens]).strip()

    while True:
        reply: Message = {"role": "assistant", "content": text(REPLY_TOKENS)}
        token_ids = [*tokenizer.encode_text(reply["content"]), end]
        yield token_ids, reply, {"role": "tool", "content": text(NEW_TOKENS)}


def measure(num_rounds: int) -> dict[str, Any]:
    directory = fetch("smollm2", lambda line: None)
    source = (files("duramen.configs") / "chatml_tools.jinja").read_text("utf-8")
    # The replies' ids come from a tokenizer of their own: nothing is in the cache beforehand.
    script = turns(Tokenizer.load(directory, source))
    transcript = Transcript(Tokenizer.load(directory, source), ChatTemplate(source), tools=TOOLS)
    logging.set_verbosity_error()  # it warns that the model's context is shorter
    reference = AutoTokenizer.from_pretrained(directory, chat_template=source)

    transcript.start([{"role": "user", "content": "Mend the bug."}])
    while len(transcript.token_ids) < START_TOKENS:
        our_turn(transcript, next(script))
    rounds = []
    for _ in range(num_rounds):
        coming = [next(script) for _ in range(TURNS_PER_ROUND)]
        ours = median(our_turn(transcript, turn) for turn in coming)
        num_messages, num_tokens = len(transcript.messages), len(transcript.token_ids)
        rounds.append((ours, their_turn(transcript, reference), num_messages, num_tokens))
    ours, theirs, num_messages, num_tokens = map(median, zip(*rounds, strict=True))
    return {
        "num_messages": num_messages,
        "prompt_tokens": num_tokens,
        "duramen_ms": ours * 1e3,
        "transformers_ms": theirs * 1e3,
        "transformers_over_duramen": median(theirs / ours for ours, theirs, _, _ in rounds),
    }


def our_turn(transcript: Transcript, turn: Turn) -> float:
    """Seconds to take in the reply and to lay out the next prompt."""
    token_ids, reply, result = turn
    started = time.perf_counter()
    transcript.sampled(token_ids, reply)
    transcript.extend([result])
    return time.perf_counter() - started


def their_turn(transcript: Transcript, reference: Any) -> float:
    """Seconds that transformers needs for the last prompt, which must be the same."""
    messages = list(transcript.messages)
    started = time.perf_counter()
    token_ids = reference.apply_chat_template(
        messages, tools=TOOLS, add_generation_prompt=True, return_dict=False
    )
    elapsed = time.perf_counter() - started
    assert token_ids == transcript.token_ids
    return elapsed


def as_table(result: dict[str, Any]) -> Table:
    title = f"One turn at {result['prompt_tokens']:,} tokens, {result['num_messages']} messages"
    table = Table(title=f"{title}\n{result['device']}")
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
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", choices=["-"], help="print JSON instead of a table")
    arguments = parser.parse_args()
    result = {
        "device": device_name(),
        "python": platform.python_version(),
        "model": "smollm2",
        "new_tokens": NEW_TOKENS,
        "num_rounds": arguments.rounds,
        **measure(arguments.rounds),
    }
    if arguments.json:
        write_json("bench layout", result, "-")
    else:
        Console().print(as_table(result))


if __name__ == "__main__":
    main()
