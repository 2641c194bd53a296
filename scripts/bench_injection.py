"""How often `duramen why` names the right cause, over breaks that were put into real trajectories.

Halves with other wordings, formats, templates and sessions each: `develop`, `opened`, which was
held out until its misses were read, and `held_out`,
which nobody who works on the diagnosis should look into. Without the recorded data beside the
repository only the packaged demo's sessions are mutated, and published templates are left out.

scripts/bench injection; or this file with --half develop --seeds 1 --confusions FILE --json FILE.
"""

import argparse
import json
import time
from pathlib import Path
from typing import get_args

from duramen.experiments.injection.halves import half
from duramen.experiments.injection.lab import Lab
from duramen.experiments.injection.report import Report
from duramen.experiments.injection.scenes import HalfName, half_of, real_sessions, scenes
from duramen.experiments.injection.score import Unfit, Verdict, false_breaks, judged
from duramen.serving.models import fetch

SHARED = Path(__file__).parents[2] / "shared" / "data"
NUM_UNTOUCHED = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=get_args(HalfName), action="append")
    parser.add_argument("--seeds", type=int, default=2, help="cases of each variant")
    parser.add_argument("--cause", action="append", help="only these; for work on one of them")
    parser.add_argument("--confusions", type=Path, help="write what was not right here")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    reports = []
    for name in given.half or get_args(HalfName):
        report = run(name, given.seeds, given.cause)
        print(f"-- {name}\n{report.table()}", flush=True)
        for miss in report.misses():
            print(f"missed: {miss}")
        if given.confusions:
            given.confusions.write_text(f"{report.table()}\n\n{report.confusions()}\n", "utf-8")
        reports.append(report.as_json())
    if given.json:
        given.json.write_text(json.dumps(reports, indent=1) + "\n", "utf-8")


def run(name: HalfName, seeds: int, causes: list[str] | None) -> Report:
    start_s = time.perf_counter()
    shared = SHARED if SHARED.is_dir() else None
    sessions = half_of(real_sessions(shared), name)
    chosen = half(name)
    lab = Lab(fetch("smollm2"), chosen.own, shared)
    variants = [v for v in chosen.variants if not causes or str(v.cause) in causes]
    first = 1_000 * get_args(HalfName).index(name)
    made = list(judged(variants, list(scenes(sessions)), lab, range(first, first + seeds)))
    num, found = (0, []) if causes else false_breaks(sessions, lab, NUM_UNTOUCHED)
    return Report(
        name,
        [each for each in made if isinstance(each, Verdict)],
        [each for each in made if isinstance(each, Unfit)],
        num,
        found,
        time.perf_counter() - start_s,
    )


if __name__ == "__main__":
    main()
