"""Small changes to a source file that its unit tests should notice. Pure: text in, syntax trees out.

What is changed: comparisons, `and`/`or`/`not`, arithmetic, constants (of text only what is compared), returned values.
What is not: annotations and decorators, which describe, and the wording of messages.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

# Where order is compared: once the limit itself, once the other direction.
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
DESCRIBING = {"annotation", "returns", "decorator_list", "type_params"}
# A constant is shown with what it stands in; these alone say too little of that.
NARROW = (ast.UnaryOp, ast.Slice, ast.keyword, ast.Starred)


@dataclass(frozen=True)
class Mutation:
    """One change, told apart from others by what stands there, so that it is the same one when lines move."""

    function: str
    before: str
    after: str
    occurrence: int
    """Which of those that read alike in this function."""
    site: int
    """Its number in the file as it is."""

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.function, self.before, self.after, self.occurrence

    def __str__(self) -> str:
        return f"{self.function or 'module'}: `{self.before}` as `{self.after}`"


@dataclass
class _Site:
    function: str
    shown: ast.AST
    node: ast.AST
    field: str
    index: int | None
    value: object

    def swap(self) -> None:
        """Make the change; the second time, take it back."""
        if self.index is None:
            old = getattr(self.node, self.field)
            setattr(self.node, self.field, self.value)
        else:
            entries = getattr(self.node, self.field)
            old, entries[self.index] = entries[self.index], self.value
        self.value = old


def mutations(source: str) -> list[Mutation]:
    """All of a file, in its order."""
    found: list[Mutation] = []
    alike: Counter[tuple[str, str, str]] = Counter()
    for number, site in enumerate(_sites(ast.parse(source))):
        before = ast.unparse(site.shown)
        site.swap()
        after = ast.unparse(site.shown)
        site.swap()
        found.append(Mutation(site.function, before, after, alike[site.function, before, after], number))
        alike[site.function, before, after] += 1
    return found


def sample(source: str, most: int) -> list[Mutation]:
    """A part of them, chosen by what they are, not by where: an edit of one function changes the sample there only."""

    def drawn(one: Mutation) -> bytes:
        return hashlib.sha256("\n".join(map(str, one.key)).encode()).digest()

    return sorted(sorted(mutations(source), key=drawn)[:most], key=lambda one: one.site)


def mutated(source: str, mutation: Mutation) -> ast.Module:
    tree = ast.parse(source)
    next(site for number, site in enumerate(_sites(tree)) if number == mutation.site).swap()
    return tree


def _sites(tree: ast.Module) -> list[_Site]:
    return list(_walk(tree, (), ""))


def _walk(node: ast.AST, parents: tuple[ast.AST, ...], function: str) -> Iterator[_Site]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".lstrip(".")
    yield from _of(node, parents, function)
    for name, value in ast.iter_fields(node):
        if name not in DESCRIBING:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _walk(child, (*parents, node), function)


def _of(node: ast.AST, parents: tuple[ast.AST, ...], function: str) -> Iterator[_Site]:
    match node:
        case ast.Compare():
            for index, op in enumerate(node.ops):
                for other in COMPARISONS[type(op)]:
                    yield _Site(function, node, node, "ops", index, other())
        case ast.BoolOp():
            yield _Site(function, node, node, "op", None, ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not()):
            yield _Site(function, node, node, "operand", None, ast.UnaryOp(ast.Not(), node.operand))
        case ast.BinOp() | ast.AugAssign() if type(node.op) in ARITHMETIC:
            yield _Site(function, node, node, "op", None, ARITHMETIC[type(node.op)]())
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            yield _Site(function, node, node, "value", None, ast.Constant(None))
        case ast.Constant() if (value := _other(node, parents)) is not None:
            yield _Site(function, _around(node, parents), node, "value", None, value)


def _other(constant: ast.Constant, parents: tuple[ast.AST, ...]) -> object:
    match constant.value:
        case bool(value):
            return not value
        case int(value):
            return value + 1
        case float(value):
            return 2 * value or 1.0
        case str(value) if _is_compared(parents):
            return f"{value}?"
    return None


def _is_compared(parents: tuple[ast.AST, ...]) -> bool:
    outside = [parent for parent in parents if not isinstance(parent, ast.Tuple | ast.List | ast.Set)]
    return isinstance(outside[-1], ast.Compare | ast.MatchValue)


def _around(node: ast.AST, parents: tuple[ast.AST, ...]) -> ast.AST:
    near = next(parent for parent in reversed(parents) if not isinstance(parent, NARROW))
    return node if isinstance(near, ast.stmt) and hasattr(near, "body") else near
