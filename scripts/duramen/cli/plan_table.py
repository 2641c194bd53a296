"""What `duramen plan` shows: the front as a table, then the pick, its reasons and its limits."""

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from duramen.experiments.plan.plan import Plan
from duramen.experiments.plan.reasons import as_time
from duramen.experiments.plan.setting import Setting
from duramen.experiments.plan.trial import Trial
from duramen.serving.kv.footprint import KvDtype
from duramen.serving.timing_profile import Errors, TimingProfile
from duramen.serving.vllm.itl_target import SCHEDULER_CLASS

MOST_ROWS = 12

Row = dict[str, str]


def as_page(plan: Plan, profile: TimingProfile, notes: Sequence[str]) -> Group:
    rows = [("pick", plan.pick)]
    if plan.present is not None:
        rows.append(("now", plan.present))
    rows += [("front", each) for each in plan.front if each not in (plan.pick, plan.present)]
    lines = [Text(line) for line in _lines(plan)]
    lines += [Text(f"note: {note}", "yellow") for note in notes]
    if len(rows) > MOST_ROWS:
        lines.insert(0, Text(f"and {len(rows) - MOST_ROWS} more on the front: see --json"))
    return Group(_table(plan, profile, rows[:MOST_ROWS]), *lines)


def _table(plan: Plan, profile: TimingProfile, rows: Sequence[tuple[str, Trial]]) -> Table:
    """Of the settings only what differs between rows."""
    title = f"simulated: {profile.model} on {profile.device}, {profile.engine}, "
    title += f"{profile.origin.value} {profile.date}; {plan.num_tried} settings"
    settings = [_setting(trial.setting) for _, trial in rows]
    differing = [key for key in settings[0] if len({cells[key] for cells in settings}) > 1]
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in ("", *differing, *_figures(plan.pick, profile)):
        table.add_column(column, justify="right" if column else "left")
    for (name, trial), setting in zip(rows, settings, strict=True):
        cells = [setting[key] for key in differing]
        table.add_row(name, *cells, *_figures(trial, profile).values())
    return table


def _setting(setting: Setting) -> Row:
    return {
        "budget": f"{setting.max_num_batched_tokens:,}",
        "long": f"{setting.long_prefill_token_threshold:,}" if _has_threshold(setting) else "-",
        "seqs": str(setting.max_num_seqs),
        "block": str(setting.block_size),
        "KV": setting.kv_dtype.value,
        "target": "-" if setting.itl_target_ms is None else f"{setting.itl_target_ms:g} ms",
    }


def _figures(trial: Trial, profile: TimingProfile) -> Row:
    validation = profile.validation
    ttft, itl = (None, None) if validation is None else (validation.ttft, validation.itl)
    return {
        "TTFT p99": as_time(trial.ttft_p99_s) + _error(ttft),
        "ITL p99": as_time(trial.itl_p99_s) + _error(itl),
        "tok/s": f"{trial.tokens_per_s:,.0f}",
        "good": f"{trial.goodput.share:.1%}",
    }


def _has_threshold(setting: Setting) -> bool:
    return setting.long_prefill_token_threshold > 0


def _error(errors: Errors | None) -> str:
    """What 90 of 100 predictions of held-out calls were within."""
    return "" if errors is None else f" ±{errors.p90:.0%}"


def _lines(plan: Plan) -> Iterator[str]:
    verdict = "the pick keeps the objectives"
    if plan.over:
        missed = [f"{name.upper()} p99 by {over:.0%}" for name, over in plan.over.items()]
        verdict = f"no setting keeps the objectives; the nearest misses {' and '.join(missed)}"
    yield f"{verdict}: {_flags(plan.pick.setting)}"
    yield f"why: {plan.why}"
    yield _limit_line(plan)


def _flags(setting: Setting) -> str:
    flags = [
        f"--max-num-batched-tokens {setting.max_num_batched_tokens}",
        f"--max-num-seqs {setting.max_num_seqs}",
        f"--block-size {setting.block_size}",
    ]
    if _has_threshold(setting):
        flags.append(f"--long-prefill-token-threshold {setting.long_prefill_token_threshold}")
    if setting.kv_dtype is not KvDtype.AUTO:
        flags.append(f"--kv-cache-dtype {setting.kv_dtype.value}")
    if setting.itl_target_ms is not None:
        flags.append(f"--scheduler-cls {SCHEDULER_CLASS}, {setting.itl_target_ms:g} ms")
    return " ".join(flags)


def _limit_line(plan: Plan) -> str:
    if plan.limit is None:
        return "rate: none, answers decide when calls are sent; give --rate to find where it breaks"
    of, now = plan.traffic.rate_of, plan.traffic.rate_per_s
    keeps, breaks = plan.keeps_per_s, plan.breaks_per_s
    if keeps is None:
        return f"rate: the objectives are missed even at {breaks:.3g} {of} per s"
    if breaks is None:
        return f"rate: kept even at {keeps:,.3g} {of} per s: this traffic is too short to break it"
    return (
        f"rate: kept at {keeps:.3g} {of} per s, missed at {breaks:.3g}; this traffic has {now:.3g}"
    )
