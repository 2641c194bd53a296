"""What a config leaves out is read as its configuration class in transformers fills it in, or
refused: every class of a text model that is read at all, and each of its keys."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from model_configs import Config

from duramen.layout.errors import ModelError
from duramen.serving.kv.arch import Architecture

transformers = pytest.importorskip("transformers", reason="no transformers: no classes to compare")

FILLED_IN = ("head_dim", "layer_types", "num_key_value_heads")  # from other keys
BOOKKEEPING = ("_name_or_path", "architectures", "model_type", "transformers_version")


def parse(config: Config) -> Architecture | None:
    try:
        return Architecture.from_config(config)
    except ModelError:
        return None


def kept(arch: Architecture) -> tuple[Any, ...]:
    """What memory depends on, and whether the head is the embedding."""
    mixers = [(layer.mixer, layer.state_beside) for layer in arch.layers]
    return mixers, arch.dtype, arch.is_tied


def written(made: Any) -> Config:
    """As it would stand in config.json, all of it."""
    config: Config = made.to_dict()
    return {key: value for key, value in config.items() if key not in BOOKKEEPING}


def without(config: Config, key: str) -> Config:
    return {name: value for name, value in config.items() if name != key}


def read_classes() -> Iterator[tuple[type, Config]]:
    """Classes whose own values are read, with these."""
    for name, made in transformers.CONFIG_MAPPING.items():
        if not hasattr(made, "vocab_size") or made.sub_configs or made.has_no_defaults_at_init:
            continue
        config = {"model_type": name, **written(made())}
        if parse(config) is not None:
            yield made, config


def with_more_heads(made: type, config: Config) -> Config | None:
    """The same class with twice as many heads, and what it fills in then."""
    heads = config.get("num_attention_heads")
    if not isinstance(heads, int):
        return None
    given = {key: value for key, value in config.items() if key not in (*FILLED_IN, "model_type")}
    try:
        filled = made(**{**given, "num_attention_heads": 2 * heads})
    except Exception:  # not all classes read what they write
        return None
    return {"model_type": config["model_type"], **written(filled)}


def misread(config: Config, keys: Iterator[str]) -> list[str]:
    """Keys without which another model is read."""
    whole = parse(config)
    if whole is None:
        return []
    less = ((key, parse(without(config, key))) for key in keys)
    return [
        f"{config['model_type']}: {key}"
        for key, found in less
        if found is not None and kept(found) != kept(whole)
    ]


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(300)
def test_what_a_config_leaves_out() -> None:
    wrong, num_classes = [], 0
    for made, config in read_classes():
        num_classes += 1
        wrong += misread(config, (key for key in config if key != "model_type"))
        if more := with_more_heads(made, config):
            wrong += misread(more, (key for key in FILLED_IN if key in more))
    assert wrong == []
    assert num_classes > 80
