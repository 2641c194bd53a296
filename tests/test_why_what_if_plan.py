"""Plans as they are written on the command line."""

import pytest
from what_if_cases import CLOCK, DROP

from duramen.experiments.why.what_if.plan import Plan
from duramen.layout.errors import LayoutError


@pytest.mark.parametrize(
    "text",
    [
        "",
        "drop",
        "drop-tool-outputs",
        "drop-tool-outputs:k=0",
        "drop-tool-outputs:k=-1",
        "drop-tool-outputs:k=",
        "drop-tool-outputs:k=1,k=2",
        "drop-tool-outputs:tokens=3",
        "drop-tool-outputs:k=99999999999999999999",
        "drop-tool-outputs:k=\u00b2",
        "truncate:tokens=0",
        "truncate:tokens=nan",
        "move-clock:k=1",
        "sort-tools:",
    ],
)
def test_what_is_no_plan(text: str) -> None:
    with pytest.raises(LayoutError, match="what-if"):
        Plan.parse(text)


def test_plans() -> None:
    for label in ("drop-tool-outputs:k=3", "truncate:tokens=500", "move-clock", "sort-tools"):
        assert Plan.parse(label).label == label
    with pytest.raises(LayoutError, match="takes no parameter"):
        Plan(CLOCK.name, 3)
    with pytest.raises(LayoutError, match="needs k=N"):
        Plan(DROP.name)
