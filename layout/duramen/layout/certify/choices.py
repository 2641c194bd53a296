"""Many edits of one template in one template, to be chosen by an argument.

To compile a template takes as long as to render it a hundred times. So that each of many edits can
be tried, all of them are written into the source at once, every one behind a condition on which is
meant; edits that overlap go to another source.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from duramen.layout.certify.rendering import Rendering
from duramen.layout.certify.source import Edit
from duramen.layout.errors import TemplateError
from duramen.layout.template import ChatTemplate

_Group = list[tuple[int, Edit]]  # edits of one place, with their numbers


def tried(rendering: Rendering, edits: Sequence[Edit]) -> Iterator[tuple[Edit, Rendering]]:
    """Every edit, with a rendering that writes what the edited template would write."""
    source = rendering.template.source
    choice = "chosen_edit"
    while choice in source:
        choice += "_"
    for layer in _layers(edits):
        yield from _tried(rendering, choice, layer)


def _tried(
    rendering: Rendering, choice: str, layer: Sequence[_Group]
) -> Iterator[tuple[Edit, Rendering]]:
    source = rendering.template.source
    for group in reversed(layer):
        first = group[0][1]
        written = f"({source[first.start : first.end] or repr('')})"
        for number, edit in reversed(group):
            written = f"({edit.text} if {choice} == {number} else {written})"
        place = f"{first.before}{written}{first.after}"
        source = source[: first.start] + place + source[first.end :]
    try:
        template = ChatTemplate(source, rendering.template.specials)
    except TemplateError:  # one of them is no expression there
        half = len(layer) // 2
        for part in (layer[:half], layer[half:]) if half else ():
            yield from _tried(rendering, choice, part)
        return
    for group in layer:
        for number, edit in group:
            yield edit, Rendering(template, {**rendering.arguments, choice: number})


def _layers(edits: Sequence[Edit]) -> list[list[_Group]]:
    """Groups of edits at one place each; those of a layer do not overlap, and are in order."""
    numbered = sorted(enumerate(edits, 1), key=lambda item: (_place(item[1]), item[0]))
    layers: list[list[_Group]] = []
    for _, items in groupby(numbered, key=lambda item: _place(item[1])):
        group = list(items)
        start = group[0][1].start
        free = (layer for layer in layers if layer[-1][0][1].end <= start)
        layer = next(free, None)
        if layer is None:
            layers.append([group])
        else:
            layer.append(group)
    return layers


def _place(edit: Edit) -> tuple[int, int, str, str]:
    return edit.start, edit.end, edit.before, edit.after
