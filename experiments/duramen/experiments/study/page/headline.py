"""The answer in one glance: sentences and the columns of the headline table."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from duramen.experiments.study.page import figures
from duramen.experiments.study.page.cells import Cells
from duramen.experiments.study.page.view import LayoutView, StudyView, mapping, number

KV_UNITS = ((1e15, "PB·s"), (1e12, "TB·s"), (1e9, "GB·s"), (1e6, "MB·s"), (1.0, "B·s"))


@dataclass(frozen=True)
class Column:
    """A column of the headline table: its cell and its head."""

    cell: str
    head: str


def headline(study: StudyView, cells: Cells) -> list[Column]:
    """Fills the cells of the table; columns without any figure are left out."""
    columns = [*_tokens(study, cells), *_usd(study, cells), *_seconds(study, cells)]
    columns += _kv(study, cells)
    if study.arms:
        cells.add("glance", ["arm"], lambda arm: glance(study, study.arms[arm]))
    cells.add("bill", ["model"], lambda model: bill(study, study.models[model]))
    return [column for column in columns if column.cell in cells]


def glance(study: StudyView, arm: str) -> str:
    """Who computes least and most, and the least of those that are assumed."""
    known = [
        each
        for each in study.by_uncached(arm)
        if each.has_effect and each.arm(arm).uncached_tokens is not None
    ]
    if not known:
        return "No layout has figures for this engine."
    least = known[0].arm(arm).uncached_tokens or 0
    first = [each for each in known if each.arm(arm).uncached_tokens == least]
    prompt = {each.arm(arm).prompt_tokens for each in first}
    sent = f" of {prompt.pop():,} prompt tokens" if len(prompt) == 1 and None not in prompt else ""
    verb = "computes" if len(first) == 1 else "compute"
    said = [f"Fewest uncached tokens: {_names(first)} {verb} {least:,}{sent}."]
    most = known[-1].arm(arm).uncached_tokens or 0
    if most > least:
        last = [each for each in known if each.arm(arm).uncached_tokens == most]
        said.append(f"Most: {_names(last)} with {most:,}{_times(most, least)}.")
    assumed = next((each for each in known if each.is_assumed), None)
    if assumed is not None and assumed not in first:
        tokens = assumed.arm(arm).uncached_tokens or 0
        said.append(
            f"Of the assumed layouts {_name(assumed)} computes least: {tokens:,}"
            f"{_times(tokens, least)}."
        )
    return " ".join(said)


def bill(study: StudyView, model: str) -> str:
    """Whose bill is lowest and highest, which need not be who computes least and most."""
    taken = [each for each in study.layouts if each.has_effect]
    found = [(figures.money(each.usd.get(model)), each) for each in taken]
    known = sorted(((usd, each) for usd, each in found if usd is not None), key=lambda e: e[0])
    if not known:
        return f"No layout has a price for {figures.isolated(model)}."
    least, most = known[0][0], known[-1][0]
    first = _names([each for usd, each in known if usd == least])
    said = f"Lowest bill from {figures.isolated(model)}: {figures.usd(least)} for {first}"
    if most == least:
        return f"{said}."
    last = _names([each for usd, each in known if usd == most])
    return f"{said}. Highest: {figures.usd(most)} for {last}{_times(most, least, 'much')}."


def _times(value: int | Decimal, least: int | Decimal, much: str = "many") -> str:
    return f", {figures.ratio(float(value) / float(least))} as {much}" if least > 0 else ""


def _names(layouts: Sequence[LayoutView]) -> str:
    names = [_name(each) for each in layouts]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _name(layout: LayoutView) -> str:
    name = figures.isolated(layout.label)
    return f"{name} (assumed)" if layout.is_assumed else name


def _tokens(study: StudyView, cells: Cells) -> list[Column]:
    layouts = study.layouts
    most = [
        max((each.arm(arm).uncached_tokens or 0 for each in layouts), default=0)
        for arm in study.arms
    ]

    def of_arm(name: str) -> list[list[str]]:
        return [
            [figures.count(getattr(each.arm(arm), name)) for each in layouts] for arm in study.arms
        ]

    for name in ("uncached_tokens", "prompt_tokens"):
        cells.add(name, ["arm"], of_arm(name).__getitem__)
    cells.add("calls", ["arm"], lambda arm: [_calls(each, study.arms[arm]) for each in layouts])
    cells.add(
        "hit_rate",
        ["arm"],
        lambda arm: [figures.share(each.arm(study.arms[arm]).hit_rate) for each in layouts],
    )
    for name, part in (("bar_uncached", "uncached"), ("bar_new", "new")):
        cells.add(
            name,
            ["arm"],
            lambda arm, part=part: [
                _bar(each, study.arms[arm], most[arm], part) for each in layouts
            ],
        )
    cells.add("unavoidable", [], lambda: [figures.count(e.min_uncached_tokens) for e in layouts])
    cells.add("breaks", [], lambda: [figures.count(each.num_breaks) for each in layouts])
    return [
        Column("uncached_tokens", "uncached tokens"),
        Column("unavoidable", "of these unavoidable"),
        Column("prompt_tokens", "prompt tokens"),
        Column("hit_rate", "hit rate"),
        Column("breaks", "prefix breaks"),
        Column("calls", "calls"),
    ]


def _bar(layout: LayoutView, arm: str, most: int, part: str) -> str:
    """A width in percent: of uncached tokens, or of the unavoidable among them."""
    tokens = layout.arm(arm).uncached_tokens or 0
    if part == "new":
        tokens = min(tokens, layout.min_uncached_tokens or 0)
    return f"{100 * tokens / most:.4g}%" if most else "0%"


def _calls(layout: LayoutView, arm: str) -> str:
    view = layout.arm(arm)
    if not view.num_skipped:
        return figures.count(view.num_calls)
    return f"{figures.count(view.num_calls)}, {view.num_skipped:,} skipped"


def _usd(study: StudyView, cells: Cells) -> list[Column]:
    def of_model(model: int) -> list[str]:
        name = study.models[model]
        found = [each.usd.get(name) for each in study.layouts]
        return [figures.usd(None if text is None else figures.money(text)) for text in found]

    cells.add("usd", ["model"], of_model)
    return [Column("usd", "dollars")]


def _seconds(study: StudyView, cells: Cells) -> list[Column]:
    def device(layout: LayoutView, arm: int, name: int) -> dict[str, object]:
        found = layout.arm(study.arms[arm]).devices.get(study.devices[name], {})
        return {**mapping(found.get("ttft_s")), "makespan_s": found.get("makespan_s")}

    for key in ("p50", "p95", "makespan_s"):
        cells.add(
            key,
            ["arm", "device"],
            lambda arm, name, key=key: [
                figures.significant(number(device(each, arm, name).get(key)))
                for each in study.layouts
            ],
        )
    return [
        Column("p50", "TTFT p50,\u00a0s"),
        Column("p95", "TTFT p95,\u00a0s"),
        Column("makespan_s", "makespan,\u00a0s"),
    ]


def _kv(study: StudyView, cells: Cells) -> list[Column]:
    known = [each.kv_byte_seconds for each in study.layouts if each.kv_byte_seconds is not None]
    if not known:
        return []
    size, unit = next((u for u in KV_UNITS if max(known) >= u[0]), KV_UNITS[-1])

    def text(layout: LayoutView) -> str:
        value = layout.kv_byte_seconds
        return figures.significant(None if value is None else value / size)

    cells.add("kv", [], lambda: [text(each) for each in study.layouts])
    return [Column("kv", f"KV held,\u00a0{unit}")]
