"""Breaks by template and by ids, of the half that is only scored on; see more_layers."""

from duramen.experiments.injection.by_ids import bos_twice, prompted_otherwise, sampled_otherwise
from duramen.experiments.injection.by_template import (
    client_hoists,
    date,
    option,
    template_hoists,
    template_merges,
    tools_behind,
)
from duramen.experiments.injection.held_out import more_layers
from duramen.experiments.injection.held_out.more_layers import HY3, variants_of
from duramen.experiments.injection.held_out.own_templates import OWN
from duramen.experiments.injection.held_out.tools import CHART, HANDOFF, ORDER, SQL

__all__ = ["OWN", "VARIANTS"]

V32, V4 = "deepseek-ai-DeepSeek-V3.2@deepseek-coder", "deepseek-ai-DeepSeek-V4@deepseek-coder"
LING, MUSE = "inclusionai-ling-3.0-flash@qwen2", "muse-glimmer@gpt-2"
BIELIK, APERTUS = "Bielik-11B-v3.0-Instruct@llama-spm", "Apertus-8B-Instruct@starcoder"

OPTIONS = variants_of(
    "template-option",
    {
        "register": option("f-register", {"register": "informal"}, {"register": "formal"}),
        "register left out": option("f-register", {"register": "informal"}, {}),
        "language given late": option("f-language", {}, {"output_language": "Polish"}),
        "language changed, in kwargs": option(
            "f-language",
            {"chat_template_kwargs": {"output_language": "German"}},
            {"chat_template_kwargs": {"output_language": "French"}},
        ),
        "budget cut": option("f-budget", {"thinking_budget": "16384"}, {"thinking_budget": "1024"}),
        "detailed thinking off": option(
            "f-detailed", {"enable_thinking": True}, {"enable_thinking": False}
        ),
        "detailed thinking on, in kwargs": option(
            "f-detailed", {}, {"chat_template_kwargs": {"enable_thinking": True}}
        ),
        "safety mode": option("f-safety", {"safety_mode": "CONTEXTUAL"}, {"safety_mode": "STRICT"}),
        "web search allowed": option("f-search", {"web_search": False}, {"web_search": True}),
        "date behind the cut-off": date("f-today", 86_400.0 * 3),
        "hour of the template": date("f-hour", 3_700.0),
    },
    {
        "Ling, thinking off": option(LING, {"enable_thinking": True}, {"enable_thinking": False}),
        "Bielik, thinking on": option(BIELIK, {}, {"enable_thinking": True}),
        "DeepSeek V4, most effort": option(
            V4,
            {"thinking": True, "reasoning_effort": "high"},
            {"thinking": True, "reasoning_effort": "max"},
        ),
        "Hy3, effort": option(HY3, {"reasoning_effort": "low"}, {"reasoning_effort": "high"}),
        "Muse, strength": option(
            MUSE, {"reasoning_strength": "medium"}, {"reasoning_strength": "high"}
        ),
        "Apertus, deliberation": option(
            APERTUS, {"enable_thinking": False}, {"enable_thinking": True}
        ),
    },
)

OUTAGE = "Incident 4471: card payments fail in Poland. Offer bank transfer until further notice."
SQL_ONLY = "The warehouse is read-only from now on; do not create temporary tables."
HOIST = variants_of(
    "system-hoist",
    {
        "template, a blank": template_hoists("f-hoist", OUTAGE),
        "template, long rule": template_hoists("f-hoist-rule", OUTAGE),
        "template, newest first": template_hoists("f-hoist-newest", SQL_ONLY),
        "template, from a developer": template_hoists("f-hoist", SQL_ONLY, "developer"),
        "template, mode": template_hoists(
            "f-hoist-rule", "Plan mode is active. Do not edit any file before the plan is approved."
        ),
        "client, incident": client_hoists(OUTAGE, "\n\n", at=3),
        "client, language switch": client_hoists(
            "The customer writes Czech. Answer in Czech.", "\n", at=4
        ),
        "client, supervisor's whisper": client_hoists(
            "<supervisor>Offer a voucher of 10 EUR.</supervisor>", "\n\n", at=5
        ),
        "client, from a developer": client_hoists(SQL_ONLY, "\n\n", at=2, role="developer"),
        "client, reminder with a heading": client_hoists(
            "# Reminder\nAsk before you run migrations.", "\n\n", at=6
        ),
    },
    {
        "Hy3": template_hoists(HY3, OUTAGE),
        "DeepSeek V3.2": template_hoists(V32, SQL_ONLY),
        "DeepSeek V4": template_hoists(V4, OUTAGE),
    },
)

