"""Small chat templates, each with one habit, that the tests of `certify` share."""

TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
PLAIN = f"{{% for m in messages %}}{TURN}{{% endfor %}}{PROMPT}"

TOOLS = "{% if tools %}<tools>{{ tools | tojson }}</tools>\n{% endif %}"
CALLS = "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor %}"
LAST_USER = (
    "{% set ns = namespace(last=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}"
    "{% endfor %}"
)

FULL = (  # keeps all but a new tool
    TOOLS + "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}"
    f"{CALLS}<|im_end|>\n{{% endfor %}}{PROMPT}"
)
STRIPPER = LAST_USER + FULL.replace(
    "{% if m.reasoning_content %}", "{% if m.reasoning_content and loop.index0 > ns.last %}"
)
OPENER = FULL.replace("assistant\n{% endif", "assistant\n<think>\n{% endif").replace(
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}", ""
)
EMPTY_WHEN_OFF = FULL.replace(
    "assistant\n{% endif",
    "assistant\n{% if enable_thinking is defined and enable_thinking is false %}"
    "<think>\n\n</think>\n\n{% endif %}{% endif",
)
KEEPER = STRIPPER.replace("loop.index0 > ns.last", "(keep_thinking or loop.index0 > ns.last)")
HOISTER = (
    "{% for m in messages if m.role == 'system' %}{{ m.content }}\n{% endfor %}"
    + FULL.replace("{% for m in messages %}", "{% for m in messages if m.role != 'system' %}", 1)
)
MOVER = (  # the tools stand in front of the last user message
    "{% set users = messages | selectattr('role', 'equalto', 'user') | list %}"
    + FULL.removeprefix(TOOLS).replace(
        "<|im_start|>{{ m.role }}",
        "{% if tools and m == users[-1] %}<tools>{{ tools | tojson }}</tools>\n{% endif %}"
        "<|im_start|>{{ m.role }}",
    )
)
SYSTEM_MOVER = FULL.replace("{% for m in messages %}", "{% for m in messages[1:] %}", 1).replace(
    "{{ m.role }}\n", "{{ m.role }}\n{% if loop.last %}{{ messages[0].content }}\n{% endif %}"
)
REFUSER = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
REFUSER += FULL
DATED = "Today is {{ strftime_now('%d %b %Y') }}.\n" + FULL
IGNORER = (
    "{% for m in messages if m.role in ['system', 'user', 'assistant'] %}" + TURN + "{% endfor %}"
) + PROMPT
MERGER = (  # neighbours of one role become one turn, results become the user's words
    "{% set ns = namespace(role='') %}{% for m in messages %}"
    "{% set role = 'user' if m.role in ['tool', 'system'] else m.role %}"
    "{% if role != ns.role %}<|{{ role }}|>{% endif %}{{ m.content }}"
    f"{CALLS}{{% set ns.role = role %}}{{% endfor %}}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
NEWLINE = FULL.replace("<|im_start|>{{ m.role }}\n", "<|im_start|>{{ m.role }}:").replace(
    "<|im_start|>assistant\n", "<|im_start|>assistant:\n"
)

TEMPLATES = {
    name.lower().replace("_", "-"): source
    for name, source in globals().copy().items()
    if isinstance(source, str) and name.isupper() and "add_generation_prompt" in source
    and name not in ("PROMPT",)
}  # fmt: skip
