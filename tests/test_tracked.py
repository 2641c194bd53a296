"""layout.tracked and layout.jinja: whatever a template does, data never counts as its own text."""

from collections.abc import Callable, Iterator
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.filters import FILTERS

from duramen.layout.jinja import TrackedEnvironment
from duramen.layout.template import with_origin
from duramen.layout.tracked import OTHER, TEMPLATE, Tracked, concat, origin_of, percent_format

CONTROL = "<|im_end|>"
DATA = 3

# -- against a slow twin: a list of (character, origin) --

Twin = list[tuple[str, int]]

runs = st.lists(
    st.tuples(st.text("ab \n|<é", min_size=1, max_size=4), st.sampled_from([TEMPLATE, 1, 2])),
    max_size=5,
)
tracked = runs.map(lambda pieces: concat(Tracked.data(text, origin) for text, origin in pieces))
short = st.sampled_from(["a", "b", " ", "\n", "ab", "|", "", " \n"])


def twin(text: str) -> Twin:
    """Of a plain str, too: it is the template's."""
    pieces = text.runs if isinstance(text, Tracked) else ((len(text), TEMPLATE),)
    origins = [origin for length, origin in pieces for _ in range(length)]
    return [*zip(str.__getitem__(text, slice(None)), origins, strict=True)]


def spelled(characters: Twin) -> str:
    return "".join(character for character, _ in characters)


def check(result: str, expected: Twin) -> None:
    assert isinstance(result, Tracked)
    assert twin(result) == expected
    assert all(length for length, _ in result.runs)
    assert all(a[1] != b[1] for a, b in zip(result.runs, result.runs[1:], strict=False))


@given(tracked, tracked, st.integers(-9, 9), st.integers(-9, 9), st.integers(0, 3))
def test_cutting_and_joining_equal_their_slow_twins(
    a: Tracked, b: Tracked, i: int, j: int, times: int
) -> None:
    check(a + b, twin(a) + twin(b))
    check("x" + a, [("x", TEMPLATE), *twin(a)])
    check(a * times, twin(a) * times)
    check(a[i:j], twin(a)[i:j])
    check(a.join([b, "x", b]), twin(b) + twin(a) + [("x", TEMPLATE)] + twin(a) + twin(b))
    assert [twin(character) for character in a] == [[pair] for pair in twin(a)]
    if -len(a) <= i < len(a):
        check(a[i], [twin(a)[i]])


@given(tracked, st.sampled_from([None, "a", " \n", "|<b"]))
def test_stripping_equals_its_slow_twin(a: Tracked, chars: str | None) -> None:
    left = len(a) - len(str.lstrip(a, chars))
    right = len(str.rstrip(a, chars))
    check(a.lstrip(chars), twin(a)[left:])
    check(a.rstrip(chars), twin(a)[:right])
    check(a.strip(chars), twin(a)[left : max(left, right)])
    for method in ("removeprefix", "removesuffix"):
        plain = getattr(str, method)(a, chars or "")
        check(
            getattr(a, method)(chars or ""),
            twin(a)[-len(plain) :] if method == "removeprefix" and plain else twin(a)[: len(plain)],
        )


@given(tracked, short.filter(bool), tracked, st.integers(-1, 2))
def test_replacing_equals_its_slow_twin(a: Tracked, old: str, new: Tracked, count: int) -> None:
    expected: Twin = []
    rest, left = twin(a), count
    while left and (at := spelled(rest).find(old)) >= 0:
        expected += rest[:at] + twin(new)
        rest = rest[at + len(old) :]
        left -= 1
    check(a.replace(old, new, count), expected + rest)


@given(tracked, st.sampled_from([None, "a", "ab", "\n", "|"]), st.integers(-1, 2))
def test_splitting_loses_nothing(a: Tracked, sep: str | None, maxsplit: int) -> None:
    for method in ("split", "rsplit"):
        parts = getattr(a, method)(sep, maxsplit)
        assert parts == getattr(str, method)(a, sep, maxsplit)
        if sep is not None:
            whole = Tracked.data(sep, OTHER).join(parts)
            assert [pair for pair in twin(whole) if pair[1] != OTHER] == [
                *without(twin(a), parts, sep)
            ]
        else:
            kept = [pair for part in parts for pair in twin(part)]
            blank = str.isspace
            solid = [pair for pair in kept if not blank(pair[0])]
            assert solid == [pair for pair in twin(a) if not blank(pair[0])]
    for keep in (False, True):
        lines = a.splitlines(keep)
        assert lines == str.splitlines(a, keep)
    assert [pair for line in a.splitlines(True) for pair in twin(line)] == twin(a)
    if sep is not None:
        for parts in (a.partition(sep), a.rpartition(sep)):
            assert [pair for part in parts for pair in twin(part)] == twin(a)


