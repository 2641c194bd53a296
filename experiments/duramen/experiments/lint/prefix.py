"""Whether what all sessions begin with is long enough to hit at all, by a model's own template."""

from duramen.experiments.layouts.model import Model
from duramen.experiments.lint.bodies import GivenBody
from duramen.experiments.lint.finding import Finding
from duramen.experiments.trajectory import Call
from duramen.experiments.why.rendering import Renderer
from duramen.experiments.why.roots import root_of
from duramen.layout.diagnose.sent import Request
from duramen.layout.errors import TemplateError


def short_prefix(given: GivenBody, model: Model, unit_tokens: int) -> Finding | None:
    """None too for a body without system text and tools, or that the template refuses."""
    body = given.read
    if not body.messages:
        return None
    call = Call(body.messages, None, tools=body.tools, sending=body.sending)
    renderer = Renderer(model)
    try:
        rendered = renderer.render(renderer.setting(body.tools, call, 0.0), body.messages)
    except TemplateError:
        return None
    request = Request(body.messages, body.tools, body.sending.options, body.sending.keys)
    root = root_of("", 0, rendered, request)
    if root is None or root.num_tokens >= unit_tokens:
        return None
    what = f"system text and tools are {root.num_tokens} tokens; a unit is {unit_tokens}"
    return given.finding("short-prefix", (), what, None)
