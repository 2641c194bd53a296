"""Small chat templates in which a prefix breaks, each in a way that published ones do.

All use ChatML's control tokens, which SmolLM2's tokenizer knows, so that
they run without anything that is not in the repository.
"""

_CALLS = """\
{%- macro calls(m) -%}
{%- for c in m.tool_calls or [] -%}
{{- '\\n<tool_call>\\n{"name": ' -}}{{- c.function.name | tojson -}}
{{- ', "arguments": ' -}}{{- c.function.arguments | tojson -}}{{- '}\\n</tool_call>' -}}
{%- endfor -%}
{%- endmacro -%}
"""
_TOOLS = """\
{%- macro tool_list() -%}
{{- '[TOOLS]' -}}
{%- for t in tools -%}{{- t | tojson -}}{{- '\\n' -}}{%- endfor -%}{{- '[/TOOLS]' -}}
{%- endmacro -%}
"""
_PLAIN = """\
{{- '<|im_start|>' ~ m.role ~ '\\n' -}}{{- m.content -}}{{- calls(m) -}}{{- '<|im_end|>\\n' -}}
"""
_ASK = "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
_LAST_USER = """\
{%- set ns = namespace(last=-1) -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
"""


def strips_thinking(opening: str, closing: str) -> str:
    """Keeps the thinking of what came after the newest user message, as Qwen3's does."""
    return f"""{_CALLS}{_LAST_USER}
{{%- for m in messages -%}}
{{{{- '<|im_start|>' ~ m.role ~ '\\n' -}}}}
{{%- if m.role == 'assistant' and m.reasoning_content and loop.index0 > ns.last -%}}
{{{{- '{opening}' ~ m.reasoning_content ~ '{closing}' -}}}}
{{%- endif -%}}
{{{{- m.content -}}}}{{{{- calls(m) -}}}}{{{{- '<|im_end|>\\n' -}}}}
{{%- endfor -%}}{_ASK}"""


def cuts_inline_thinking(opening: str, closing: str) -> str:
    """Cuts thinking out of the text of every reply but the last message, as R1's does."""
    return f"""{_CALLS}
{{%- for m in messages -%}}
{{%- set text = m.content -%}}
{{%- if m.role == 'assistant' and not loop.last and '{closing.strip()}' in text -%}}
{{%- set text = text.split('{closing.strip()}')[-1].lstrip() -%}}
{{%- endif -%}}
{{{{- '<|im_start|>' ~ m.role ~ '\\n' ~ text -}}}}{{{{- calls(m) -}}}}{{{{- '<|im_end|>\\n' -}}}}
{{%- endfor -%}}{_ASK}"""


def empty_thinking(empty: str) -> str:
    """Asks for a reply behind an empty thinking block, which history then lacks."""
    return f"""{_CALLS}
{{%- for m in messages -%}}{_PLAIN}{{%- endfor -%}}
{{%- if add_generation_prompt -%}}{{{{- '<|im_start|>assistant\\n{empty}' -}}}}{{%- endif -%}}"""


def empty_in_last(empty: str) -> str:
    """Writes an empty thinking block for replies of the current turn, and none for older ones."""
    return f"""{_CALLS}{_LAST_USER}
{{%- for m in messages -%}}
{{{{- '<|im_start|>' ~ m.role ~ '\\n' -}}}}
{{%- if m.role == 'assistant' and loop.index0 > ns.last -%}}{{{{- '{empty}' -}}}}{{%- endif -%}}
{{{{- m.content -}}}}{{{{- calls(m) -}}}}{{{{- '<|im_end|>\\n' -}}}}
{{%- endfor -%}}{_ASK}"""


