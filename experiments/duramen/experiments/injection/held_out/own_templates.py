"""Small templates of the half that is only scored on."""

from duramen.experiments.injection import templates

OWN = {
    "f-seed": templates.strips_thinking("<seed:think>", "</seed:think>"),
    "f-triangle": templates.strips_thinking("◁think▷", "◁/think▷"),
    "f-start-end": templates.strips_thinking("<|START_THINKING|>", "<|END_THINKING|>\\n"),
    "f-think-line": templates.strips_thinking("<think>", "</think>\\n"),
    "f-inline-seed": templates.cuts_inline_thinking("<seed:think>", "</seed:think>"),
    "f-inline-triangle": templates.cuts_inline_thinking("◁think▷", "◁/think▷"),
    "f-empty": templates.empty_thinking("<think>\\n\\n</think>\\n"),
    "f-empty-seed": templates.empty_thinking("<seed:think></seed:think>"),
    "f-empty-triangle": templates.empty_thinking("◁think▷◁/think▷"),
    "f-empty-turn": templates.empty_in_last("<think>\\n</think>\\n\\n"),
    "f-empty-turn-seed": templates.empty_in_last("<seed:think>\\n</seed:think>"),
    "f-hoist": templates.hoists(" "),
    "f-hoist-rule": templates.hoists("\\n\\n----------\\n\\n"),
    "f-hoist-newest": templates.hoists("\\n\\n", behind=False),
    "f-merge": templates.merges(" ", "user"),
    "f-merge-rule": templates.merges("\\n\\n---\\n\\n", "user"),
    "f-tools-user": templates.tools_in_last_user("# Functions\\n\\n"),
    "f-tools-under": templates.tools_in_last_user("\\n\\n# Functions\\n\\n", at_end=True),
    "f-tools-turn": templates.tools_at_end("tools"),
    "f-register": templates.with_option("register", "Form of address: ", "neutral"),
    "f-language": templates.with_option("output_language", "Language of answers: ", "English"),
    "f-budget": templates.with_option("thinking_budget", "Think for at most this long: ", "4096"),
    "f-safety": templates.with_option("safety_mode", "Safety mode: ", "NONE"),
    "f-detailed": templates.with_switch(
        "enable_thinking", "detailed thinking on", "detailed thinking off"
    ),
    "f-search": templates.with_switch(
        "web_search", "You can search the web.", "You have no access to the web."
    ),
    "f-today": templates.with_date("Cutting Knowledge Date: June 2024\\nToday Date: ", "%d %B %Y"),
    "f-hour": templates.with_date("Server clock: ", "%Y-%m-%d %H:00"),
    "f-bos": templates.merges("\\n\\n\\n", "system"),
}
