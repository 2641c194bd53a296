"""The page of a GPU session: what its steps left in their folder, as Markdown."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import yaml

Fields = Mapping[str, Any]


def figures(out: Path) -> dict[str, Any]:
    """By step; None where it left nothing."""
    profile = out / "profile.yaml"
    return {
        "doctor": _json(out / "doctor.json"),
        "probe": _json(out / "probe.json"),
        "profile": yaml.safe_load(profile.read_text()) if profile.is_file() else None,
        "live": _json(out / "live.json"),
        "simulated": _json(out / "simulated.json"),
        "validate": _json(out / "validate.json"),
        "kernels": _tests(out / "kernels.xml"),
    }


def _json(file: Path) -> Any:
    return json.loads(file.read_text()) if file.is_file() else None


def _tests(file: Path) -> dict[str, int] | None:
    if not file.is_file():
        return None
    suites = [*ElementTree.parse(file).getroot().iter("testsuite")]
    names = ("tests", "failures", "errors", "skipped")
    return {name: sum(int(suite.get(name, 0)) for suite in suites) for name in names}


def as_page(fields: Fields) -> str:
    """A section for each step that left something; the table of steps says why others did not."""
    return "\n".join(
        [
            f"# {fields['model']}, measured",
            "",
            *_machine(fields["doctor"]),
            *_steps(fields["steps"]),
            *_probe(fields["probe"]),
            *_profile(fields["profile"]),
            *_replays(fields["live"], fields["simulated"]),
            *_validated(fields["validate"]),
            *_kernels(fields["kernels"]),
        ]
    )


def _machine(doctor: Fields | None) -> Iterator[str]:
    if doctor is None:
        return
    machine, engine = doctor["machine"], doctor["engine"]
    gpus = ", ".join(gpu["name"] for gpu in machine["gpus"] or ()) or "no GPU"
    version = f"vLLM {engine['version']}, {engine['build'].upper()} build" if engine else "no vLLM"
    yield (
        f"{gpus}; {machine['cpu']}, {machine['num_cores']} cores; {version}; "
        f"Duramen {doctor['duramen_version']}.\n"
    )


def _steps(steps: Sequence[Fields]) -> Iterator[str]:
    yield "## Steps"
    rows = [[each["name"], each["said"], f"{each['seconds']:.0f}"] for each in steps]
    yield from _table(["step", "", "s"], rows)


def _probe(probe: Fields | None) -> Iterator[str]:
    if probe is None:
        return
    yield f"## What {probe['device']} does"
    yield (
        f"{probe['dtype']}, torch {probe['torch']}; medians, the spread between the quartiles "
        "beside them; caches cold."
    )
    yield from _conditions(probe["conditions"])
    copy, launch = probe["copy"], probe["launch"]
    rows = [
        ["copy", f"{copy['num_bytes'] / 2e6:,.0f} MB", *_rates(copy)],
        ["launch", "one of many", f"{launch['median_s'] * 1e6:.1f} us", _share(launch), "", ""],
    ]
    rows += [["GEMM", f"{g['m']} x {g['k']} x {g['n']}", *_rates(g)] for g in probe["gemms"]]
    rows += [["attention", _attention(each), *_rates(each)] for each in probe["attentions"]]
    yield from _table(["", "shape", "median", "spread", "TFLOP/s", "GB/s"], rows)


def _conditions(conditions: Fields | None) -> Iterator[str]:
    if conditions is None:
        return
    before, after = conditions["before"], conditions["after"]
    reasons = ", ".join(conditions["throttle_reasons"]) or "none seen"
    yield (
        f"Lowest SM clock under load {conditions['min_sm_clock_mhz']} of "
        f"{before['max_sm_clock_mhz']} MHz; throttled by: {reasons}; "
        f"{before['temperature_c']} to {after['temperature_c']} degrees C, "
        f"{before['power_w']} to {after['power_w']} of {before['power_limit_w']} W."
    )


def _attention(shape: Fields) -> str:
    heads = f"{shape['num_heads']}/{shape['num_kv_heads']} heads of {shape['head_dim']}"
    return f"{heads}, {shape['num_new']:,} behind {shape['num_context']:,}"


def _rates(rate: Fields) -> list[str]:
    median_us = f"{rate['timing']['median_s'] * 1e6:,.1f} us"
    flops = f"{rate['flops_per_s'] / 1e12:.3g}" if rate["flops"] else ""
    return [median_us, _share(rate), flops, f"{rate['bytes_per_s'] / 1e9:,.1f}"]


def _share(rate: Fields) -> str:
    return f"{rate['spread']:.0%}"


def _profile(profile: Fields | None) -> Iterator[str]:
    if profile is None:
        return
    yield "## Calibrated"
    yield f"```yaml\n{yaml.safe_dump(dict(profile), sort_keys=False)}```\n"


def _replays(live: Fields | None, simulated: Fields | None) -> Iterator[str]:
    """The live layouts, with the simulated beside them where they were."""
    if live is None:
        return
    yield "## Live and simulated"
    yield (
        "The packaged sessions, one after another. A simulated engine has decoded the recorded "
        "replies itself, a live one computes them when they come back: its calls have less cached."
    )
    timed = simulated["timing"]["layouts"] if simulated else {}
    rows = []
    for name, layout in live["layouts"].items():
        rows.append([name, "live", *_calls(layout)])
        if name in timed:
            rows.append([name, "simulated", *_calls(timed[name])])
    yield from _table(["layout", "", "prompt tokens", "cached tokens", "TTFT p50", "ITL p50"], rows)


def _calls(layout: Fields) -> list[str]:
    cached = layout["cached_tokens"]
    return [
        f"{layout['prompt_tokens']:,}",
        "-" if cached is None else f"{cached:,}",
        _ms(layout["ttft_s"]["p50"]),
        _ms(layout["itl_s"]["p50"]),
    ]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:,.1f} ms"


def _validated(validated: Fields | None) -> Iterator[str]:
    if validated is None:
        return
    yield "## The simulator under eviction"
    yield (
        f"A cache of {validated['kv_tokens']:,} tokens, {validated['num_open']} sessions in turn; "
        "errors of the times beside what repeats differ by."
    )
    errors = {each["at_once"]: each for each in validated["errors"]}
    rows = []
    for run in validated["runs"]:
        row = [str(run["at_once"]), f"{run['num_equal']} of {len(run['calls'])}"]
        row += [str(run["num_evicted"])]
        for time in ("ttft", "itl"):
            found = errors[run["at_once"]][time]
            row += [f"{found[key]:.1%} ({found[f'noise_{key}']:.1%})" for key in ("median", "p90")]
        rows.append(row)
    header = ["at once", "hits as predicted", "fewer by eviction"]
    yield from _table([*header, "TTFT median", "p90", "ITL median", "p90"], rows)


def _kernels(tests: Fields | None) -> Iterator[str]:
    if tests is None:
        return
    yield "## Kernel tests"
    yield (
        f"{tests['tests']} run, {tests['failures'] + tests['errors']} failed, "
        f"{tests['skipped']} skipped.\n"
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield ""
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"
    yield ""
