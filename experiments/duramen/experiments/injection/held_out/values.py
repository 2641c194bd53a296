"""Clocks as the half that is only scored on spells them; ids and counters: more_values."""

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

from duramen.experiments.injection.held_out.more_values import COUNTERS, IDS
from duramen.experiments.injection.held_out.tools import given_tools
from duramen.experiments.injection.values import Stamp, clock, variants

DAYS = ("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag")
MONATE = (
    *("Januar", "Februar", "März", "April", "Mai", "Juni", "Juli", "August"),
    *("September", "Oktober", "November", "Dezember"),
)
MESI = (
    *("gennaio", "febbraio", "marzo", "aprile", "maggio", "giugno", "luglio", "agosto"),
    *("settembre", "ottobre", "novembre", "dicembre"),
)
MAANDEN = (
    *("januari", "februari", "maart", "april", "mei", "juni", "juli", "augustus"),
    *("september", "oktober", "november", "december"),
)
AYLAR = (
    *("Ocak", "Şubat", "Mart", "Nisan", "Mayıs", "Haziran", "Temmuz", "Ağustos"),
    *("Eylül", "Ekim", "Kasım", "Aralık"),
)
MONTHS_RU = (
    *("января", "февраля", "марта", "апреля", "мая", "июня", "июля", "августа"),
    *("сентября", "октября", "ноября", "декабря"),
)
WEEKDAYS_ZH = "一二三四五六日"


def _german(t: datetime) -> str:
    return f"{DAYS[t.weekday()]}, {t.day}. {MONATE[t.month - 1]} {t.year}, {t:%H:%M}"


def _chinese(t: datetime) -> str:
    return f"{t.year}-{t:%m-%d} 星期{WEEKDAYS_ZH[t.weekday()]}"


def _us(t: datetime) -> str:
    half = "AM" if t.hour < 12 else "PM"
    return f"{t.month}/{t.day}/{t.year}, {t.hour % 12 or 12}:{t:%M:%S} {half}"


def _behind(rng: Random) -> tuple[str, str]:
    first = rng.randrange(3, 40)
    return f"{first} min", f"{first + 6} min"


MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
CLOCKS = {
    "German service desk, system head": Stamp(
        "Aktueller Zeitpunkt: {} Uhr (Europe/Berlin).", "system head", clock(_german, 4 * MINUTE)
    ),
    "graph agent's system time, system tail": Stamp(
        "System time: {}",
        "system tail",
        clock(lambda t: f"{t:%Y-%m-%dT%H:%M:%S}.{t.second * 15_873:06d}", timedelta(seconds=8.317)),
    ),
    "Chinese workflow, system middle": Stamp(
        "今天是{}，请根据当前日期回答。", "system middle", clock(_chinese, DAY)
    ),
    "Italian, system tail": Stamp(
        "Oggi è il {}.",
        "system tail",
        clock(lambda t: f"{t.day} {MESI[t.month - 1]} {t.year}", DAY),
    ),
    "Brazilian, user head": Stamp(
        "Data e hora do atendimento: {} (horário de Brasília)",
        "user head",
        clock(lambda t: f"{t:%d/%m/%Y às %H:%M}", 12 * MINUTE),
    ),
    "Dutch, system middle": Stamp(
        "Het is nu {} uur.",
        "system middle",
        clock(lambda t: f"{t.day} {MAANDEN[t.month - 1]} {t.year}, {t:%H:%M}", 2 * MINUTE),
    ),
    "Turkish, user tail": Stamp(
        "Bugünün tarihi: {}",
        "user tail",
        clock(lambda t: f"{t.day} {AYLAR[t.month - 1]} {t.year}", DAY),
    ),
    "Russian, system tail": Stamp(
        "Сейчас {} по московскому времени.",
        "system tail",
        clock(lambda t: f"{t:%H:%M}, {t.day} {MONTHS_RU[t.month - 1]} {t.year} г.", 17 * MINUTE),
    ),
    "Arabic, system head": Stamp(
        "التاريخ والوقت الحالي: {}", "system head", clock(lambda t: f"{t:%Y/%m/%d %H:%M}", HOUR)
    ),
    "editor's environment details, user tail": Stamp(
        "<environment_details>\n# Visible files\nsrc/billing/invoice.ts\n\n# Current time\n"
        "{} (Asia/Tokyo, UTC+9:00)\n</environment_details>",
        "user tail",
        clock(_us, timedelta(seconds=46)),
    ),
    "workflow tool, offset and milliseconds, user head": Stamp(
        "now={} tz=Europe/Madrid",
        "user head",
        clock(lambda t: f"{t:%Y-%m-%dT%H:%M:%S}.{t.second * 13:03d}+01:00", timedelta(seconds=21)),
    ),
    "warehouse refreshed, tool description": Stamp(
        "Tables are live; last refresh at {}+00.",
        "tool description",
        clock(lambda t: f"{t:%Y-%m-%d %H:%M:%S}", 15 * MINUTE),
    ),
    "earliest departure, parameter": Stamp(
        "as YYYY.MM.DD, today or later; today is {}",
        "parameter description",
        clock(lambda t: f"{t:%Y.%m.%d}", DAY),
    ),
    "customer's wall clock, user head": Stamp(
        "[customer local time {}]", "user head", clock(lambda t: f"{t:%H:%M:%S}", 3 * MINUTE)
    ),
    "issued at, JSON, system middle": Stamp(
        '{"session": {"locale": "pl-PL", "issued_at": {}}}',
        "system middle",
        clock(lambda t: str(int(t.timestamp())), timedelta(seconds=73)),
    ),
    "business date, system head": Stamp(
        "Business date: {}. Markets open at 09:00.",
        "system head",
        clock(lambda t: f"{t:%d-%b-%Y}", DAY),
    ),
    "replication lag, tool description": Stamp(
        "Reads a replica that was last synced {} ago.",
        "tool description",
        _behind,
        also=("counter",),
    ),
    "runtime information, system tail": Stamp(
        "<RUNTIME_INFORMATION>\n* repository: /workspace/monorepo\n* date: {} (UTC)\n"
        "</RUNTIME_INFORMATION>",
        "system tail",
        clock(lambda t: f"{t:%a %d %b %Y}", DAY),
    ),
    "written by a prompt service, between sessions": Stamp(
        "# prompt rendered {}",
        "system head",
        clock(lambda t: f"{t:%Y-%m-%d_%H-%M-%S}", 15 * MINUTE),
        across=True,
    ),
    "notebook banner, between sessions": Stamp(
        "Analyst notebook, opened {}",
        "system tail",
        clock(lambda t: f"{t:%A %H:%M}", 15 * MINUTE),
        across=True,
    ),
}

VARIANTS = [
    replace(variant, make=given_tools(variant.make))
    for variant in (
        *variants("clock", CLOCKS),
        *variants("uuid-or-hash", IDS),
        *variants("counter", COUNTERS),
    )
]
