"""Decides from a chat template's syntax tree whether messages are rendered independently.

A template is *local* when the text of message i is a function of message i, its direct
neighbours, the first message and fixed arguments. Then render(first + window + new) ends in the
same text as render(all + new), and only the window has to be rendered. The test is syntactic and
errs towards "no": a template that fails it is rendered whole, which is slower and just as exact.
"""

from collections import Counter

from jinja2 import nodes

_NEAR = {"first", "last", "previtem", "nextitem"}  # what `loop` may be asked
_STATEFUL = {"cycler", "joiner", "lipsum"}  # globals that remember or roll dice


def why_not_local(tree: nodes.Template) -> str | None:
    """The first construct that reaches further than a neighbour; None if the template is local."""
    try:
        _check_macros(tree)
        scan = _Scan(_aliases(tree))
        scan.visit(tree, inside=None)
    except _FarReach as found:
        return str(found)
    return None if scan.num_loops == 1 else f"it loops over the messages {scan.num_loops} times"


class _FarReach(Exception):
    def __init__(self, node: nodes.Node, what: str) -> None:
        super().__init__(f"line {node.lineno}: {what}")


class _Scan:
    """One walk over the tree. `inside` is the loop that the name `loop` means at this place."""

    def __init__(self, aliases: set[str]) -> None:
        self.aliases = aliases
        self.num_loops = 0
        self.message_loop: nodes.For | None = None

    def visit(self, node: nodes.Node, inside: nodes.For | None) -> None:
        if self._is_allowed(node, inside):
            return
        if isinstance(node, nodes.For):
            self._visit_for(node, inside)
            return
        if isinstance(node, nodes.Macro | nodes.CallBlock):
            inside = None
        self._check(node, inside)
        asks_truth = isinstance(node, nodes.If | nodes.CondExpr | nodes.And | nodes.Or | nodes.Not)
        for child in node.iter_child_nodes():
            if not (asks_truth and self._is_messages(child)):
                self.visit(child, inside)

    def _visit_for(self, loop: nodes.For, outer: nodes.For | None) -> None:
        if not self._is_messages(loop.iter):
            self.visit(loop.iter, outer)
        elif loop.test is not None or loop.recursive or self.message_loop is not None:
            raise _FarReach(loop, "the message loop is filtered, recursive or nested")
        else:
            self.num_loops += 1
            self.message_loop = loop
        for child in loop.body if loop.test is None else [loop.test, *loop.body]:
            self.visit(child, loop)
        if self.message_loop is loop:
            self.message_loop = None
        for child in loop.else_:
            self.visit(child, outer)

    def _check(self, node: nodes.Node, inside: nodes.For | None) -> None:
        if isinstance(node, nodes.Name) and node.ctx == "load":
            if node.name in self.aliases:
                raise _FarReach(node, f"`{node.name}` is used beyond the first message")
            if node.name in _STATEFUL:
                raise _FarReach(node, f"`{node.name}` keeps state")
            if node.name == "loop" and inside is not None and inside is self.message_loop:
                raise _FarReach(node, "`loop` counts messages")
        if self.message_loop is not None:
            if isinstance(node, nodes.NSRef):
                raise _FarReach(node, f"`{node.name}.{node.attr}` is carried over messages")
            if isinstance(node, nodes.Break) and inside is self.message_loop:
                raise _FarReach(node, "the message loop is left early")
        if isinstance(node, nodes.Include | nodes.Import | nodes.FromImport | nodes.Extends):
            raise _FarReach(node, "another template is loaded")
        if isinstance(node, nodes.Filter) and node.name == "random":
            raise _FarReach(node, "`random` rolls dice")

    def _is_allowed(self, node: nodes.Node, inside: nodes.For | None) -> bool:
        """Expressions that name the messages or the loop, yet look no further than a neighbour."""
        if isinstance(node, nodes.Assign):
            return self._is_messages(node.node) and isinstance(node.target, nodes.Name)
        if isinstance(node, nodes.Test):
            return node.name in ("defined", "undefined") and self._is_messages(node.node)
        if isinstance(node, nodes.Getitem) and self._is_messages(node.node):
            return _is_first(node.arg) or self._is_neighbour(node.arg, inside)
        if isinstance(node, nodes.Getattr):
            return self._is_loop(node.node, inside) and node.attr in _NEAR
        if isinstance(node, nodes.Compare):
            return self._is_position(node.expr, inside) and all(
                isinstance(o.expr, nodes.Const) and o.expr.value in (0, 1) for o in node.ops
            )
        return False

    def _is_messages(self, node: nodes.Node) -> bool:
        """`messages`, an alias of it, or either without its first element."""
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            piece = node.arg
            bounded = piece.stop is None and piece.step is None and _constant(piece.start) in (0, 1)
            return bounded and self._is_messages(node.node)
        return isinstance(node, nodes.Name) and node.name in self.aliases

    def _is_loop(self, node: nodes.Node, inside: nodes.For | None) -> bool:
        here = inside is not None and inside is self.message_loop
        return here and isinstance(node, nodes.Name) and node.name == "loop"

    def _is_position(self, node: nodes.Node, inside: nodes.For | None) -> bool:
        if isinstance(node, nodes.Getattr) and node.attr in ("index", "index0"):
            return self._is_loop(node.node, inside)
        return False

    def _is_neighbour(self, node: nodes.Node, inside: nodes.For | None) -> bool:
        """loop.index0 or loop.index, at most one off."""
        if isinstance(node, nodes.Add | nodes.Sub):
            return self._is_position(node.left, inside) and _constant(node.right) == 1
        return self._is_position(node, inside)


def _check_macros(tree: nodes.Template) -> None:
    """A macro may be called for every message: a namespace that it writes must be its own."""
    assigned = Counter(_targets(tree))
    for macro in tree.find_all(nodes.Macro):
        inside = Counter(_targets(macro))
        for written in macro.find_all(nodes.NSRef):
            if not inside[written.name] or inside[written.name] != assigned[written.name]:
                raise _FarReach(written, f"a macro writes `{written.name}.{written.attr}`")


def _targets(node: nodes.Node) -> list[str]:
    targets = [assign.target for assign in node.find_all(nodes.Assign)]
    return [target.name for target in targets if isinstance(target, nodes.Name)]


def _aliases(tree: nodes.Template) -> set[str]:
    """Names that stand for the messages, or for the messages without the first."""
    scan = _Scan({"messages"})
    size = 0
    while len(scan.aliases) > size:
        size = len(scan.aliases)
        for assign in tree.find_all(nodes.Assign):
            if isinstance(assign.target, nodes.Name) and scan._is_messages(assign.node):
                scan.aliases.add(assign.target.name)
    return scan.aliases


def _is_first(node: nodes.Node) -> bool:
    return _constant(node) == 0


def _constant(node: nodes.Node | None) -> object:
    return node.value if isinstance(node, nodes.Const) else None