def without(whole: Twin, parts: list[Tracked], sep: str) -> Iterator[tuple[str, int]]:
    """`whole` without the separators between `parts`."""
    position = 0
    for part in parts:
        yield from whole[position : position + len(part)]
        position += len(part) + len(sep)


@given(tracked, st.sampled_from(["lower", "upper", "title", "capitalize", "swapcase", "casefold"]))
def test_case_keeps_runs_while_it_keeps_the_length(a: Tracked, method: str) -> None:
    result = getattr(a, method)()
    assert result == getattr(str, method)(a)
    assert result.runs == a.runs


@pytest.mark.parametrize("method", ["upper", "title", "capitalize", "swapcase", "casefold"])
def test_case_that_changes_the_length_makes_all_data(method: str) -> None:
    mixed = concat(["ß", Tracked.data("x", 2)])
    assert twin(getattr(mixed, method)()) == [(c, 2) for c in getattr(str, method)(mixed)]


@given(tracked, tracked)
def test_formatting_equals_its_slow_twin(a: Tracked, b: Tracked) -> None:
    bar = [("|", TEMPLATE)]
    expected = [("%", TEMPLATE), *twin(a), *bar, *twin(b), *bar]
    check(percent_format("%%%s|%s|", (a, b)), expected)
    check(Tracked("%%%(x)s|%(y)s|", ((14, TEMPLATE),)) % {"x": a, "y": b}, expected)
    text = Tracked("%{}|{x}|", ((8, TEMPLATE),))
    check(text.format(a, x=b), expected)
    check(Tracked("%{y}|{x}|", ((9, TEMPLATE),)).format_map({"y": a, "x": b}), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda a: a[::-1],
        lambda a: a.center(20),
        lambda a: a.ljust(20),
        lambda a: a.rjust(20),
        lambda a: a.zfill(20),
        lambda a: a.expandtabs(),
        lambda a: a.translate({97: "b"}),
        lambda a: a.replace("", "-"),
        lambda a: percent_format("%20s", a),
        lambda a: Tracked("{:>20}", ((6, TEMPLATE),)).format(a),
    ],
)
def test_what_cannot_be_exact_is_all_data(make: Callable[[Tracked], Tracked]) -> None:
    mixed = concat(["own\t", Tracked.data("data", 7)])
    result = make(mixed)
    assert twin(result) == [(character, 7) for character in str(result)]


def test_origin_of_searches_containers_and_distrusts_the_rest() -> None:
    data = Tracked.data("x", 4)
    assert origin_of({"a": [("b", data)]}) == origin_of({data: 1}) == 4
    assert origin_of(["a", 1, None, True, {"b": 2.5}]) == TEMPLATE
    assert origin_of({"a": 1}.items()) == origin_of(b"a") == origin_of(object()) == OTHER


# -- through Jinja --

VALUES: dict[str, Any] = {
    "d": CONTROL,
    "l": [CONTROL, CONTROL + "x"],
    "m": {"k": CONTROL, CONTROL: "v"},
    "n": {"a": {"b": CONTROL}},
    "lines": f"{CONTROL}\n{CONTROL}\n\n{CONTROL}",
    "c": "|",
    "two": CONTROL[:2],
}


def own_text(source: str) -> str | None:
    """The characters of the output that count as the template's; None if it does not render."""
    try:
        text = TrackedEnvironment().from_string(source).render(with_origin(VALUES, DATA))
    except Exception:  # most combinations make no sense
        return None
    return spelled([pair for pair in twin(text) if pair[1] == TEMPLATE])


def attacks() -> Iterator[str]:
    subjects = (
        "d",
        "lines",
        "l",
        "m",
        "'XXXXXXXXXX'",
        "'a b c d e f g'",
        "'x' ~ d",
        "l|map('upper')",
        "m.items()",
        "('\\n'.strip('x'))",
    )
    arguments = (
        "",
        "d",
        "c",
        "4",
        "'a',d",
        "'XXXXXXXXXX',d",
        "4,true,d",
        "d,true",
        "attribute='k'",
        "5,true,'\\n'.strip('x')",
        "separators=(d,d)",
        "indent=d",
        "'upper'",
        "'format',d",
    )
    for name in sorted(FILTERS):
        for subject in subjects:
            for argument in arguments:
                call = f"{subject}|{name}({argument})"
                yield f"{{{{ {call} }}}}{{{{ {call}|list }}}}{{{{ {call}|join('-'.strip('y')) }}}}"
    subjects = ("d", "lines", "'XXXXXXXXXX'", "'{}'", "'{:{}>9}'", "'{a}'", "'ab'", "c")
    arguments = (
        "",
        "d",
        "c",
        "'a',d",
        "'XXXXXXXXXX',d",
        "12,c",
        "l",
        "m",
        "'',c",
        "{97:d}",
        "a=d",
        "'ab'.maketrans('ab',two)",
    )
    for method in (name for name in dir(str) if not name.startswith("_")):
        for subject in subjects:
            for argument in arguments:
                call = f"{subject}.{method}({argument})"
                yield f"{{{{ {call} }}}}" + f"{{{{ {call}|first }}}}" * ("split" in method)


