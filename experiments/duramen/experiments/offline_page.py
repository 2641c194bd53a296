"""HTML pages of one file, for reading offline: nothing is fetched, equal bytes for equal input.

Style and script are admitted by their hashes and by nothing else.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup


def make_page(
    read: Callable[[str], str],
    style: str,
    script: str,
    filters: Mapping[str, Callable[..., Any]],
    content: Mapping[str, Any],
) -> str:
    """page.html.jinja, filled. `read`: text of a file of the page's package, by name."""
    environment = Environment(
        loader=FunctionLoader(read),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= filters
    page = environment.get_template("page.html.jinja").render(
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
        **content,
    )
    return page.encode("utf-8", "replace").decode("utf-8")  # lone surrogates have no bytes


def inline_json(value: Any) -> Markup:
    """JSON that no HTML parser leaves: without <, > and &."""
    text = json.dumps(value, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def read_of(package: str) -> Callable[[str], str]:
    """Reads files that are shipped with a package."""

    def read(name: str) -> str:
        return files(package).joinpath(name).read_text(encoding="utf-8")

    return read


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
