"""Rules of the source tree that neither ruff nor import-linter has: sleeps, wide excepts, sizes.

Every check takes parsed modules and returns findings, one line of text each; an empty list means that the rule holds.
Nothing of the product is imported here, so that a module that does not import cleanly is checked all the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PRODUCT = ("controller", "extender", "webhook", "certs")

BARRIERS = ("# thread top", "# fault barrier")
FILE_LINES = 500
FUNCTION_LINES = 60


@dataclass(frozen=True, slots=True)
class Module:
    """One parsed source file."""

    name: str  # dotted, without a trailing ".__init__"
    source: str
    tree: ast.Module

    @property
    def lines(self) -> list[str]:
        return self.source.splitlines()


def parse(name: str, source: str) -> Module:
    return Module(name, source, ast.parse(source, filename=name))


def read_tree(root: Path, packages: Iterable[str]) -> list[Module]:
    """Every module under `root` of the named packages (dotted names); a package that does not exist has none."""
    modules = []
    for package in packages:
        for path in sorted(root.joinpath(*package.split(".")).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            modules.append(parse(name, path.read_text(encoding="utf-8")))
    return modules


def is_within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def check_sleeps(modules: Iterable[Module]) -> list[str]:
    """Nobody lets time pass where something can be waited for; a loop that asks again until a deadline may pause."""
    findings = []
    for module in modules:
        loops = [node for node in ast.walk(module.tree) if isinstance(node, ast.While)]
        for name, line in uses_of(module, {"time.sleep", "asyncio.sleep"}):
            if not any(loop.lineno < line <= (loop.end_lineno or loop.lineno) for loop in loops):
                findings.append(f"{module.name}:{line}: uses {name}")
    return findings


def uses_of(module: Module, names: Iterable[str]) -> list[tuple[str, int]]:
    """Where the module names one of these dotted things, through whatever alias it imported it."""
    wanted = frozenset(names)
    aliases: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                aliases[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute | ast.Name):
            dotted = _dotted(node, aliases)
            if dotted in wanted:
                found.append((dotted, node.lineno))
    return sorted(found, key=lambda item: item[1])


def _dotted(node: ast.expr, aliases: Mapping[str, str]) -> str:
    if isinstance(node, ast.Name):
        return aliases.get(node.id, "")
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, aliases)
        return f"{base}.{node.attr}" if base else ""
    return ""


def check_wide_excepts(modules: Iterable[Module]) -> list[str]:
    """Everything is caught at the top of a thread, at the barrier between the ledger and one key's fault (the line says
    so), or to clean up and raise again."""
    findings = []
    for module in modules:
        lines = module.lines
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ExceptHandler) or not _is_wide(node.type):
                continue
            last = node.body[-1]
            raises_again = isinstance(last, ast.Raise) and last.exc is None
            if not raises_again and not any(barrier in lines[node.lineno - 1] for barrier in BARRIERS):
                findings.append(f"{module.name}:{node.lineno}: catches everything")
    return findings


def _is_wide(expression: ast.expr | None) -> bool:
    if expression is None:
        return True
    if isinstance(expression, ast.Tuple):
        return any(_is_wide(item) for item in expression.elts)
    return isinstance(expression, ast.Name) and expression.id in ("Exception", "BaseException")


def check_sizes(modules: Iterable[Module]) -> list[str]:
    """No file and no function too long to be seen at once; docstrings do not count in a function."""
    findings = []
    for module in modules:
        if len(module.lines) > FILE_LINES:
            findings.append(f"{module.name}: {len(module.lines)} lines, more than {FILE_LINES}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = _length_of(node)
                if length > FUNCTION_LINES:
                    where = f"{module.name}:{node.lineno}: {node.name}"
                    findings.append(f"{where} has {length} lines, more than {FUNCTION_LINES}")
    return findings


def _length_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        first = node.body[0]
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length
