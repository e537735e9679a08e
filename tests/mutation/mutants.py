"""All small faults of a source text: a comparison off by one or turned round, a condition dropped, a constant changed.

Left out is what changes no behaviour: annotations, docstrings, decorators, and the wording of messages.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True, slots=True)
class SourceMutant:
    """One fault: where, what, and the whole text with it. `key` names it independently of line numbers."""

    line: int
    code: str  # the line as it was
    change: str
    source: str

    @property
    def key(self) -> str:
        return f"{self.code} | {self.change}"


def mutants_of(source: str) -> Iterator[SourceMutant]:
    """Every mutant of `source`, in the order of its lines."""
    lines = source.splitlines()
    sites = [
        (node.lineno, index, number, change)  # type: ignore[attr-defined]
        for index, node in _sites(ast.parse(source))
        for number, (change, _) in enumerate(_changes(node))
    ]
    for line, index, number, change in sorted(sites):
        tree = ast.parse(source)
        node = list(ast.walk(tree))[index]
        list(_changes(node))[number][1]()
        yield SourceMutant(line, lines[line - 1].strip(), change, ast.unparse(ast.fix_missing_locations(tree)))


def _sites(tree: ast.Module) -> Iterator[tuple[int, ast.AST]]:
    """The nodes that decide something, by their place in `ast.walk`."""
    skipped = {id(child) for node in ast.walk(tree) for top in _idle(node) for child in ast.walk(top)}
    for index, node in enumerate(ast.walk(tree)):
        if id(node) not in skipped and hasattr(node, "lineno"):
            yield index, node


def _idle(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of `node` that change no behaviour, or only words."""
    if isinstance(node, ast.JoinedStr):
        yield node
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield from node.decorator_list
    if isinstance(node, ast.FunctionDef):
        yield from (arg.annotation for arg in ast.walk(node.args) if isinstance(arg, ast.arg) and arg.annotation)
        if node.returns is not None:
            yield node.returns
    if isinstance(node, ast.AnnAssign):
        yield node.annotation
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[], None]]]:
    """What can be made of `node`: its name, and a function that does it in place."""
    if isinstance(node, ast.Compare):
        for position, operator in enumerate(node.ops):
            for other in _COMPARISONS.get(type(operator), ()):
                yield f"{type(operator).__name__} to {other.__name__}", partial(node.ops.__setitem__, position, other())
    elif isinstance(node, ast.BoolOp):
        other_operator = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield (
            f"{type(node.op).__name__} to {type(other_operator).__name__}",
            partial(setattr, node, "op", other_operator),
        )
        for position in range(len(node.values)):
            text = ast.unparse(node.values[position])
            yield f"without: {text}", partial(node.values.__delitem__, position)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "without not", partial(setattr, node, "operand", ast.UnaryOp(ast.Not(), node.operand))
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        swapped = _ARITHMETIC[type(node.op)]
        yield f"{type(node.op).__name__} to {swapped.__name__}", partial(setattr, node, "op", swapped())
    elif isinstance(node, ast.IfExp):
        yield "branches swapped", partial(_swap, node)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield f"{node.value} to {not node.value}", partial(setattr, node, "value", not node.value)
        elif isinstance(node.value, int):
            yield f"{node.value} to {node.value + 1}", partial(setattr, node, "value", node.value + 1)


def _swap(node: ast.IfExp) -> None:
    node.body, node.orelse = node.orelse, node.body
