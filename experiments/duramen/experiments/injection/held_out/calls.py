"""Arguments written again, in the half that is only scored on."""

from duramen.experiments.injection.arguments import in_text, respelled, sampled
from duramen.experiments.injection.cases import Variant
from duramen.layout.diagnose.causes import Cause

REACT = "Thought: I need the figures.\nAction: run_sql\nAction Input: {}"
TAGGED = "<function=lookup_order>{}</function>"
VALUE: tuple[Cause, ...] = ("history-edited",)  # another value, too, if one does not know why
BLANKS: tuple[Cause, ...] = ("whitespace",)

VARIANTS = [
    Variant("re-serialised-arguments", name, make)
    for name, make in {
        "sampled, trailing zero of a price": sampled(
            "issue_refund", '{"order_id": "DE-204417", "amount": 19.90}'
        ),
        "sampled, umlauts escaped": sampled(
            "send_reply", '{"text": "Sch\\u00f6ne Gr\\u00fc\\u00dfe aus K\\u00f6ln"}'
        ),
        "sampled, emoji as surrogates": sampled(
            "send_reply", '{"text": "Sent \\ud83d\\ude80", "channel": "chat"}'
        ),
        "sampled, no blank behind colons": sampled(
            "run_sql", '{"query":"SELECT region, SUM(net) FROM sales GROUP BY 1", "limit":50}'
        ),
        "sampled, indented by tabs": sampled(
            "plot_chart", '{\n\t"kind": "bar",\n\t"y": ["net"]\n}'
        ),
        "sampled, padded inside braces and brackets": sampled(
            "jira_create_issue", '{ "labels": [ "billing", "sev2" ], "points": 3 }'
        ),
        "sampled, exponent": sampled("resize", '{"bytes": 2.5e3, "dry_run": true}'),
        "whole float through JavaScript": respelled(
            "issue_refund",
            '{"order_id": "FR-118302", "amount": 25.0}',
            '{"order_id": "FR-118302", "amount": 25}',
        ),
        "long id through JavaScript": respelled(
            "get_customer",
            '{"customer_id": 9007199254740993}',
            '{"customer_id": 9007199254740992}',
            VALUE,
        ),
        "unset fields left out": respelled(
            "lookup_order",
            '{"order_id": "PL-500211", "country": null}',
            '{"order_id": "PL-500211"}',
            VALUE,
        ),
        "defaults filled in": respelled(
            "run_sql", '{"query": "SELECT 1"}', '{"query": "SELECT 1", "timeout_s": 30}', VALUE
        ),
        "encoded twice": respelled(
            "lookup_order",
            '{"order_id": "DE-204417"}',
            '"{\\"order_id\\": \\"DE-204417\\"}"',
        ),
        "printed by Python": respelled(
            "lookup_order",
            '{"order_id": "DE-204417", "country": "DE"}',
            "{'order_id': 'DE-204417', 'country': 'DE'}",
        ),
        "true as one": respelled(
            "set_flag", '{"name": "vip", "on": true}', '{"name": "vip", "on": 1}', VALUE
        ),
        "Python's form behind Action Input": in_text(
            REACT,
            '{"query": "SELECT * FROM orders", "explain": false}',
            "{'query': 'SELECT * FROM orders', 'explain': False}",
        ),
        "signs escaped as Go does": in_text(
            REACT,
            '{"query": "SELECT id FROM t WHERE net > 100 AND net < 900"}',
            '{"query": "SELECT id FROM t WHERE net \\u003e 100 AND net \\u003c 900"}',
        ),
        "accents escaped in a tagged call": in_text(
            TAGGED, '{"city": "Besançon"}', '{"city": "Besan\\u00e7on"}'
        ),
        "tight in a tagged call": in_text(
            TAGGED,
            '{"order_id": "DE-204417", "country": "DE"}',
            '{"order_id":"DE-204417","country":"DE"}',
            BLANKS,
        ),
    }.items()
]
