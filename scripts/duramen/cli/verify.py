"""`duramen verify`: does a running vLLM, of whatever version, do what Duramen relies on?"""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from duramen.cli.options import JsonFile
from duramen.cli.output import check_json_file, write_json
from duramen.cli.replay import refuse
from duramen.cli.serve_checks import check_events, check_upstreams
from duramen.layout.errors import ModelError
from duramen.layout.template import load_chat_template
from duramen.layout.tokenizer import Tokenizer
from duramen.serving.verify.claim import Check
from duramen.serving.verify.subject import Prompts
from duramen.serving.verify.suite import CLAIMS, Verified
from duramen.serving.verify.suite import verify as run
from duramen.serving.vllm.facts import eos_token_ids

STYLES = {"holds": "green", "broken": "red", "not tried": "yellow"}
BROKEN = 1


def verify(
    upstream: Annotated[
        str, typer.Option(metavar="URL", help="A vLLM that runs; its cache is not reset.")
    ],
    tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The served model's tokenizer, to compare prompts with."),
    ] = None,
    chat_template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Chat template, if not the tokenizer's.")
    ] = None,
    kv_events: Annotated[
        str | None,
        typer.Option(metavar="PUBLISH,REPLAY", help="ZMQ addresses of its KV events."),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="DURAMEN_API_KEY", help="Key of the upstream.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Try each assumption about the engine on a running vLLM: two minutes at most.

    Exit code 0 if all that Duramen needs holds, 1 if something is broken.
    """
    check_json_file(json_file)
    (url,) = check_upstreams([upstream])
    events = check_events([kv_events] if kv_events else [], [url]).get(url)
    refuse(
        {"--chat-template": tokenizer is None and chat_template is not None},
        "needs --tokenizer DIR",
    )
    prompts = None if tokenizer is None else load_prompts(tokenizer, chat_template)
    with Console(stderr=True).status(f"asking {url}") as status:
        verified = asyncio.run(
            run(
                url,
                prompts=prompts,
                events=events,
                api_key=api_key,
                progress=lambda check: status.update(f"{check.claim.name}: {check.verdict}"),
            )
        )
    if json_file is None:
        show(verified, Console())
    else:
        write_json("verify", as_json(verified), json_file)
        say_failures(verified)
    if not verified.is_fit:
        raise typer.Exit(BROKEN)


def load_prompts(folder: Path, chat_template: Path | None) -> Prompts:
    if not folder.is_dir():
        raise ModelError(f"{folder} is no folder: name the one with the model's tokenizer")
    template = load_chat_template(folder, chat_template)
    tokenizer = Tokenizer.load(folder, template.source)
    try:
        eos_ids = sorted(tokenizer.eos_ids) or eos_token_ids(folder)
    except msgspec.DecodeError as error:
        raise ModelError(f"{folder}: a config file is broken JSON: {error}") from None
    return Prompts(tokenizer, template, eos_ids[0] if eos_ids else None)


def as_json(verified: Verified) -> dict[str, Any]:
    facts = verified.facts
    return {
        "engine": f"vllm {verified.version}",
        "model": facts and facts.model,
        "unit_tokens": facts and facts.unit_tokens,
        "fit": verified.is_fit,
        "checks": [check.as_json() for check in verified.checks],
    }


def show(verified: Verified, console: Console) -> None:
    table = Table("check", "verdict", "saw", title=f"vLLM {verified.version}", title_justify="left")
    for check in verified.checks:
        style = STYLES[check.verdict]
        table.add_row(check.claim.name, f"[{style}]{check.verdict}[/{style}]", escape(check.saw))
    console.print(table)
    for check in verified.checks:
        if check.verdict == "broken":
            console.print(explained(check), markup=False, highlight=False, soft_wrap=True)
    console.print(summary(verified), markup=False, highlight=False, soft_wrap=True)


def explained(check: Check) -> str:
    claim = check.claim
    loss = "Relies on it" if claim.needed else "Lacks without it"
    return (
        f"\n{claim.name}\n  asked     {claim.asked}\n  expected  {claim.expected}\n"
        f"  saw       {check.saw}\n  {loss}: {claim.stands}"
    )


def summary(verified: Verified) -> str:
    numbers = {
        verdict: sum(check.verdict == verdict for check in verified.checks) for verdict in STYLES
    }
    counted = ", ".join(f"{number} {verdict}" for verdict, number in numbers.items())
    elapsed_s = sum(check.elapsed_s for check in verified.checks)
    fit = "Duramen can stand on it" if verified.is_fit else "Duramen cannot stand on it as it is"
    return f"\n{counted} of {len(CLAIMS)} in {elapsed_s:.0f} s: {fit}"


def say_failures(verified: Verified) -> None:
    """On standard error, where the result itself went to a file."""
    for check in verified.checks:
        if check.is_failure:
            print(f"duramen: broken: {check.claim.name}: {check.saw}", file=sys.stderr)
