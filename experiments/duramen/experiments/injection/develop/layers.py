"""Breaks by template and by ids, of the half to develop on."""

from duramen.experiments.injection import templates
from duramen.experiments.injection.by_ids import bos_twice, prompted_otherwise, sampled_otherwise
from duramen.experiments.injection.by_template import (
    client_hoists,
    date,
    option,
    template_hoists,
    template_merges,
    tools_behind,
)
from duramen.experiments.injection.cases import variants_of
from duramen.experiments.injection.develop.tools import NOTE, PING, SEARCH
from duramen.experiments.injection.thoughts import (
    all_dropped,
    client_drops,
    empty_asked,
    empty_in_turn,
    template_strips,
)

OWN = {
    "d-think": templates.strips_thinking("<think>\\n", "\\n</think>\\n\\n"),
    "d-thought": templates.strips_thinking("<thought>", "</thought>"),
    "d-reasoning": templates.strips_thinking("[reasoning]\\n", "\\n[/reasoning]\\n"),
    "d-inline": templates.cuts_inline_thinking("<think>", "</think>"),
    "d-empty": templates.empty_thinking("<think>\\n\\n</think>\\n\\n"),
    "d-empty-short": templates.empty_thinking("<think></think>"),
    "d-empty-thought": templates.empty_thinking("<thought>\\n</thought>\\n"),
    "d-empty-turn": templates.empty_in_last("<think>\\n\\n</think>\\n\\n"),
    "d-empty-turn-short": templates.empty_in_last("<think></think>\\n"),
    "d-hoist": templates.hoists("\\n\\n"),
    "d-hoist-front": templates.hoists("\\n", behind=False),
    "d-merge": templates.merges("\\n\\n", "user"),
    "d-tools-user": templates.tools_in_last_user("[AVAILABLE]"),
    "d-tools-user-end": templates.tools_in_last_user("", at_end=True),
    "d-tools-end": templates.tools_at_end("system"),
    "d-effort": templates.with_option("reasoning_effort", "Reasoning: ", "medium"),
    "d-persona": templates.with_option("assistant_name", "Your name is ", "Aria"),
    "d-switch": templates.with_switch("enable_thinking", "/think", "/no_think"),
    "d-strict": templates.with_switch("strict_tools", "Call tools by schema.", "Free form."),
    "d-date": templates.with_date("Today: ", "%d %b %Y"),
    "d-minute": templates.with_date("Time: ", "%Y-%m-%d %H:%M"),
}

THOUGHT = (
    "The user wants the second value. First I should look at how it is read, then compare it with "
    "what the test expects, and only then change anything."
)
INLINE = ("<think>\n", "\n</think>\n\n")
QWEN3, SMOLLM3 = "Qwen-Qwen3-0.6B@qwen2", "HuggingFaceTB-SmolLM3-3B@llama-bpe"
GPT_OSS, LLAMA = "openai-gpt-oss-120b@gpt-2", "meta-llama-Llama-3.1-8B-Instruct@llama-bpe"


THINKING = variants_of(
    "thinking-stripped",
    {
        "template, field": template_strips("d-think", THOUGHT),
        "template, field, ids": template_strips("d-think", THOUGHT, ids=True),
        "template, other tags": template_strips("d-thought", THOUGHT),
        "template, brackets": template_strips("d-reasoning", THOUGHT, ids=True),
        "template, in the text": template_strips("d-inline", THOUGHT, inline=INLINE),
        "client, field of the reply": client_drops(THOUGHT, which=None),
        "client, field of an older reply": client_drops(THOUGHT, which=0),
        "client, text of the reply": client_drops(THOUGHT, which=None, inline=INLINE),
        "client, text of an older reply": client_drops(THOUGHT, which=1, inline=INLINE),
        "client, field called reasoning": client_drops(THOUGHT, which=-1, field="reasoning"),
        "client, all older replies": all_dropped(THOUGHT),
    },
    {
        "Qwen3": template_strips(QWEN3, THOUGHT),
        "Qwen3, in the text": template_strips(QWEN3, THOUGHT, inline=INLINE),
    },
)

EMPTY = variants_of(
    "empty-thinking",
    {
        "asked behind it": empty_asked("d-empty"),
        "asked behind it, one line": empty_asked("d-empty-short"),
        "asked behind it, other tags": empty_asked("d-empty-thought"),
        "in the current turn": empty_in_turn("d-empty-turn"),
        "in the current turn, one line": empty_in_turn("d-empty-turn-short"),
        "client strips it": client_drops("", which=0, inline=INLINE, cause="empty-thinking"),
        "client strips it, last reply": client_drops(
            "", which=-1, inline=("<think></think>\n", ""), cause="empty-thinking"
        ),
        "client strips it, reply": client_drops(
            "\n", which=None, inline=("<think>", "</think>\n\n"), cause="empty-thinking"
        ),
        "client adds it": client_drops(
            "", which=0, inline=INLINE, cause="empty-thinking", undone=True
        ),
        "client adds it, blank": client_drops(
            " ", which=1, inline=("<think>", "</think>"), cause="empty-thinking", undone=True
        ),
    },
    {"Qwen3, thinking off": empty_asked(QWEN3, {"enable_thinking": False})},
)

