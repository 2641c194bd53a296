"""Writes configs/duramen/configs/timing/*.yaml of GPUs that were not measured:

.venv/bin/python scripts/timing_priors.py
"""

from pathlib import Path

from duramen.cli.output import write_text
from duramen.experiments.calibrate.prior import priors

FOLDER = Path(__file__).parents[1] / "configs" / "duramen" / "configs" / "timing"

if __name__ == "__main__":
    for name, profile in priors().items():
        write_text(profile.as_yaml(), FOLDER / f"{name}.yaml")
