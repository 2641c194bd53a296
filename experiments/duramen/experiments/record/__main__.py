"""Records the demo sessions: `python -m duramen.experiments.record OUT_DIR`, from the repo's root.

Needs pytest (extra `dev`): the sessions run it. Writes one JSONL file per scenario into OUT_DIR.
"""

import sys
import time
from pathlib import Path

from duramen.experiments.record.agent import record
from duramen.experiments.record.scenarios.catalog import SCENARIOS
from duramen.layout.errors import DuramenError


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m duramen.experiments.record OUT_DIR", file=sys.stderr)
        return 2
    try:
        next_start_s = time.time()
        for scenario in SCENARIOS:
            path, next_start_s = record(scenario, Path.cwd(), Path(arguments[0]), next_start_s)
            print(path)
    except DuramenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


sys.exit(main(sys.argv[1:]))