def hoists(joiner: str, *, behind: bool = True) -> str:
    """Joins all system messages in front, wherever they stood."""
    piece = f"ns.text ~ ('{joiner}' if ns.text else '') ~ m.content"
    if not behind:
        piece = f"m.content ~ ('{joiner}' if ns.text else '') ~ ns.text"
    return f"""{_CALLS}{{%- set ns = namespace(text='') -%}}
{{%- for m in messages if m.role == 'system' -%}}{{%- set ns.text = {piece} -%}}{{%- endfor -%}}
{{{{- '<|im_start|>system\\n' ~ ns.text ~ '<|im_end|>\\n' -}}}}
{{%- for m in messages if m.role != 'system' -%}}{_PLAIN}{{%- endfor -%}}{_ASK}"""


def merges(joiner: str, role: str) -> str:
    """Neighbouring messages of one role share a turn."""
    return f"""{_CALLS}
{{%- for m in messages -%}}
{{%- if m.role == '{role}' and loop.previtem and loop.previtem.role == '{role}' -%}}
{{{{- '{joiner}' -}}}}
{{%- else -%}}{{{{- '<|im_start|>' ~ m.role ~ '\\n' -}}}}{{%- endif -%}}
{{{{- m.content -}}}}{{{{- calls(m) -}}}}
{{%- if m.role != '{role}' or not loop.nextitem or loop.nextitem.role != '{role}' -%}}
{{{{- '<|im_end|>\\n' -}}}}
{{%- endif -%}}
{{%- endfor -%}}{_ASK}"""


def tools_in_last_user(opening: str, *, at_end: bool = False) -> str:
    """Writes the tools into the newest user message, as Mistral's does; `opening` introduces
    them."""
    listed = f"{{{{- '{opening}' -}}}}{{{{- tool_list() -}}}}"
    head, tail = ("", listed) if at_end else (listed, "")
    return f"""{_CALLS}{_TOOLS}{_LAST_USER}
{{%- for m in messages -%}}
{{{{- '<|im_start|>' ~ m.role ~ '\\n' -}}}}
{{%- if tools and loop.index0 == ns.last -%}}{head}{{%- endif -%}}
{{{{- m.content -}}}}{{{{- calls(m) -}}}}
{{%- if tools and loop.index0 == ns.last -%}}{tail}{{%- endif -%}}
{{{{- '<|im_end|>\\n' -}}}}
{{%- endfor -%}}{_ASK}"""


def tools_at_end(role: str) -> str:
    """Writes the tools behind all messages, in a turn of their own."""
    return f"""{_CALLS}{_TOOLS}
{{%- for m in messages -%}}{_PLAIN}{{%- endfor -%}}
{{%- if tools -%}}{{{{- '<|im_start|>{role}\\n' -}}}}{{{{- tool_list() -}}}}
{{{{- '<|im_end|>\\n' -}}}}{{%- endif -%}}{_ASK}"""


def with_option(name: str, line: str, default: str) -> str:
    """Writes an option's value into the head of the prompt."""
    return f"""{_CALLS}{{{{- '<|im_start|>system\\n{line}' ~ ({name} | default('{default}')) -}}}}
{{{{- '<|im_end|>\\n' -}}}}
{{%- for m in messages -%}}{_PLAIN}{{%- endfor -%}}{_ASK}"""


def with_switch(name: str, on: str, off: str) -> str:
    """Writes one of two texts into the head of the prompt, by a flag."""
    return f"""{_CALLS}{{{{- '<|im_start|>system\\n' ~ ('{on}' if {name} else '{off}') -}}}}
{{{{- '<|im_end|>\\n' -}}}}
{{%- for m in messages -%}}{_PLAIN}{{%- endfor -%}}{_ASK}"""


def with_date(line: str, form: str) -> str:
    """Writes the date of the call into the head of the prompt, as Llama 3.2's does."""
    return f"""{_CALLS}{{{{- '<|im_start|>system\\n{line}' ~ strftime_now('{form}') -}}}}
{{{{- '<|im_end|>\\n' -}}}}
{{%- for m in messages -%}}{_PLAIN}{{%- endfor -%}}{_ASK}"""
