"""One offline HTML page of a study: no network, readable without its script, equal for equal input.

Charts are geometry made here and drawn as SVG by the templates; the script only switches between
what is on the page already.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from markupsafe import Markup, escape

from duramen.experiments.offline_page import inline_json, make_page, read_of
from duramen.experiments.study.page import figures
from duramen.experiments.study.page.about import about
from duramen.experiments.study.page.alignment import alignment_rows
from duramen.experiments.study.page.bounds import bounds_chart
from duramen.experiments.study.page.by_unit import arm_rows, unit_chart
from duramen.experiments.study.page.cells import Cells
from duramen.experiments.study.page.costs import device_heads, device_rows, model_heads, model_rows
from duramen.experiments.study.page.curves import break_even
from duramen.experiments.study.page.headline import headline
from duramen.experiments.study.page.lanes import Lane, session_lanes
from duramen.experiments.study.page.looks import looks
from duramen.experiments.study.page.ratios import token_ratios, usd_ratios
from duramen.experiments.study.page.remarks import remarks
from duramen.experiments.study.page.view import StudyView, unique, view

read = read_of("duramen.experiments.study.page")
LONG = 48  # characters of a label that no layout's own reaches


def render(study: Mapping[str, Any]) -> str:
    """The page of a study's JSON (Report.as_json). What is missing is left out or a dash."""
    filters: dict[str, Callable[..., Any]] = {
        "ratio": figures.ratio,
        "count": figures.count,
        "shortened": shortened,
        "breakable": breakable,
    }
    return make_page(read, read("page.css"), read("page.js"), filters, _content(view(study)))


def _content(study: StudyView) -> dict[str, Any]:
    curves = break_even(study.break_even)
    sessions = session_lanes(study)
    sizes = {"arm": study.arms, "model": study.models, "device": study.devices}
    cells = Cells(
        {choice: len(names) for choice, names in sizes.items()}
        | {"price": len(curves.prices) if curves else 0, "lane": len(sessions)}
    )
    columns = headline(study, cells)
    for choice, names in sizes.items():
        cells.add(choice, [choice], names.__getitem__)
    orders = [[layout.index for layout in study.by_uncached(arm)] for arm in study.arms]
    causes = unique(cause for each in sessions for lane in each.lanes for cause, _ in lane.causes)
    first = study.by_uncached(study.arms[0]) if study.arms else list(study.layouts)
    return {
        "tick_ratio": figures.tick_ratio,
        "short_count": figures.short_count,
        "study": study,
        "looks": looks(layout.label for layout in study.layouts),
        "about": about(study),
        "cells": cells,
        "columns": columns,
        "layouts": first,
        "token_ratios": token_ratios(study),
        "usd_ratios": usd_ratios(study),
        "bounds": bounds_chart(study),
        "units": unit_chart(study),
        "arm_rows": arm_rows(study),
        "alignments": alignment_rows(study),
        "model_heads": model_heads(study),
        "model_rows": model_rows(study, first),
        "device_heads": device_heads(study),
        "device_rows": [device_rows(study, first, arm) for arm in study.arms],
        "curves": curves,
        "remarks": remarks(study),
        "sessions": sessions,
        "lane_data": lambda lane: _lane_data(lane, causes),
        "data": inline_json({"cells": cells.as_json(), "orders": orders, "causes": causes}),
    }


def shortened(label: str, most: int = 28) -> str:
    """Beginning and end of a long label: variants of one layout differ at its end."""
    return label if len(label) <= most else f"{label[: most - 13]}…{label[-12:]}"


def breakable(label: str) -> Markup:
    """A label that may go on in the next line between its parts, and anywhere if it is long."""
    pieces = [escape(piece) for piece in re.split(r"(?<=[,/@])", label)]
    text = Markup("<wbr>").join(pieces)
    return text if len(label) <= LONG else Markup('<span class="long">{}</span>').format(text)


def _lane_data(lane: Lane, causes: tuple[str, ...]) -> str:
    """Calls as [prompt, cached or null] and, where the prefix broke, the index of the cause."""
    places = {cause: index for index, cause in enumerate(causes)}
    rows = [
        [call.prompt, call.cached, *([] if call.broke_at is None else [places[call.broke_at]])]
        for call in lane.calls
    ]
    return json.dumps(rows, separators=(",", ":"))
