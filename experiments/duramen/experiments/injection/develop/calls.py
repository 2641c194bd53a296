"""Arguments written again, in the half to develop on."""

from duramen.experiments.injection.arguments import in_text, respelled, sampled
from duramen.experiments.injection.cases import Variant
from duramen.layout.diagnose.causes import Cause

HERMES = '<tool_call>\n{"name": "edit", "arguments": {}}\n</tool_call>'

TYPED: tuple[Cause, ...] = ("history-edited",)  # another type is another value, too

VARIANTS = [
    Variant("re-serialised-arguments", name, make)
    for name, make in {
        "sampled without blanks": sampled("search", '{"query":"late orders","limit":20}'),
        "sampled with a blank more": sampled("search", '{ "query": "late orders", "limit": 20 }'),
        "sampled with escapes": sampled("search", '{"query": "caf\\u00e9 cr\\u00e8me"}'),
        "sampled over lines": sampled("write", '{\n  "path": "a.txt",\n  "text": "hello"\n}'),
        "1.0 for 1": respelled("wait", '{"seconds": 1}', '{"seconds": 1.0}'),
        "True for true": respelled("send", '{"draft": true}', '{"draft": True}'),
        "True as text": respelled("send", '{"draft": true, "n": 2}', '{"draft": "True", "n": 2}'),
        "number as text": respelled("page", '{"number": 12}', '{"number": "12"}', TYPED),
        "exponent": respelled("limit", '{"bytes": 1000000}', '{"bytes": 1e6}'),
        "list as text": respelled("pick", '{"ids": [1, 2]}', '{"ids": "[1, 2]"}'),
        "minus zero": respelled("move", '{"dx": 0, "dy": 3}', '{"dx": -0.0, "dy": 3}', TYPED),
        "None for null": respelled("find", '{"owner": null}', '{"owner": None}'),
        "False in text": in_text(
            HERMES, '{"path": "x.py", "all": false}', '{"path": "x.py", "all": False}'
        ),
        "single quotes in text": in_text(HERMES, '{"path": "x.py"}', "{'path': 'x.py'}"),
        "escapes in text": in_text(HERMES, '{"path": "müller.py"}', '{"path": "m\\u00fcller.py"}'),
        "blanks in text": in_text(
            HERMES, '{"path": "x.py", "n": 3}', '{"path":"x.py","n":3}', ("whitespace",)
        ),
    }.items()
]
