"""Breaks by template and by ids, of the half that was scored on, and then opened."""

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
from duramen.experiments.injection.opened.tools import FINISH, SHELL, WEATHER
from duramen.experiments.injection.thoughts import (
    all_dropped,
    client_drops,
    empty_asked,
    empty_in_turn,
    template_strips,
)

OWN = {
    "h-channel": templates.strips_thinking("<analysis>\\n", "\\n</analysis>\\n"),
    "h-brackets": templates.strips_thinking("[THINK]", "[/THINK]"),
    "h-scratch": templates.strips_thinking("<scratchpad>", "</scratchpad>\\n\\n"),
    "h-inline": templates.cuts_inline_thinking("<thinking>", "</thinking>"),
    "h-inline-reason": templates.cuts_inline_thinking("<reasoning>", "</reasoning>"),
    "h-empty": templates.empty_thinking("<thinking></thinking>\\n"),
    "h-empty-brackets": templates.empty_thinking("[THINK][/THINK]"),
    "h-empty-think": templates.empty_thinking("<think>\\n</think>\\n"),
    "h-empty-turn": templates.empty_in_last("<thinking>\\n\\n</thinking>\\n"),
    "h-empty-turn-think": templates.empty_in_last("<think> </think>"),
    "h-hoist": templates.hoists("\\n"),
    "h-hoist-rule": templates.hoists("\\n---\\n"),
    "h-merge": templates.merges("\\n", "user"),
    "h-tools-user": templates.tools_in_last_user("You can call:\\n"),
    "h-tools-after": templates.tools_in_last_user("\\nYou can call: ", at_end=True),
    "h-tools-turn": templates.tools_at_end("developer"),
    "h-depth": templates.with_option("thinking_budget", "Budget for thought: ", "2048"),
    "h-locale": templates.with_option("locale", "Locale: ", "en"),
    "h-deep": templates.with_switch("thinking", "Deep mode.", "Quick mode."),
    "h-cite": templates.with_switch("citations", "Cite with [n].", "No citations."),
    "h-day": templates.with_date("Current date: ", "%Y-%m-%d"),
    "h-hour": templates.with_date("It is ", "%A, %d.%m.%Y, %H:%M:%S"),
}

THOUGHT = (
    "Hmm, two things could explain this. Either the index is off by one, which the log would show, "
    "or the file was never flushed.\n\nI check the log before anything else."
)
INLINE = ("<think>", "</think>\n")
REASONED = ("<reasoning>\n", "\n</reasoning>\n")
TAGGED = ("<thinking>\n", "\n</thinking>\n")
GLM, R1 = "GLM-4.7-Flash@qwen2", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B@deepseek-coder"
LLAMA, GPT_OSS = "meta-llama-Llama-3.2-3B-Instruct@llama-bpe", "openai-gpt-oss-120b@gpt-2"
DEEPSEEK, QWEN3 = "deepseek-ai-DeepSeek-V3.1@deepseek-coder", "Qwen-Qwen3-0.6B@qwen2"


THINKING = variants_of(
    "thinking-stripped",
    {
        "template, analysis tags": template_strips("h-channel", THOUGHT, ids=True),
        "template, brackets": template_strips("h-brackets", THOUGHT),
        "template, scratchpad": template_strips("h-scratch", THOUGHT),
        "template, tagged text": template_strips("h-inline", THOUGHT, inline=TAGGED),
        "template, text, ids": template_strips(
            "h-inline-reason", THOUGHT, inline=REASONED, ids=True
        ),
        "client, text of an older reply": client_drops(THOUGHT, which=-1, inline=TAGGED),
        "client, text of the first reply": client_drops(THOUGHT, which=0, inline=INLINE),
        "client, tagged text of the reply": client_drops(THOUGHT, which=None, inline=TAGGED),
        "client, field of the last but one": client_drops(THOUGHT, which=-2),
        "client, one word": client_drops("Okay.", which=None),
        "client, all older replies": all_dropped("Same as before, I look first."),
    },
    {
        "GLM 4.7": template_strips(GLM, THOUGHT),
        "R1 distill": template_strips(
            R1,
            THOUGHT,
            inline=("", "\n</think>\n\n"),
            sampled="<｜end▁of▁sentence｜>",
            options={"enable_thinking": True},
        ),
        "Qwen3, ids": template_strips(QWEN3, THOUGHT, ids=True),
    },
)

EMPTY = variants_of(
    "empty-thinking",
    {
        "asked behind it, long tag": empty_asked("h-empty"),
        "asked behind it, brackets": empty_asked("h-empty-brackets"),
        "asked behind it, one line end": empty_asked("h-empty-think"),
        "in the current turn, long tag": empty_in_turn("h-empty-turn"),
        "in the current turn, a blank": empty_in_turn("h-empty-turn-think"),
        "client strips it, first": client_drops(
            "\n", which=0, inline=("<think>\n", "</think>\n"), cause="empty-thinking"
        ),
        "client strips it, second": client_drops(
            "", which=1, inline=TAGGED, cause="empty-thinking"
        ),
        "client strips it, reply": client_drops(
            "", which=None, inline=("<think>\n\n", "</think>\n\n"), cause="empty-thinking"
        ),
        "client adds it, last": client_drops(
            "\n", which=-1, inline=("<think>", "</think>\n"), cause="empty-thinking", undone=True
        ),
        "client adds it, long tag": client_drops(
            "", which=0, inline=("<thinking>", "</thinking>"), cause="empty-thinking", undone=True
        ),
    },
    {
        "R1 distill": empty_asked(R1),
        "Qwen3, thinking off in kwargs": empty_asked(
            QWEN3, {"chat_template_kwargs": {"enable_thinking": False}}
        ),
    },
)

