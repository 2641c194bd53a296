"""One offline HTML page of a study: no network, readable without its script, equal for equal input.

Charts are geometry made here and drawn as SVG by the templates; the script only switches between
what is on the page already. Style and script are admitted by their hashes and by nothing else.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

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

PACKAGE = "duramen.experiments.study.page"
LONG = 48  # characters of a label that no layout's own reaches


def render(study: Mapping[str, Any]) -> str:
    """The page of a study's JSON (Report.as_json). What is missing is left out or a dash."""
    style, script = _text("page.css"), _text("page.js")
    environment = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "ratio": figures.ratio,
        "count": figures.count,
        "shortened": shortened,
        "breakable": breakable,
    }
    environment.globals |= {"tick_ratio": figures.tick_ratio, "short_count": figures.short_count}
    page = environment.get_template("page.html.jinja").render(
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
        **_content(view(study)),
    )
    return page.encode("utf-8", "replace").decode("utf-8")  # lone surrogates have no bytes


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
        "data": _inline({"cells": cells.as_json(), "orders": orders, "causes": causes}),
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


def _inline(value: Any) -> Markup:
    """JSON that no HTML parser leaves: without <, > and &."""
    text = json.dumps(value, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _text(name: str) -> str:
    return files(PACKAGE).joinpath(name).read_text(encoding="utf-8")
