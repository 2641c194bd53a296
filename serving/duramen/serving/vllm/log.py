"""What a vLLM log says about a failure, in one line of text."""

import re

PREFIX = re.compile(r"^\(\w+ pid=\d+\) (?:[A-Z]+ \S+ \S+ \[[^\]]*\] ?)?")
EXCEPTION = re.compile(r"^[\w.]*(?:Error|Exception): ")
POINTS_ELSEWHERE = "See root cause above"  # the API server's last word when its core did not start
MAX_CHARACTERS = 400


def explain_log(text: str) -> str:
    """The last exception that names a cause, else the last line. An indented line goes with it."""
    lines = [PREFIX.sub("", line).rstrip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    raised = [
        index
        for index, line in enumerate(lines)
        if EXCEPTION.match(line) and POINTS_ELSEWHERE not in line
    ]
    if not raised:
        return lines[-1].strip()[:MAX_CHARACTERS] if lines else "it logged nothing"
    said, after = lines[raised[-1]], lines[raised[-1] + 1 : raised[-1] + 2]
    said += "".join(f" {line.strip()}" for line in after if re.match(r" {2}\w", line))
    return said[:MAX_CHARACTERS]