TOOLS_BEHIND = variants_of(
    "input-before-tools",
    {
        f"{name}, {len(tools)} tools": tools_behind(model, tools)
        for name, model in (
            ("with a heading in the newest user message", "f-tools-user"),
            ("under the newest user message", "f-tools-under"),
            ("in a turn of tools", "f-tools-turn"),
        )
        for tools in ((SQL,), (ORDER, HANDOFF), (SQL, CHART, ORDER, HANDOFF))
    },
    {
        f"Mistral Small 3.2, {len(tools)} tools": tools_behind(
            "Mistral-Small-3.2-24B-Instruct-2506@llama-spm", tools
        )
        for tools in ((SQL,), (ORDER, HANDOFF))
    },
)

MERGED = variants_of(
    "role-merge",
    {
        "template, a blank between": template_merges(
            "f-merge", "user", ("Hallo?", "Sind Sie noch da?")
        ),
        "template, rule between": template_merges(
            "f-merge-rule", "user", ("Here is the export.", "Please ignore the last column.")
        ),
    },
    {
        "DeepSeek V4": template_merges(
            V4, "user", ("Dobrý den,", "kde je moje zásilka? Čekám už týden.")
        )
    },
)

FIGURES = {
    "role": "assistant",
    "content": "Umsatz 2024: 1.284.310,55 EUR (+3,8 %)\n\n    davon Rückgaben: -41.207,00 EUR!!",
}
QUERY = {
    "role": "assistant",
    "content": "SELECT customer_id, COUNT(*) AS num_orders\n  FROM orders\n  WHERE net >= 1000;",
}
REPLY = {
    "role": "assistant",
    "content": "Vaše zásilka 20250317 byla předána dopravci; očekávané doručení: 19. 3.",
}
RETOKENISED = variants_of(
    "retokenisation",
    {
        "German figures, signs": sampled_otherwise("chatml", "sign", FIGURES),
        "German figures, blanks": sampled_otherwise("chatml", "blanks", FIGURES),
        "German figures, somewhere": sampled_otherwise("chatml", "any", FIGURES),
        "query, first token that can be": sampled_otherwise("chatml", "first", QUERY),
        "query, a word": sampled_otherwise("chatml", "word", QUERY),
        "query, blanks": sampled_otherwise("chatml", "blanks", QUERY),
        "Czech reply, somewhere": sampled_otherwise("chatml", "any", REPLY),
        "Czech reply, last": sampled_otherwise("chatml", "last", REPLY),
        "recorded reply, somewhere": sampled_otherwise("chatml", "any"),
        "prompt, a word, as reported": prompted_otherwise("chatml", "word"),
        "prompt, last that can be": prompted_otherwise("chatml", "last"),
        "prompt, signs, both on record": prompted_otherwise("chatml", "sign", both=True),
        "prompt, first, both on record": prompted_otherwise("chatml", "first", both=True),
    },
    {
        "StarCoder's tokenizer, query": sampled_otherwise("chatml@starcoder", "word", QUERY),
        "GPT-2's tokenizer, figures": sampled_otherwise("chatml@gpt-2", "digits", FIGURES),
        "Phi's tokenizer, prompt": prompted_otherwise("chatml@phi-3", "word"),
        "DeepSeek's tokenizer, Czech": sampled_otherwise("chatml@deepseek-coder", "any", REPLY),
        "Llama 3's tokenizer, prompt": prompted_otherwise("chatml@llama-bpe", "any", both=True),
    },
)

BOS = variants_of(
    "bos-twice",
    {
        f"own template, {first} then {later}{known}": bos_twice(
            "f-bos", (first, later), recorded=recorded
        )
        for first, later in ((1, 2), (2, 1))
        for known, recorded in (
            ("", (True, True)),
            (", one rendered", (first == 2, later == 2)),
        )
    },
    {
        f"{name}, {counts[0]} then {counts[1]}": bos_twice(model, counts, recorded=(True, True))
        for name, model in (
            ("Bielik", BIELIK),
            ("StepFun", "StepFun3.5-Flash@deepseek-coder"),
            ("LFM", "LFM2.5-8B-A1B@llama-bpe"),
            ("DeepSeek V3.2", V32),
        )
        for counts in ((1, 2), (2, 1))
    },
)

VARIANTS = [
    *more_layers.VARIANTS,
    *(*OPTIONS, *HOIST, *TOOLS_BEHIND),
    *(*MERGED, *RETOKENISED, *BOS),
]
