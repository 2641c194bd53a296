"""The arrows between the parts of Duramen, held by parsing every import.

cli -> experiments -> serving -> serving.kv -> layout, and serving -> kernels -> nothing of ours.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SOURCE_ROOTS = ("serving", "layout", "kernels", "experiments", "configs", "scripts")
TOP_LEVEL = {*SOURCE_ROOTS, "tests", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"}
OPTIONAL_TOP_LEVEL = {"docs", "dist", "out"}  # docs is ours; the other two git ignores

MAY_IMPORT = {
    "duramen.layout": {"duramen.layout"},
    "duramen.kernels": {"duramen.kernels"},
    "duramen.configs": set(),
    "duramen.serving.kv": {"duramen.serving.kv", "duramen.layout"},
    "duramen.serving": {
        "duramen.serving",
        "duramen.serving.kv",
        "duramen.layout",
        "duramen.kernels",
    },
    "duramen.experiments": {
        "duramen.experiments",
        "duramen.serving",
        "duramen.serving.kv",
        "duramen.layout",
    },
    "duramen.cli": {
        "duramen.cli",
        "duramen.experiments",
        "duramen.serving",
        "duramen.serving.kv",
        "duramen.layout",
    },
}
PURE = ("duramen.layout", "duramen.serving.kv")
LOADERS = tuple(  # may read a model's text files
    f"duramen.layout.{name}" for name in ("tokenizer", "tokenizer_files", "template")
)
NETWORK = {"aiohttp", "asyncio", "http", "httpx", "requests", "socket", "ssl", "urllib", "zmq"}
FILES = {"glob", "io", "os", "pathlib", "shutil", "subprocess", "tempfile"}
CLOCK = {"time"}
CLOCK_CALLS = {"now", "today", "utcnow"}  # of datetime, which may be imported to be handed in
OPTIONAL = {
    "flash_attn",
    "gguf",
    "pynvml",
    "safetensors",
    "torch",
    "transformers",
    "triton",
    "vllm",
}
WEB_SERVERS = {"fastapi", "starlette", "uvicorn"}


class Import(NamedTuple):
    line: int
    module: str  # or the name that is taken from one: `from a import b` is a.b
    is_lazy: bool  # inside a function: not needed to import the module


def is_inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def part_of(module: str) -> str | None:
    """The part a module belongs to: the longest that matches."""
    parts = [part for part in MAY_IMPORT if is_inside(module, part)]
    return max(parts, key=len, default=None)


def imports(tree: ast.Module, module: str) -> Iterator[Import]:
    lazy = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, id(node) in lazy)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*module.split(".")[: -node.level], *base.split(".")]).rstrip(".")
            for alias in node.names:
                yield Import(node.lineno, f"{base}.{alias.name}", id(node) in lazy)


def arrow_violations(module: str, found: Import) -> Iterator[str]:
    part, target = part_of(module), part_of(found.module)
    assert part is not None, f"{module} belongs to no part"
    if is_inside(found.module, "duramen"):
        if target not in MAY_IMPORT[part]:
            yield f"{part} must not import {found.module}"
        return
    package = found.module.partition(".")[0]
    if package == "vllm" and not is_inside(module, "duramen.serving.vllm"):
        yield f"only duramen.serving.vllm may import vllm, not {module}"
    if package in WEB_SERVERS and is_inside(module, "duramen.serving.vllm"):
        yield f"duramen.serving.vllm must not import the web server {package}"
    if part in PURE:
        forbidden = NETWORK | CLOCK | OPTIONAL | (set() if module in LOADERS else FILES)
        if package in forbidden:
            yield f"{part} is pure, it must not import {package}"
    elif package in OPTIONAL and not found.is_lazy and not may_need_optional(module):
        yield f"{module} must import {package} inside a function: the base install lacks it"


def may_need_optional(module: str) -> bool:
    return is_inside(module, "duramen.kernels") or is_inside(module, "duramen.serving.vllm")


def call_violations(tree: ast.Module, module: str) -> Iterator[tuple[int, str]]:
    """Files and the clock can be had without an import: `open(...)`, `datetime.now()`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "open" and module not in LOADERS:
            yield node.lineno, f"{part_of(module)} is pure, it must not open files"
        if isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_CALLS:
            yield node.lineno, f"{part_of(module)} is pure, it must not read the clock"


