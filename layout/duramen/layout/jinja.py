"""Jinja as chat templates use it, with every output character's origin tracked.

The environment matches the one transformers renders chat templates with (sandbox, trim_blocks,
lstrip_blocks, loop controls, `tojson` without HTML escapes, `raise_exception`, `strftime_now`,
`{% generation %}`), so the rendered text is the same; only its characters carry an origin.
"""

import functools
import json
from collections.abc import Callable
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.compiler import Frame
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS
from jinja2.nativetypes import NativeCodeGenerator
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter

from duramen.layout.tracked import (
    Tracked,
    brace_format,
    concat,
    origin_of,
    percent_format,
    tracked_str,
)


class _Generator(NativeCodeGenerator):
    """Emits values as they are (no str() around output), so that `concat` sees their origin."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("concat((")
        for child in node.nodes:
            self.visit(child, frame)
            self.write(", ")
        self.write("))")


class _Generation(Extension):
    """`{% generation %}` marks what the model wrote; for rendering it is only a scope."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(lineno)

    @staticmethod
    def _body(caller: Callable[[], str]) -> str:
        return caller()


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> Tracked:
    text = json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
    return Tracked.data(text, origin_of([value, indent, separators]))


def _format(value: Any, *args: Any, **kwargs: Any) -> Tracked:
    if args and kwargs:
        raise jinja2.TemplateError("`format` takes positional or named values, not both")
    return percent_format(tracked_str(value), kwargs or args)


@jinja2.pass_environment
def _join(
    environment: jinja2.Environment, value: Any, d: str = "", attribute: str | int | None = None
) -> Tracked:
    if attribute is not None:
        value = map(jinja2.filters.make_attrgetter(environment, attribute), value)
    return tracked_str(d).join(tracked_str(item) for item in value)


# Filters that return values which they were given, and filters that do to a Tracked string only
# what Tracked keeps exact.
_PASSING = frozenset(["attr", "d", "default", "first", "last", "max", "min", "random"])
_EXACT = frozenset(["capitalize", "lower", "replace", "reverse", "trim", "truncate", "upper"])


def _keeping(name: str) -> Callable[..., Any]:
    """The built-in filter, except that text it makes from data stays data."""
    original: Callable[..., Any] = FILTERS[name]
    if name in _PASSING:
        return original

    @functools.wraps(original)
    def keeping(*args: Any, **kwargs: Any) -> Any:
        result = original(*map(_own, args), **{key: _own(kwargs[key]) for key in kwargs})
        if not isinstance(result, str) or (name in _EXACT and isinstance(result, Tracked)):
            return result
        given = [a for a in (*args, *kwargs.values()) if not isinstance(a, _CONTEXTS)]
        return Tracked.data(str(result), origin_of(given))

    return keeping


_DICT_METHODS = frozenset(dir(dict))

# What Jinja itself passes to a filter.
_CONTEXTS = (jinja2.Environment, jinja2.runtime.Context, nodes.EvalContext)


class TrackedEnvironment(ImmutableSandboxedEnvironment):
    code_generator_class = _Generator
    concat = staticmethod(concat)
    intercepted_binops = frozenset(["%"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        self.filters.update({name: _keeping(name) for name in FILTERS})
        self.filters.update(tojson=_tojson, join=_join, format=_format)
        self.filters.update(string=tracked_str, safe=tracked_str)
        self.globals["raise_exception"] = _refuse

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Bytes know no origin, so text must not become bytes."""
        encodes = isinstance(obj, str) and attr == "encode"
        return not encodes and super().is_safe_attribute(obj, attr, value)

    def getattr(self, obj: Any, attribute: str) -> Any:
        if type(obj) is dict and attribute not in _DICT_METHODS:  # as below, only faster
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(_own(obj), attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        return super().getitem(_own(obj), argument)

    def call_binop(
        self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any
    ) -> Any:
        if isinstance(left, str):
            return percent_format(left, right)
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., Tracked] | None:
        """The sandbox's str.format: fields are looked up under its rules, origins are kept."""
        text = getattr(value, "__self__", None)
        name = getattr(value, "__name__", None)
        if not isinstance(text, str) or name not in ("format", "format_map"):
            return None
        get_field = SandboxedFormatter(self).get_field
        if name == "format_map":
            return lambda mapping: brace_format(text, (), mapping, get_field)
        return lambda *args, **kwargs: brace_format(text, args, kwargs, get_field)


def _own(obj: Any) -> Any:
    """Literals of the template become Tracked, so that their methods keep the origin of data."""
    return tracked_str(obj) if isinstance(obj, str) else obj