OPTIONS = variants_of(
    "template-option",
    {
        "budget": option("h-depth", {"thinking_budget": "1024"}, {"thinking_budget": "8192"}),
        "budget dropped": option("h-depth", {"thinking_budget": "512"}, {}),
        "budget in kwargs": option(
            "h-depth", {}, {"chat_template_kwargs": {"thinking_budget": "64"}}
        ),
        "locale": option("h-locale", {"locale": "en"}, {"locale": "pt-BR"}),
        "locale given late": option("h-locale", {}, {"locale": "de"}),
        "mode on": option("h-deep", {"thinking": False}, {"thinking": True}),
        "mode left out": option("h-deep", {"thinking": True}, {}),
        "citations": option("h-cite", {"citations": True}, {"citations": False}),
        "day of the template": date("h-day", 86_400.0 * 2),
        "second of the template": date("h-hour", 41.0),
    },
    {
        "gpt-oss, effort raised": option(GPT_OSS, {}, {"reasoning_effort": "high"}),
        "gpt-oss, identity": option(
            GPT_OSS, {}, {"model_identity": "You are Ada, an assistant of the city library."}
        ),
        "Llama 3.2, date": date(LLAMA, 86_400.0),
    },
)

NOTE = "Note by the operator: the customer's account was frozen this morning; offer no refunds."
HOIST = variants_of(
    "system-hoist",
    {
        "template, one line end": template_hoists("h-hoist", NOTE),
        "template, rule": template_hoists("h-hoist-rule", NOTE),
        "template, short": template_hoists("h-hoist", "Plan mode is off."),
        "template, developer, rule": template_hoists("h-hoist-rule", "Output JSON.", "developer"),
        "client, ruled off": client_hoists(NOTE, "\n---\n", at=3),
        "client, next to the head": client_hoists("Speak Dutch.", "\n\n", at=2),
        "client, far down": client_hoists(NOTE, "\n\n", at=6),
        "client, tag": client_hoists("<policy>no refunds</policy>", "\n", at=4),
        "client, developer, far down": client_hoists(NOTE, "\n", at=5, role="developer"),
        "client, nothing between": client_hoists(" Also: be exact.", "", at=3),
    },
    {"DeepSeek V3.1, short": template_hoists(DEEPSEEK, "Plan mode is off.")},
)

TOOLS_BEHIND = variants_of(
    "input-before-tools",
    {
        f"{name}, {len(tools)} tools": tools_behind(model, tools)
        for name, model in (
            ("in the newest user message, sentence", "h-tools-user"),
            ("behind the newest user message", "h-tools-after"),
            ("in a turn of their own", "h-tools-turn"),
        )
        for tools in ((WEATHER,), (SHELL, FINISH), (FINISH, SHELL, WEATHER))
    },
    {"Mistral Nemo": tools_behind("mistralai-Mistral-Nemo-Instruct-2407@llama-spm", (WEATHER,))},
)

MERGED = variants_of(
    "role-merge",
    {
        "template, hints": template_merges(
            "h-merge", "user", ("It is urgent!", "Sorry, and quiet.")
        ),
        "template, long": template_merges("h-merge", "user", (NOTE, f"Again: {NOTE}")),
    },
    {},
)

SAID = {
    "role": "assistant",
    "content": "Result: {'ok': True, 'n': 100000}\n\n\n\t- mean = 3.14159;\n\t- unchanged!!!",
}
RETOKENISED = variants_of(
    "retokenisation",
    {
        "reply, word": sampled_otherwise("chatml", "word"),
        "reply, last of a call": sampled_otherwise("chatml", "last"),
        "reply, digits or signs": sampled_otherwise("chatml", "sign", SAID),
        "reply, blanks": sampled_otherwise("chatml", "blanks", SAID),
        "reply, first": sampled_otherwise("chatml", "first", SAID),
        "reply, somewhere": sampled_otherwise("chatml", "any", SAID),
        "prompt, first": prompted_otherwise("chatml", "first"),
        "prompt, sign": prompted_otherwise("chatml", "sign"),
        "prompt, somewhere, both": prompted_otherwise("chatml", "any", both=True),
        "prompt, word, both": prompted_otherwise("chatml", "word", both=True),
    },
    {
        "Llama 3's tokenizer": sampled_otherwise("chatml@llama-bpe", "any"),
        "DeepSeek's tokenizer": sampled_otherwise("chatml@deepseek-coder", "word"),
        "Qwen2's tokenizer, prompt": prompted_otherwise("chatml@qwen2", "any"),
    },
)

BOS = variants_of(
    "bos-twice",
    {
        "later, on record": bos_twice("chatml", (1, 2), recorded=(True, True)),
        "earlier, on record": bos_twice("chatml", (2, 1), recorded=(True, True)),
        "later, the other rendered": bos_twice("chatml", (1, 2), recorded=(False, True)),
        "earlier, the other rendered": bos_twice("chatml", (2, 1), recorded=(True, False)),
    },
    {
        f"{name}, {counts[0]} then {counts[1]}": bos_twice(model, counts, recorded=(True, True))
        for name, model in (
            ("Llama 3.2", LLAMA),
            ("DeepSeek", DEEPSEEK),
            ("Phi", "microsoft-Phi-3.5-mini-instruct@phi-3"),
        )
        for counts in ((1, 2), (2, 1))
    },
)

VARIANTS = [
    *(*THINKING, *EMPTY, *OPTIONS, *HOIST, *TOOLS_BEHIND),
    *(*MERGED, *RETOKENISED, *BOS),
]