def violations(module: str, source: str) -> list[str]:
    tree = ast.parse(source)
    found = [(i.line, what) for i in imports(tree, module) for what in arrow_violations(module, i)]
    if part_of(module) in PURE:
        found += call_violations(tree, module)
    return [f"{module}:{line}: {what}" for line, what in found]


def modules(root: str) -> list[Path]:
    return sorted((ROOT / root / "duramen").rglob("*.py"))


def module_name(path: Path, root: str) -> str:
    return ".".join(path.relative_to(ROOT / root).with_suffix("").parts)


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_every_import_follows_the_arrows(root):
    found = [
        line
        for path in modules(root)
        for line in violations(module_name(path, root), path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("duramen.layout.x", "import duramen.serving.models", "duramen.layout must not import"),
        ("duramen.layout.x", "from duramen import serving", "duramen.layout must not import"),
        ("duramen.layout.x", "from ..serving import models", "duramen.layout must not import"),
        ("duramen.layout.x", "def f():\n    import torch", "it must not import torch"),
        ("duramen.layout.x", "import urllib.request", "it must not import urllib"),
        ("duramen.layout.x", "from time import monotonic", "it must not import time"),
        ("duramen.layout.x", "import datetime\ndatetime.datetime.now()", "must not read the clock"),
        ("duramen.layout.x", "from pathlib import Path", "it must not import pathlib"),
        ("duramen.layout.x", "import os.path", "it must not import os"),
        ("duramen.layout.x", "open('x')", "must not open files"),
        ("duramen.serving.kv.x", "import duramen.serving.models", "kv must not import"),
        ("duramen.serving.kv.x", "import duramen.kernels.scan", "kv must not import"),
        ("duramen.serving.kv.x", "import zmq.asyncio", "it must not import zmq"),
        ("duramen.serving.x", "import duramen.experiments.replay", "serving must not import"),
        ("duramen.serving.x", "def f():\n    import vllm", "only duramen.serving.vllm may"),
        ("duramen.serving.vllm.x", "import fastapi", "must not import the web server fastapi"),
        ("duramen.serving.x", "import torch", "must import torch inside a function"),
        ("duramen.kernels.x", "import duramen.layout.blocks", "kernels must not import"),
        ("duramen.experiments.x", "import duramen.cli.main", "experiments must not import"),
        ("duramen.experiments.x", "import duramen.kernels.scan", "experiments must not import"),
        ("duramen.cli.x", "import duramen.kernels.scan", "cli must not import"),
        ("duramen.cli.x", "import duramen.nowhere", "cli must not import"),
    ],
)
def test_the_checker_sees_a_bad_import(module, source, expected):
    (line,) = violations(module, source)
    assert expected in line


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("duramen.layout.tokenizer", "from pathlib import Path\nopen('tokenizer.json')"),
        (
            "duramen.layout.x",
            "import datetime\nfrom . import blocks\nfrom duramen.layout import diff",
        ),
        ("duramen.serving.kv.x", "import numpy\nimport duramen.layout.blocks\nfrom . import cache"),
        ("duramen.serving.vllm.x", "import vllm\nimport aiohttp\nimport duramen.kernels.scan"),
        ("duramen.serving.x", "def f():\n    import torch"),
        ("duramen.cli.x", "import duramen.experiments.replay\nimport duramen.layout.blocks"),
    ],
)
def test_the_checker_lets_a_good_import_pass(module, source):
    assert violations(module, source) == []


def test_top_level_entries_are_the_agreed_ones():
    visible = {entry.name for entry in ROOT.iterdir() if not entry.name.startswith(".")}
    assert visible - OPTIONAL_TOP_LEVEL == TOP_LEVEL


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_the_namespace_stays_a_namespace(root):
    """With an __init__.py one part would hide the others, and kernels/ Hugging Face's package."""
    assert not (ROOT / root / "__init__.py").exists()
    assert [entry.name for entry in (ROOT / root).glob("*/__init__.py")] == []
    assert (ROOT / root / "duramen").is_dir()
