"""The recorded sessions that come with the package."""

from importlib.resources import files
from pathlib import Path


def demo_paths() -> list[Path]:
    """The JSONL files of the demo set, by name; read them with importers.read.read_sessions."""
    folder = Path(str(files("duramen.experiments").joinpath("demo")))
    return sorted(folder.glob("*.jsonl"))