def test_no_filter_or_method_lets_data_pass_for_the_template() -> None:
    num_rendered = 0
    environment = TrackedEnvironment()
    variables = with_origin(VALUES, DATA)
    for source in attacks():
        try:
            text = environment.from_string(source).render(variables)
        except Exception:  # most combinations make no sense
            continue
        num_rendered += 1
        own = [character for character, origin in twin(text) if origin == TEMPLATE]
        assert "|" not in own, source
    assert num_rendered > 1000


EXACT = {  # source -> the characters that are the template's own
    "[{{ d }}]": "[]",
    "{{ 'a' ~ d ~ 'b' ~ 1 }}": "ab1",
    "{{ 'a' + d + 'b' }}": "ab",
    "{{ 'a%sb' % d }}": "ab",
    "{{ '%s-%s' % (d, 'x') }}": "-x",
    "{{ 'a%sb' | format(d) }}": "ab",
    "{{ 'a%(x)sb' | format(x=d) }}": "ab",
    "{{ 'a{}b{x}'.format(d, x=d) }}": "ab",
    "{{ 'aRb' | replace('R', d) }}": "ab",
    "{{ ('a' ~ d ~ 'b') | replace('im', 'IM') }}": "aIMb",
    "{{ ('  a' ~ d ~ 'b ') | trim }}": "ab",
    "{{ ('a' ~ d ~ 'b') | upper }}": "AB",
    "{{ ('a' ~ d ~ 'b').title() }}": "AB",
    "{{ ('ab' ~ d)[1:] }}": "b",
    "{{ l | join(', ') }}": ", ",
    "{{ ', '.join(l) }}": ", ",
    "{{ '-'.join(d) }}": "-" * 9,
    "{{ m | map('upper') | join('+') }}": "+",
    "{% set x %}a{{ d }}b{% endset %}{{ x }}": "ab",
    "{% macro f(x) %}({{ x }}{{ caller() }}){% endmacro %}{% call f(d) %}c{% endcall %}": "(c)",
    "{% filter upper %}a{{ d }}{% endfilter %}": "A",
    "{% block b %}a{{ d }}{% endblock %}{{ self.b() }}": "aa",
    "{% generation %}a{{ d }}{% endgeneration %}": "a",
    "{{ missing | default('a') }}{{ d | default('b') }}": "a",
    "{{ d | first }}{{ ('a' ~ d) | first }}{{ d | last }}": "a",
    "{{ 'abc' | tojson }}{{ ['a'] | tojson }}": '"abc"["a"]',
    "{{ 'a' | e }}{{ 'b' | string }}{{ 'c' | safe }}{{ 'd' | title }}": "abcD",
}

ALL_DATA = (
    "{{ l }}",
    "{{ m }}",
    "{{ [m] }}",
    "{{ (d,) }}",
    "{{ n | tojson }}",
    "{{ ['a', d] | tojson(indent=2) }}",
    "{{ m.items() }}",
    "{{ m.keys() }}",
    "{{ namespace(a=d) }}",
    "{{ {'a': m.values()} }}",
    "{{ '%r' % d }}",
    "{{ '%9s' % d }}",
    "{{ lines | indent }}",
    "{{ ('a' ~ lines) | indent(2, true) }}",
    "{{ lines | wordwrap(4) }}",
    "{{ d | center(40) }}",
    "{{ d | urlize }}",
    "{{ d | escape }}",
    "{{ {'a': d} | xmlattr }}",
    "{{ d | pprint }}",
    "{{ d | urlencode }}",
    "{{ d | striptags }}",
    "{{ ('a' ~ d) | reverse }}",
    "{% autoescape true %}{% set x %}{{ d }}{% endset %}{{ x }}{{ x.upper() }}{% endautoescape %}",
    "{% filter indent %}{{ lines }}{% endfilter %}",
)


@pytest.mark.parametrize(("source", "own"), EXACT.items(), ids=EXACT)
def test_own_text_of_exact_constructs(source: str, own: str) -> None:
    assert own_text(source) == own


@pytest.mark.parametrize("source", ALL_DATA, ids=ALL_DATA)
def test_constructs_whose_whole_output_is_data(source: str) -> None:
    assert own_text(source) == ""


@pytest.mark.parametrize("source", ["{{ d.encode() }}", "{{ d | attr('encode')() }}"])
def test_text_does_not_become_bytes(source: str) -> None:
    with pytest.raises(jinja2.exceptions.SecurityError):
        TrackedEnvironment().from_string(source).render(with_origin(VALUES, DATA))


def test_joining_what_is_no_text_is_refused_as_in_python() -> None:
    with pytest.raises(TypeError, match="expected str instance, int found"):
        Tracked.data(",", 1).join(["a", 1])  # type: ignore[list-item]
