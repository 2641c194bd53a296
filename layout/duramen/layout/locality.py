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
_LAZY = {"batch", "items", "map", "reject", "rejectattr", "reverse"}  # their result is used up
_LAZY |= {"select", "selectattr", "slice", "unique"}
_CAPTURES = nodes.Macro | nodes.CallBlock | nodes.AssignBlock | nodes.FilterBlock | nodes.Block


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
    """One walk over the tree. `inside` is the loop that the name `loop` means at this place.

    `aliases`: name -> how many of the first messages it leaves out, 0 or 1.
    """

    def __init__(self, aliases: dict[str, int]) -> None:
        self.aliases = aliases
        self.num_loops = 0
        self.num_captures = 0  # constructs around this place that repeat or keep what it writes
        self.message_loop: nodes.For | None = None

    def visit(self, node: nodes.Node, inside: nodes.For | None) -> None:
        if self._is_allowed(node, inside):
            return
        if isinstance(node, nodes.For):
            self._visit_for(node, inside)
            return
        self._check(node, inside)
        self.num_captures += isinstance(node, _CAPTURES)
        tested = _tested(node)
        for child in node.iter_child_nodes():
            if child is tested:
                self._visit_test(child, inside)
            elif _is_lazy(child) and not isinstance(node, nodes.Filter | nodes.Operand):
                raise _FarReach(child, "an iterator is kept, which may be used up")
            else:
                self.visit(child, inside)
        self.num_captures -= isinstance(node, _CAPTURES)

    def _visit_test(self, node: nodes.Node, inside: nodes.For | None) -> None:
        """Only the truth of `node` matters: there are messages in any window."""
        if isinstance(node, nodes.And | nodes.Or):
            self._visit_test(node.left, inside)
            self._visit_test(node.right, inside)
        elif self._shift(node) is None:
            self.visit(node, inside)

    def _visit_for(self, loop: nodes.For, outer: nodes.For | None) -> None:
        is_message_loop = self._shift(loop.iter) is not None
        if not is_message_loop:
            self.visit(loop.iter, outer)
        elif self.num_captures:
            raise _FarReach(loop, "what the message loop writes is repeated or kept")
        elif loop.test is not None or loop.recursive or self.message_loop is not None:
            raise _FarReach(loop, "the message loop is filtered, recursive or nested")
        else:
            self.num_loops += 1
            self.message_loop = loop
        self.num_captures += not is_message_loop
        for child in loop.body if loop.test is None else [loop.test, *loop.body]:
            self.visit(child, loop)
        self.num_captures -= not is_message_loop
        if is_message_loop:
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
            return self._shift(node.node) is not None and isinstance(node.target, nodes.Name)
        if isinstance(node, nodes.Test):
            return node.name in ("defined", "undefined") and self._shift(node.node) is not None
        if isinstance(node, nodes.Getitem) and self._shift(node.node) is not None:
            return _is_first(node.arg) or self._is_neighbour(node.arg, inside)
        if isinstance(node, nodes.Getattr):
            return self._is_loop(node.node, inside) and node.attr in _NEAR
        if isinstance(node, nodes.Compare):
            return self._is_position(node.expr, inside) and all(
                isinstance(o.expr, nodes.Const) and o.expr.value in (0, 1) for o in node.ops
            )
        return False

    def _shift(self, node: nodes.Node) -> int | None:
        """Messages that `node` leaves out in front, if it is `messages`, an alias of it, or either
        without its first element; None if it is something else or leaves out more than one."""
        if isinstance(node, nodes.Name):
            return self.aliases.get(node.name)
        if not (isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)):
            return None
        base, piece = self._shift(node.node), node.arg
        start = _constant(piece.start)
        if base is None or piece.stop is not None or piece.step is not None:
            return None
        return base + int(start) if start in (0, 1) and base + int(start) <= 1 else None

    def _is_loop(self, node: nodes.Node, inside: nodes.For | None) -> bool:
        here = inside is not None and inside is self.message_loop
        return here and isinstance(node, nodes.Name) and node.name == "loop"

    def _is_position(self, node: nodes.Node, inside: nodes.For | None) -> bool:
        if isinstance(node, nodes.Getattr) and node.attr in ("index", "index0"):
            return self._is_loop(node.node, inside)
        return False

    def _is_neighbour(self, node: nodes.Node, inside: nodes.For | None) -> bool:
        """The loop's position or one off."""
        offset = 0
        if isinstance(node, nodes.Add | nodes.Sub) and _constant(node.right) == 1:
            offset = 1 if isinstance(node, nodes.Add) else -1
            node = node.left
        if not (isinstance(node, nodes.Getattr) and self._is_position(node, inside)):
            return False
        return abs(offset + (node.attr == "index")) <= 1


def _check_macros(tree: nodes.Template) -> None:
    """A macro may be called for every message: a namespace that it writes must be its own."""
    bound = Counter(name.name for name in tree.find_all(nodes.Name) if name.ctx != "load")
    for macro in tree.find_all(nodes.Macro):
        made = Counter(map(_new_namespace, macro.find_all(nodes.Assign)))
        for written in macro.find_all(nodes.NSRef):
            if not made[written.name] or made[written.name] != bound[written.name]:
                raise _FarReach(written, f"a macro writes `{written.name}.{written.attr}`")


def _new_namespace(assign: nodes.Assign) -> str | None:
    """The name that gets a fresh namespace, if that is what the statement does."""
    match assign:
        case nodes.Assign(target=nodes.Name(name=name), node=nodes.Call(node=made)):
            return name if isinstance(made, nodes.Name) and made.name == "namespace" else None
    return None


def _aliases(tree: nodes.Template) -> dict[str, int]:
    """Names that stand for the messages, or for the messages without the first."""
    scan = _Scan({"messages": 0})
    known: dict[str, int] = {}
    while known != scan.aliases:
        known = dict(scan.aliases)
        for assign in tree.find_all(nodes.Assign):
            shift = scan._shift(assign.node)
            if isinstance(assign.target, nodes.Name) and shift is not None:
                name = assign.target.name
                scan.aliases[name] = max(shift, known.get(name, 0))
    return scan.aliases


def _tested(node: nodes.Node) -> nodes.Node | None:
    """The child of which only the truth matters; `and` gives its left side only if it is empty."""
    match node:
        case nodes.If() | nodes.CondExpr():
            return node.test
        case nodes.And():
            return node.left
        case nodes.Not():
            return node.node
    return None


def _is_lazy(node: nodes.Node) -> bool:
    if not isinstance(node, nodes.Filter) or node.node is None:
        return False
    return node.name in _LAZY or (node.name in ("d", "default") and _is_lazy(node.node))


def _is_first(node: nodes.Node) -> bool:
    return _constant(node) == 0


def _constant(node: nodes.Node | None) -> object:
    return node.value if isinstance(node, nodes.Const) else None
