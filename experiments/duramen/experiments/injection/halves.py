"""The halves: `develop` to develop the diagnosis on, `opened`, which was scored on until its misses
were read, and `held_out`, which is only scored on. They differ in wordings, formats and templates,
and in the sessions and seeds that cases are drawn from."""

from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

from duramen.experiments.injection.cases import Variant
from duramen.experiments.injection.scenes import HalfName

KINDS = ("values", "forms", "tools", "calls", "history", "layers", "blocks", "mixed")


class Half(NamedTuple):
    """`own`: its small templates, by name."""

    variants: tuple[Variant, ...]
    own: Mapping[str, str]


def half(name: HalfName) -> Half:
    kinds = [import_module(f"duramen.experiments.injection.{name}.{kind}") for kind in KINDS]
    variants = [variant for kind in kinds for variant in kind.VARIANTS]
    return Half(tuple(variants), kinds[KINDS.index("layers")].OWN)
