"""What was studied, in words, and what a reader must know before comparing totals."""

from collections import Counter
from dataclasses import dataclass

from duramen.experiments.study.page import figures
from duramen.experiments.study.page.view import StudyView, mapping, unique, whole

SHOWN = ("model", "tokenizer", "engine", "device", "unit_tokens")


@dataclass(frozen=True)
class About:
    """`facts`: names and texts in order. `others`: what else stands at the top of the study."""

    title: str
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    others: tuple[tuple[str, str], ...]


def about(study: StudyView) -> About:
    others = [(key, str(each)) for key, each in study.facts.items() if key not in SHOWN]
    facts = [*_engine(study), *_prices(study), *_origins(study)]
    return About(_title(study), tuple(facts), tuple(_warnings(study)), tuple(others))


def _title(study: StudyView) -> str:
    calls = sum(whole(session.get("num_calls")) or 0 for session in study.sessions)
    return (
        f"{_many(calls, 'call')} of {_many(len(study.sessions), 'session')}, "
        f"laid out {_many(len(study.layouts), 'way')}"
    )


def _engine(study: StudyView) -> list[tuple[str, str]]:
    names = {"model": "Model", "tokenizer": "Tokenizer", "engine": "Engine", "device": "Device"}
    facts = [(name, str(study.facts[key])) for key, name in names.items() if key in study.facts]
    unit = whole(study.facts.get("unit_tokens"))
    return facts + ([] if unit is None else [("Match unit", f"{unit:,} tokens")])


def _prices(study: StudyView) -> list[tuple[str, str]]:
    if not study.models:
        return [("Prices", "none")]
    dates = sorted({str(each["date"]) for each in study.prices.values() if each.get("date")})
    when = "no date given" if not dates else f"of {' to '.join(unique([dates[0], dates[-1]]))}"
    return [("Prices", f"{_many(len(study.models), 'model')}, {when}")]


def _origins(study: StudyView) -> list[tuple[str, str]]:
    """Which parts of the sessions were recorded, derived from the recording, or assumed."""
    found: dict[str, Counter[str]] = {}
    for session in study.sessions:
        for part, origin in mapping(session.get("origins")).items():
            found.setdefault(str(origin), Counter())[str(part)] += 1
    return [
        (
            origin.capitalize(),
            ", ".join(_part(*each, len(study.sessions)) for each in parts.items()),
        )
        for origin, parts in sorted(found.items(), key=lambda each: _rank(each[0]))
    ]


def _rank(origin: str) -> tuple[int, str]:
    known = ("recorded", "derived", "assumed")
    return (known.index(origin) if origin in known else len(known), origin)


def _part(name: str, num_sessions: int, of: int) -> str:
    said = {"time_s": "time of each call", "start_time_s": "time of each start"}.get(name)
    said = figures.isolated(name) if said is None else said
    return said if num_sessions == of else f"{said} ({num_sessions:,} of {of:,} sessions)"


def _warnings(study: StudyView) -> list[str]:
    calls = {each.label: each.num_calls for each in study.layouts if each.num_calls is not None}
    most = max(calls.values(), default=0)
    fewer = [f"{label} {number:,}" for label, number in calls.items() if number < most]
    if not fewer:
        return []
    return [
        f"The layouts did not take the same calls ({'; '.join(fewer)}; the others {most:,}), so "
        "their totals are not sums over the same work."
    ]


def _many(number: int, word: str) -> str:
    return f"{figures.count(number)} {word}{'' if number == 1 else 's'}"
