"""Reads profiles from YAML, strictly: an unknown key, one that stands twice or an odd value fails.

A value may bring its reason along: `max_num_seqs: {value: 64, why: ...}`. `based_on: h100` takes
everything that the file does not name from a profile of ours.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from duramen.layout.errors import DuramenError
from duramen.serving.gateway.settings import Limits, PolicySettings, SessionSettings, Settings
from duramen.serving.profiles import Device, EngineFlags, Profile
from duramen.serving.strict_yaml import parse_yaml, read_text
from duramen.serving.vllm.itl_target import ItlTarget

SECTIONS: dict[str, type] = {
    "engine": EngineFlags,
    "device": Device,
    "limits": Limits,
    "sessions": SessionSettings,
    "policies": PolicySettings,
    "itl": ItlTarget,
}
VALUES = ("note", "based_on", "aliases", "history", "chat_template_arguments")
MAY_BE_ZERO = {
    "max_queued",
    "tenant_max_queued",
    "uncached_token_ms",
    "long_prefill_token_threshold",
    "reminder_tokens",
    "warm_roots",
    "overhead_gib",
}
MAY_BE_NONE = ("device", "itl")
MOST = {"gpu_memory_utilization": 1}
MOST_OF_ALL = 2**53

Raw = dict[str, Any]


def profile_names() -> list[str]:
    """The profiles of ours."""
    folder = files("duramen.configs") / "profiles"
    return sorted(
        file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml")
    )


def load_profile(name: str) -> Profile:
    """A profile of ours by its name, or one of the user's by its file.

    Raises DuramenError that names the file and the key.
    """
    if name in profile_names():
        return _profile(name, _read_ours(name), f"profile {name}")
    path = Path(name)
    if not path.is_file():
        known = ", ".join(profile_names())
        raise DuramenError(f"no profile {name!r}: take one of {known}, or name a YAML file")
    raw = parse_profile(read_text(path), name)
    if (base := raw.pop("based_on", None)) is not None:
        if base not in profile_names():
            known = ", ".join(profile_names())
            raise DuramenError(f"{name}: based_on: {base!r} is none of {known}")
        ours = _read_ours(base)
        raw = _over(ours, {"note": f"based on {base}, {ours['note']}", **raw})
    return _profile(path.stem, raw, name)


def parse_profile(text: str, where: str) -> Raw:
    """Sections and values by key, the reasons left out. Raises DuramenError, `where` first."""
    value = parse_yaml(text, where)
    if not isinstance(value, dict):
        raise DuramenError(f"{where} holds no keys: a profile begins with one like `engine:`")
    _check_keys(value, (*SECTIONS, *VALUES), where, "")
    return {key: _without_reasons(key, part, where) for key, part in value.items()}


def _read_ours(name: str) -> Raw:
    text = (files("duramen.configs") / "profiles" / f"{name}.yaml").read_text("utf-8")
    return parse_profile(text, f"profile {name}")


def _check_keys(given: Mapping[Any, Any], known: tuple[str, ...], where: str, under: str) -> None:
    for key in given:
        if key not in known:
            raise DuramenError(f"{where}: unknown key {under}{key}; known: {', '.join(known)}")


def _without_reasons(key: str, part: Any, where: str) -> Any:
    if key not in SECTIONS:
        return _plain(part)
    if part is None:
        return None if key in MAY_BE_NONE else {}  # a heading with nothing under it
    if not isinstance(part, dict):
        raise DuramenError(f"{where}: {key} must hold keys, not {type(part).__name__}")
    _check_keys(part, tuple(each.name for each in fields(SECTIONS[key])), where, f"{key}.")
    return {name: _plain(value) for name, value in part.items()}


def _plain(value: Any) -> Any:
    has_reason = isinstance(value, dict) and value.keys() == {"value", "why"}
    return value["value"] if has_reason else value


def _over(base: Raw, raw: Raw) -> Raw:
    """`base` with what `raw` names, key by key within the sections."""
    merged = base | raw
    for section in SECTIONS:
        both = (base.get(section), raw.get(section))
        if all(isinstance(part, dict) for part in both):
            merged[section] = {**base[section], **raw[section]}
    return merged


def _profile(name: str, raw: Raw, where: str) -> Profile:
    parts = {
        section: _section(to, raw[section], section, where)
        for section, to in SECTIONS.items()
        if raw.get(section) is not None
    }
    hints = get_type_hints(Settings)
    for key in VALUES:
        if key in raw and key in hints:
            parts[key] = _convert(raw[key], hints[key], key, where)
    note = _convert(raw["note"], str, "note", where) if "note" in raw else ""
    engine = parts.pop("engine", EngineFlags())
    device, itl = parts.pop("device", None), parts.pop("itl", None)
    try:
        return Profile(name, note, engine, device, Settings(**parts), itl)
    except DuramenError as error:
        raise DuramenError(f"{where}: {error}") from None


def _section(to: type, given: Mapping[str, Any], section: str, where: str) -> Any:
    assert is_dataclass(to)
    hints = get_type_hints(to)
    values = {
        key: _convert(value, hints[key], f"{section}.{key}", where) for key, value in given.items()
    }
    try:
        return to(**values)
    except TypeError as error:  # a key that must be there is not
        raise DuramenError(f"{where}: {section}: {error}") from None
    except DuramenError as error:
        raise DuramenError(f"{where}: {error}") from None


def _convert(value: object, to: Any, key: str, where: str) -> Any:
    """`value` as the type `to`. Raises DuramenError where it does not fit."""
    if get_origin(to) is Literal:
        if value not in get_args(to):
            known = ", ".join(get_args(to))
            raise DuramenError(f"{where}: {key} must be one of {known}, not {value!r}")
        return value
    try:
        made = msgspec.convert(value, to, dec_hook=_made_here)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DuramenError(f"{where}: {key}: {error}") from None
    if isinstance(made, int | float) and not isinstance(made, bool):
        _check_range(made, key, where)
    texts = made if isinstance(made, tuple) else (made,)
    if any(isinstance(text, str) and not _is_usable(text) for text in texts):
        raise DuramenError(
            f"{where}: {key}: a text is empty or holds a null character or half of a surrogate pair"
        )
    return made


def _is_usable(text: str) -> bool:
    return bool(text) and not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text)


def _check_range(number: float, key: str, where: str) -> None:
    name = key.rpartition(".")[2]
    most = MOST.get(name, MOST_OF_ALL)
    if 0 < number <= most or (number == 0 and name in MAY_BE_ZERO):
        return
    least = "from 0" if name in MAY_BE_ZERO else "above 0"
    raise DuramenError(f"{where}: {key} must be {least} up to {most}, not {str(number)[:40]}")


def _made_here(to: type, value: object) -> object:
    """The types that msgspec does not know: paths, and values of any kind."""
    if to is object:
        return value
    if not isinstance(value, str):
        raise TypeError(f"expected a path, got {value!r}")
    return Path(value).expanduser()