OPTIONS = variants_of(
    "template-option",
    {
        "effort raised": option(
            "d-effort", {"reasoning_effort": "low"}, {"reasoning_effort": "high"}
        ),
        "effort dropped": option("d-effort", {"reasoning_effort": "high"}, {}),
        "effort first given": option("d-effort", {}, {"reasoning_effort": "minimal"}),
        "name": option("d-persona", {"assistant_name": "Aria"}, {"assistant_name": "Bruno"}),
        "thinking off": option("d-switch", {"enable_thinking": True}, {"enable_thinking": False}),
        "thinking on": option("d-switch", {}, {"enable_thinking": True}),
        "in chat_template_kwargs": option(
            "d-switch",
            {"chat_template_kwargs": {"enable_thinking": True}},
            {"chat_template_kwargs": {"enable_thinking": False}},
        ),
        "own flag": option("d-strict", {"strict_tools": False}, {"strict_tools": True}),
        "date of the template": date("d-date", 90_000.0),
        "minute of the template": date("d-minute", 130.0),
    },
    {
        "SmolLM3, thinking off": option(
            SMOLLM3, {}, {"enable_thinking": False}, ("empty-thinking",)
        ),
        "gpt-oss, effort": option(
            GPT_OSS, {"reasoning_effort": "medium"}, {"reasoning_effort": "low"}
        ),
        "Llama 3.1, date": option(
            LLAMA, {"date_string": "26 Jul 2024"}, {"date_string": "27 Jul 2024"}, ("clock",)
        ),
    },
)

RULE = "From now on, answer in French and keep every answer under forty words."
HOIST = variants_of(
    "system-hoist",
    {
        "template": template_hoists("d-hoist", RULE),
        "template, in front": template_hoists("d-hoist-front", RULE),
        "template, developer": template_hoists("d-hoist", RULE, "developer"),
        "template, reminder": template_hoists("d-hoist", "<reminder>Stay in scope.</reminder>"),
        "client, blank line": client_hoists(RULE, "\n\n", at=3),
        "client, line end": client_hoists(RULE, "\n", at=2),
        "client, late": client_hoists("The user is in a hurry.", "\n\n", at=5),
        "client, developer": client_hoists("Use metric units.", "\n\n", at=3, role="developer"),
        "client, heading": client_hoists("## Plan mode\nDo not edit files.", "\n\n", at=4),
        "client, blank": client_hoists("Be kind.", " ", at=2),
    },
    {"DeepSeek V3.1": template_hoists("deepseek-ai-DeepSeek-V3.1@deepseek-coder", RULE)},
)

TOOLS_BEHIND = variants_of(
    "input-before-tools",
    {
        f"{name}, {len(tools)} tools": tools_behind(model, tools)
        for name, model in (
            ("in the newest user message", "d-tools-user"),
            ("behind the newest user text", "d-tools-user-end"),
            ("behind all messages", "d-tools-end"),
        )
        for tools in ((SEARCH,), (SEARCH, NOTE), (PING, NOTE, SEARCH))
    },
    {
        "Mistral Nemo": tools_behind(
            "mistralai-Mistral-Nemo-Instruct-2407@llama-spm", (SEARCH, NOTE)
        )
    },
)

MERGED = variants_of(
    "role-merge",
    {
        "template, user": template_merges("d-merge", "user", ("Open the log.", "And the config.")),
        "template, short": template_merges("d-merge", "user", ("Hm", "ok")),
    },
    {},
)

SAID = {
    "role": "assistant",
    "content": "I counted 20480 rows,\n\n  of which 1337 (6.5%) are `None`; see report_final.csv.",
}
RETOKENISED = variants_of(
    "retokenisation",
    {
        "reply, first": sampled_otherwise("chatml", "first"),
        "reply, last": sampled_otherwise("chatml", "last"),
        "reply, anywhere": sampled_otherwise("chatml", "any"),
        "reply, in a word": sampled_otherwise("chatml", "word"),
        "reply, in signs": sampled_otherwise("chatml", "sign", SAID),
        "reply, in blanks": sampled_otherwise("chatml", "blanks", SAID),
        "prompt, anywhere": prompted_otherwise("chatml", "any"),
        "prompt, in a word": prompted_otherwise("chatml", "word"),
        "prompt, last": prompted_otherwise("chatml", "last", both=True),
        "prompt, in blanks": prompted_otherwise("chatml", "blanks", both=True),
    },
    {
        "Qwen2's tokenizer": sampled_otherwise("chatml@qwen2", "any"),
        "Llama 3's tokenizer, digits": sampled_otherwise("chatml@llama-bpe", "digits", SAID),
    },
)

BOS = variants_of(
    "bos-twice",
    {
        "later call, both on record": bos_twice("chatml", (1, 2), recorded=(True, True)),
        "earlier call, both on record": bos_twice("chatml", (2, 1), recorded=(True, True)),
        "later call, it alone on record": bos_twice("chatml", (1, 2), recorded=(False, True)),
        "earlier call, it alone on record": bos_twice("chatml", (2, 1), recorded=(True, False)),
    },
    {
        f"{name}, {counts[0]} then {counts[1]}{known}": bos_twice(model, counts, recorded=recorded)
        for name, model in (("Llama 3.1", LLAMA), ("Llama's SentencePiece", "d-think@llama-spm"))
        for counts in ((1, 2), (2, 1))
        for known, recorded in (("", (True, True)),)
    }
    | {
        "Llama 3.1, later rendered": bos_twice(LLAMA, (2, 1), recorded=(True, False)),
        "Llama 3.1, earlier rendered": bos_twice(LLAMA, (1, 2), recorded=(False, True)),
    },
)

VARIANTS = [
    *(*THINKING, *EMPTY, *OPTIONS, *HOIST, *TOOLS_BEHIND),
    *(*MERGED, *RETOKENISED, *BOS),
]
