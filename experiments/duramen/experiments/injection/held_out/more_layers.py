"""Thinking of the half that is only scored on: stripped, and empty."""

from duramen.experiments.injection.cases import Make, Variant
from duramen.experiments.injection.thoughts import (
    all_dropped,
    client_drops,
    empty_asked,
    empty_in_turn,
    template_strips,
)
from duramen.layout.diagnose.causes import Cause

THOUGHT = (
    "The customer is angry because the parcel is late. The carrier's page says that it left the "
    "depot yesterday.\nSo a refund would be too early: I apologise, give the date, and offer to "
    "write again tomorrow."
)
PLAN = "Group by region first, then compare with last year; returns must be left out of both."
GERMAN = "Der Kunde möchte stornieren. Die Frist ist noch nicht abgelaufen, also geht das."
THINK = ("<think>\n", "\n</think>\n\n")
TIGHT = ("<think>", "</think>")
SEED = ("<seed:think>", "</seed:think>")
TRIANGLE = ("◁think▷", "◁/think▷")
HY3, MINIMAX = "tencent-Hy3@qwen2", "MiniMax-M2@gpt-2"
MINICPM, RWKV = "openbmb-MiniCPM5-1B@qwen2", "llama-cpp-rwkv-world@starcoder"


def variants_of(cause: Cause, makes: dict[str, Make], published: dict[str, Make]) -> list[Variant]:
    return [
        *(Variant(cause, name, make) for name, make in makes.items()),
        *(Variant(cause, name, make, published=True) for name, make in published.items()),
    ]


THINKING = variants_of(
    "thinking-stripped",
    {
        "template, seed tags": template_strips("f-seed", THOUGHT),
        "template, seed tags, ids": template_strips("f-seed", PLAN, ids=True),
        "template, triangles": template_strips("f-triangle", THOUGHT),
        "template, start and end": template_strips("f-start-end", PLAN),
        "template, think on one line, ids": template_strips("f-think-line", GERMAN, ids=True),
        "template, seed tags in the text": template_strips("f-inline-seed", THOUGHT, inline=SEED),
        "template, triangles in the text, ids": template_strips(
            "f-inline-triangle", PLAN, inline=TRIANGLE, ids=True
        ),
        "client, field of the second reply": client_drops(PLAN, which=1),
        "client, field of the reply, German": client_drops(GERMAN, which=None),
        "client, text of the reply, tight": client_drops(THOUGHT, which=None, inline=TIGHT),
        "client, text of the last reply": client_drops(PLAN, which=-1, inline=THINK),
        "client, seed tags of the first reply": client_drops(THOUGHT, which=0, inline=SEED),
        "client, field called reasoning, first": client_drops(THOUGHT, which=0, field="reasoning"),
        "client, all older replies, German": all_dropped(GERMAN),
    },
    {
        "MiniMax M2": template_strips(MINIMAX, THOUGHT),
        "MiniMax M2, in the text": template_strips(MINIMAX, PLAN, inline=THINK),
        "MiniCPM5": template_strips(MINICPM, THOUGHT),
        "LFM2.5, in the text": template_strips("LFM2.5-8B-A1B@llama-bpe", GERMAN, inline=THINK),
        "Hy3, high effort": template_strips(HY3, THOUGHT, options={"reasoning_effort": "high"}),
    },
)

EMPTY = variants_of(
    "empty-thinking",
    {
        "asked behind think tags": empty_asked("f-empty"),
        "asked behind it, seed tags": empty_asked("f-empty-seed"),
        "asked behind it, triangles": empty_asked("f-empty-triangle"),
        "in the current turn, one line end": empty_in_turn("f-empty-turn"),
        "in the current turn, seed tags": empty_in_turn("f-empty-turn-seed"),
        "client strips it, tight": client_drops("", which=0, inline=TIGHT, cause="empty-thinking"),
        "client strips it, seed tags": client_drops(
            "", which=-1, inline=SEED, cause="empty-thinking"
        ),
        "client strips it from the reply": client_drops(
            "", which=None, inline=THINK, cause="empty-thinking"
        ),
        "client adds it to the last reply": client_drops(
            "", which=-1, inline=THINK, cause="empty-thinking", undone=True
        ),
        "client adds it, tight, second": client_drops(
            "", which=1, inline=("<think>", "</think>\n\n"), cause="empty-thinking", undone=True
        ),
    },
    {
        "MiniCPM5, thinking off": empty_asked(MINICPM, {"enable_thinking": False}),
        "RWKV, thinking off in kwargs": empty_asked(
            RWKV, {"chat_template_kwargs": {"enable_thinking": False}}
        ),
        "StepFun, in the current turn": empty_in_turn("StepFun3.5-Flash@llama-bpe"),
    },
)

VARIANTS = [*THINKING, *EMPTY]
