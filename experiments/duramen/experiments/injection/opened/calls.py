"""Arguments written again, in the half that was scored on, and then opened."""

from duramen.experiments.injection.arguments import in_text, respelled, sampled
from duramen.experiments.injection.cases import Variant
from duramen.layout.diagnose.causes import Cause

ACTION = 'Action: {"tool": "grep", "args": {}}'

TYPED: tuple[Cause, ...] = ("history-edited",)  # another type is another value, too

VARIANTS = [
    Variant("re-serialised-arguments", name, make)
    for name, make in {
        "sampled, blank before colons": sampled("book", '{"from" : "OSL", "to" : "BGO"}'),
        "sampled, nested and tight": sampled("book", '{"who":{"name":"Li","age":41},"bags":[1,2]}'),
        "sampled, slashes escaped": sampled("open", '{"url": "https:\\/\\/example.org\\/a"}'),
        "sampled, indented by four": sampled("open", '{\n    "url": "a",\n    "tab": 2\n}'),
        "sampled, escaped Cyrillic": sampled("say", '{"text": "\\u043f\\u0440\\u0438"}'),
        "1.0 for 1, second argument": respelled(
            "pay", '{"amount": 2.5, "ok": 1}', '{"amount": 2.5, "ok": 1.0}'
        ),
        "False for false": respelled("run", '{"dry": false, "n": 1}', '{"dry": False, "n": 1}'),
        "false as text": respelled("run", '{"dry": false}', '{"dry": "false"}', TYPED),
        "text as number": respelled("zip", '{"code": "90210"}', '{"code": 90210}', TYPED),
        "large number as exponent": respelled("id", '{"n": 12000000000000000}', '{"n": 1.2e16}'),
        "object as text": respelled("filter", '{"where": {"a": 1}}', '{"where": "{\\"a\\": 1}"}'),
        "null as text": respelled(
            "find", '{"owner": null, "k": 1}', '{"owner": "null", "k": 1}', TYPED
        ),
        "Python's form in text": in_text(
            ACTION,
            '{"pattern": "a.b", "all": true, "max": null}',
            "{'pattern': 'a.b', 'all': True, 'max': None}",
        ),
        "slashes in text": in_text(ACTION, '{"path": "src/lib"}', '{"path": "src\\/lib"}'),
        "escapes taken out of text": in_text(
            ACTION, '{"pattern": "\\u00e5pen"}', '{"pattern": "åpen"}'
        ),
    }.items()
]
