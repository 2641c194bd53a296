"""What may be done to a session's prompts, and asked about before it is done.

drop-tool-outputs:k=N  all tool outputs but the newest N are replaced by a line
truncate:tokens=N      tool outputs are cut to N tokens
move-clock             volatile fields of the system message move behind the newest message
sort-tools             tools stand in the order of their names, with their keys in one order
"""

from dataclasses import dataclass
from enum import Enum

from duramen.layout.errors import LayoutError


class PlanName(Enum):
    DROP_TOOL_OUTPUTS = "drop-tool-outputs"
    TRUNCATE = "truncate"
    MOVE_CLOCK = "move-clock"
    SORT_TOOLS = "sort-tools"


PARAMETER = {PlanName.DROP_TOOL_OUTPUTS: "k", PlanName.TRUNCATE: "tokens"}
DOING = {
    PlanName.DROP_TOOL_OUTPUTS: "pruning",
    PlanName.TRUNCATE: "cutting what is there",
    PlanName.MOVE_CLOCK: "moving the volatile fields",
    PlanName.SORT_TOOLS: "sorting the tools",
}
ALWAYS = {
    PlanName.DROP_TOOL_OUTPUTS: "as a rolling rule",
    PlanName.TRUNCATE: "cut when they first appear",
    PlanName.MOVE_CLOCK: "from the first call on",
    PlanName.SORT_TOOLS: "from the first call on",
}


@dataclass(frozen=True)
class Plan:
    """`size`: outputs that are kept, or tokens of each; None where the plan takes none."""

    name: PlanName
    size: int | None = None

    def __post_init__(self) -> None:
        parameter = PARAMETER.get(self.name)
        if parameter is None and self.size is not None:
            raise LayoutError(f"what-if {self.name.value} takes no parameter")
        if parameter is not None and (self.size is None or self.size < 1):
            raise LayoutError(f"what-if {self.name.value} needs {parameter}=N, at least 1")

    @property
    def label(self) -> str:
        parameter = PARAMETER.get(self.name)
        return f"{self.name.value}:{parameter}={self.size}" if parameter else self.name.value

    @property
    def rewrites_outputs(self) -> bool:
        """Whether it shortens what was sent before, once; else it changes every call's root."""
        return self.name in PARAMETER

    @classmethod
    def parse(cls, text: str) -> "Plan":
        """Raises LayoutError for what is no plan."""
        name, colon, rest = text.partition(":")
        try:
            known = PlanName(name)
        except ValueError:
            names = ", ".join(each.value for each in PlanName)
            raise LayoutError(f"unknown what-if {name!r}: take one of {names}") from None
        parameter = PARAMETER.get(known)
        if parameter is None:
            if colon:
                raise LayoutError(f"what-if {name} takes no parameter, and not {rest!r}")
            return cls(known)
        key, _, value = rest.partition("=")
        if key != parameter or not (value.isdecimal() and 0 < int(value[:10]) < 10**9):
            raise LayoutError(f"what-if {name} needs {parameter}=N, at least 1: not {rest!r}")
        return cls(known, int(value))
