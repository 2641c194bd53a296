"""Our own YAML files, read strictly: no key twice, and errors that name the file."""

from pathlib import Path
from typing import Any

import yaml

from duramen.layout.errors import DuramenError


class _Loader(yaml.SafeLoader):
    """Dates stay text, and a key that stands twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                line = node.value[number][0].start_mark.line + 1
                raise yaml.YAMLError(f"line {line}: key {key!r} stands twice")
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_text(path: Path) -> str:
    """Raises DuramenError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DuramenError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DuramenError(f"{path} is no UTF-8 text") from None


def parse_yaml(text: str, where: str) -> Any:
    """What the text holds. Raises DuramenError, starting with `where`."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        lines = " ".join(str(error).split())
        raise DuramenError(f"{where} is no YAML that can be read: {lines}") from None
