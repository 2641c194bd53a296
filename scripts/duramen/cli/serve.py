"""`duramen serve`: puts a model behind an OpenAI-compatible gateway."""

import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from duramen.cli.options import ChatTemplateFile
from duramen.cli.serve_checks import (
    check_bind,
    check_events,
    check_key_file,
    check_upstreams,
    default_store,
    load_tls,
    make_folder,
    own_name,
)
from duramen.layout.errors import DuramenError, ModelError
from duramen.layout.template import load_chat_template
from duramen.serving.fit import check_fit
from duramen.serving.gateway.addresses import is_loopback
from duramen.serving.gateway.serve_config import ServeConfig
from duramen.serving.gateway.settings import Settings
from duramen.serving.models import fetch
from duramen.serving.profile_file import load_profile
from duramen.serving.profiles import Profile, check_build, profile_here, vllm_config
from duramen.serving.timing_profile import Origin
from duramen.serving.vllm.itl_target import SCHEDULER_CLASS, TARGET, TIMING, ItlTarget
from duramen.serving.vllm.launch import Progress, VllmConfig
from duramen.serving.vllm.version import check_scheduler_version, installed_build

DEMO_MODEL = "smollm2"
PROGRESS_EVERY_S = 5.0


def serve(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Model folder, or smollm2, the demo model.")
    ],
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="cpu|l4|h100|h200|FILE", help="Flags and limits; by what is here if not given."
        ),
    ] = None,
    upstream: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="A vLLM that runs already; given several times: replicas of the model.",
        ),
    ] = None,
    upstream_api_key: Annotated[
        str | None, typer.Option(envvar="DURAMEN_API_KEY", help="Key of the upstream.")
    ] = None,
    kv_events: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PUBLISH,REPLAY",
            help="ZMQ addresses of an upstream's KV events and of their replay; once for each "
            "--upstream, in its order.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8080,
    api_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keys of those who may call; see `duramen key`."),
    ] = None,
    allow_no_key: Annotated[
        bool, typer.Option("--allow-no-key", help="Listen beyond this machine without keys.")
    ] = False,
    model_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name for clients, if not the folder's.")
    ] = None,
    chat_template: ChatTemplateFile = None,
    store: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where sessions are kept over a restart.")
    ] = None,
    no_store: Annotated[
        bool, typer.Option("--no-store", help="Keep sessions in memory alone.")
    ] = False,
    itl_target: Annotated[
        float | None,
        typer.Option(
            metavar="MS",
            help="Most between two tokens of a reply: long prompts are cut so that steps keep it.",
        ),
    ] = None,
    timing: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --itl-target: the times of steps here."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate (PEM) to serve HTTPS with.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Private key (PEM) of --tls-cert.")
    ] = None,
) -> None:
    """Serve MODEL over OpenAI's API, every conversation token-exact.

    Starts vLLM with the profile's flags, or attaches to one that runs. Ctrl-C or SIGTERM ends it
    once the running calls have ended.
    """
    if store is not None and no_store:
        raise DuramenError("--store and --no-store exclude each other")
    upstreams = check_upstreams(upstream or [])
    events = check_events(kv_events or [], upstreams)
    check_key_file(api_key_file)
    check_bind(host, port, has_keys=api_key_file is not None, allow_no_key=allow_no_key)
    tls = load_tls(tls_cert, tls_key)
    operator = Lines()
    if tls is None and not is_loopback(host):
        operator.say("without --tls-cert, prompts and keys can be read on the network")
    model_dir = find_model(model, operator.progress)
    if model_name is None and model == DEMO_MODEL and not Path(model).is_dir():
        model_name = DEMO_MODEL  # as it was asked for
    name = own_name(model_name, model_dir)
    load_chat_template(model_dir, chat_template)  # before the engine's start, which takes long
    chosen = with_itl(
        choose_profile(profile, bool(upstreams), operator.say), itl_target, timing, bool(upstreams)
    )
    vllm = None
    if not upstreams:
        vllm = engine_config(chosen, model_dir, name, chat_template, operator.say)
    config = ServeConfig(
        settings=with_store(chosen.settings, store, no_store, name),
        model_dir=model_dir,
        model_name=name,
        operator=operator,
        chat_template=chat_template,
        vllm=vllm,
        upstreams=upstreams,
        upstream_api_key=upstream_api_key,
        upstream_events=events,
        host=host,
        port=port,
        tls=tls,
        api_key_file=api_key_file,
    )
    from duramen.serving.gateway.server import serve as serve_forever  # the web stack loads here

    serve_forever(config)


