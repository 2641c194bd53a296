"""Where prices come from: the packaged files, or a file of the user's."""

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from duramen.experiments.prices.book import Book, Entry
from duramen.experiments.prices.book_file import parse_book
from duramen.experiments.prices.litellm import parse_litellm
from duramen.layout.errors import PriceError
from duramen.serving.strict_yaml import read_text

PROVIDERS = ("anthropic", "deepseek", "google", "mistral", "openai")


def packaged_book(providers: Iterable[str] = PROVIDERS) -> Book:
    """The prices that come with Duramen. Raises PriceError for a provider that is not there."""
    folder = files("duramen.configs").joinpath("prices")
    entries: list[Entry] = []
    for provider in providers:
        if provider not in PROVIDERS:
            known = ", ".join(PROVIDERS)
            raise PriceError(f"no prices for provider {provider!r}; there is {known}")
        text = folder.joinpath(f"{provider}.yaml").read_text(encoding="utf-8")
        entries += parse_book(text, f"prices/{provider}.yaml")
    return Book(tuple(entries))


def load_book(path: Path) -> Book:
    """A price file of ours (YAML) or LiteLLM's (JSON). Raises DuramenError with file and key."""
    text = read_text(path)
    if text.lstrip().startswith(("{", "[")):
        return Book(tuple(parse_litellm(text, path)))
    return Book(tuple(parse_book(text, str(path))))
