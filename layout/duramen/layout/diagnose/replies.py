"""A reply that came back otherwise: was it the client, or the template?"""

from duramen.layout.diagnose.causes import Layer
from duramen.layout.diagnose.change import Change
from duramen.layout.diagnose.message_fields import calls_of, content_of, text_of, thought_of
from duramen.layout.diagnose.parting import Parting
from duramen.layout.diagnose.sent import Request
from duramen.layout.diagnose.texts import without_blanks


def reply_layer(change: Change, place: Parting, old: Request | None, new: Request | None) -> Layer:
    """The request, where the message that the client sent back is not what was sampled."""
    if old is None or new is None or place.character is None:
        return "text"
    if place.character < place.prompt_chars or len(new.messages) <= len(old.messages):
        return "text"
    message = new.messages[len(old.messages)]
    if change.cause in ("empty-thinking", "unknown"):
        return "text"
    if change.cause == "thinking-stripped":
        return "text" if thought_of(message) else "request"
    said = str(place.old)[place.prompt_chars :]
    parts = [text_of(content_of(message)), *map(_arguments, calls_of(message))]
    if change.cause == "whitespace" or all(part in said for part in parts):
        return (
            "text" if all(without_blanks(p) in without_blanks(said) for p in parts) else "request"
        )
    return "request"


def _arguments(call: object) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    given = function.get("arguments") if isinstance(function, dict) else None
    return given if isinstance(given, str) else ""
