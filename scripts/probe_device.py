"""Measures copies, matrix products and attention of a model's own shapes on one device."""

import argparse
from pathlib import Path

from duramen.cli.output import write_json
from duramen.serving.device_rates import NUM_TOKENS, probe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, metavar="DIR")
    parser.add_argument("--device", choices=[*NUM_TOKENS], default="cuda")
    parser.add_argument("--json", default="-", metavar="FILE")
    chosen = parser.parse_args()
    write_json("probe_device", probe(chosen.model, chosen.device), chosen.json)


if __name__ == "__main__":
    main()