class Lines:
    """serve_config.Operator, on standard error. Progress that differs in numbers alone comes every
    few seconds."""

    def __init__(self) -> None:
        self._kind = ""
        self._last_s = 0.0

    def progress(self, line: str) -> None:
        now_s, kind = time.monotonic(), re.sub(r"\d+", "", line)
        if kind != self._kind or now_s - self._last_s >= PROGRESS_EVERY_S:
            self._kind, self._last_s = kind, now_s
            self.say(line)

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


def find_model(model: str, progress: Progress) -> Path:
    """The folder. Raises ModelError where there is none."""
    folder = Path(model)
    if model == DEMO_MODEL and not folder.is_dir():
        return fetch(DEMO_MODEL, progress)
    if not folder.is_dir():
        raise ModelError(f"no model folder {model}: name one, or {DEMO_MODEL}, the demo model")
    if not (folder / "config.json").is_file():
        raise ModelError(f"{model} is no model's folder: config.json is missing")
    return folder


def choose_profile(name: str | None, is_attached: bool, say: Progress) -> Profile:
    """The one that is named, else the one for this machine; it says which. What an upstream runs on
    is not known: without a name its limits are the defaults."""
    why = ""
    if name is None and is_attached:
        say("no profile: the limits are the defaults; name the upstream's device with --profile")
        return Profile("default")
    if name is None:
        name, why = profile_here()
    profile = load_profile(name)
    because = f" ({why})" if why else ""
    note = f": {profile.note}" if profile.note else ""
    say(f"profile {profile.name}{because}{note}")
    return profile


def with_itl(
    profile: Profile, target_ms: float | None, timing: Path | None, is_attached: bool
) -> Profile:
    """The options go before the profile's file. Raises DuramenError for one without the other."""
    if target_ms is None and timing is None:
        return profile
    if is_attached:
        raise DuramenError(
            "--itl-target is for a vLLM that is started here; start an upstream with "
            f"{TARGET}, {TIMING} and --scheduler-cls {SCHEDULER_CLASS}"
        )
    if target_ms is None and profile.itl is not None:
        target_ms = profile.itl.target_ms
    if timing is None and profile.itl is not None:
        timing = profile.itl.timing
    if target_ms is None or timing is None:
        raise DuramenError("--itl-target MS and --timing FILE go together: name both")
    return replace(profile, itl=ItlTarget(target_ms, timing))


def engine_config(
    profile: Profile,
    model_dir: Path,
    model_name: str,
    chat_template: Path | None,
    say: Progress,
) -> VllmConfig:
    """How vLLM is started. Says whether the model fits; raises DuramenError where it does not."""
    check_build(profile, installed_build()[0])
    fit = check_fit(profile, model_dir)
    for line in (fit.summary, *fit.notes):
        say(f"fit: {line}")
    fit.require()
    if profile.itl is not None:
        check_scheduler_version(installed_build()[1])
        times = profile.itl.load_timing()
        origin = "" if times.origin is Origin.CALIBRATED else ", not measured there"
        say(
            f"itl: at most {profile.itl.target_ms:g} ms between tokens, by the times of "
            f"{times.model} on {times.device}, {times.engine}, {times.date}{origin}"
        )
    return vllm_config(
        profile,
        model_dir,
        max_model_len=fit.max_model_len,
        chat_template=chat_template,
        model_name=model_name,
    )


def with_store(settings: Settings, store: Path | None, no_store: bool, name: str) -> Settings:
    """The option goes before the profile's file, and that before the usual place."""
    file = None if no_store else store or settings.sessions.store or default_store(name)
    if file is not None:
        if file.is_dir():
            raise DuramenError(f"cannot keep sessions in {file}: it is a folder, name a file")
        make_folder(file.parent)
    return replace(settings, sessions=replace(settings.sessions, store=file))
