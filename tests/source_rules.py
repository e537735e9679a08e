"""Rules of the source tree that neither ruff nor import-linter has: sleeps, wide excepts, localities, sizes, ratchets.

Every check takes parsed modules and returns findings, one line of text each; an empty list means that the rule holds.
Nothing of the product is imported here, so that a module that does not import cleanly is checked all the same.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

PRODUCT = ("controller", "extender", "webhook", "certs")

BARRIERS = ("# thread top", "# fault barrier")
LOCALITY_RULES = "controller.rules.locality"
# What the product has at most. These figures may only fall: whoever makes a part smaller lowers its figure here.
FILE_LINES = 420
FUNCTION_LINES = 60
PACKAGE_LINES = {"controller": 42_722, "controller.allocator": 10_815}
FOLDER_FILES = 12


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str  # dotted, without a trailing ".__init__"
    source: str
    is_package: bool = False  # an __init__.py

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, filename=self.name)

    @property
    def lines(self) -> list[str]:
        return self.source.splitlines()


def read_tree(root: Path, packages: Iterable[str]) -> list[Module]:
    """Every module under `root` of the named packages (dotted names); a package that does not exist has none."""
    modules = []
    for package in packages:
        for path in sorted(root.joinpath(*package.split(".")).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            source = path.read_text(encoding="utf-8")
            modules.append(Module(name, source, parts[-1] == "__init__"))
    return modules


def is_within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def check_sleeps(modules: Iterable[Module]) -> list[str]:
    """Nobody lets time pass where something can be waited for; a loop that asks again until a deadline may pause."""
    findings = []
    for module in modules:
        nodes: list[Any] = list(ast.walk(module.tree))
        loops = [node for node in nodes if isinstance(node, ast.While)]
        findings += [
            f"{module.name}:{node.lineno}: sleeps"
            for node in filter(_is_sleep, nodes)
            if not any(loop.lineno < node.lineno <= (loop.end_lineno or loop.lineno) for loop in loops)
        ]
    return findings


def _is_sleep(node: ast.AST) -> bool:
    """Of whatever module; by another name, where it is given that."""
    match node:
        case ast.Attribute(attr="sleep") | ast.Name(id="sleep") | ast.alias(name="sleep", asname=str()):
            return True
    return False


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


def check_localities(modules: Iterable[Module]) -> list[str]:
    """What a data locality means stands in its row: nobody else asks which one it is."""
    return [
        f"{module.name}:{node.lineno}: compares a data locality by name"
        for module in modules
        if module.name != LOCALITY_RULES
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Compare | ast.MatchValue) and _names_locality(node)
    ]


def _names_locality(node: ast.AST) -> bool:
    inside = list(ast.walk(node))
    words = {one.value for one in inside if isinstance(one, ast.Constant)}
    fields = {one.attr for one in inside if isinstance(one, ast.Attribute)}
    by_place = any(isinstance(one, ast.Subscript) and "LOCALITIES" in ast.unparse(one.value) for one in inside)
    by_word = not words.isdisjoint({"best-effort", "strict-local"}) or words >= {"dataLocality", "disabled"}
    return by_place or by_word or not fields.isdisjoint({"data_locality", "default_data_locality"})


def check_class_names(modules: Iterable[Module]) -> list[str]:
    """A public class has a name of its own: whoever reads it knows which one is meant."""
    where: dict[str, list[str]] = {}
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where.setdefault(node.name, []).append(module.name)
    return [f"{name}: in {' and '.join(found)}" for name, found in where.items() if len(found) > 1]


def check_shared_code(modules: Iterable[Module]) -> list[str]:
    """What two modules need stands in a helper: nobody imports a test's file, or anything from it."""
    findings = []
    for module in modules:
        for node in ast.walk(module.tree):
            match node:
                case ast.Import(names=names):
                    wanted = [alias.name for alias in names]
                case ast.ImportFrom(module=package, names=names):
                    wanted = [f"{package or ''}.{alias.name}" for alias in names]
                case _:
                    continue
            of_tests = [name for name in wanted if any(part.startswith("test_") for part in name.split("."))]
            findings += [f"{module.name}:{node.lineno}: imports {name}" for name in of_tests]
    return findings


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


def check_ratchets(modules: Iterable[Module]) -> list[str]:
    """No package has more lines, and no folder more files, than it may have."""
    modules, findings = list(modules), []
    for package, most in PACKAGE_LINES.items():
        lines = lines_within(modules, package)
        if lines > most:
            findings.append(f"{package}: {lines} lines, more than {most}")
    for folder, files in files_by_folder(modules).items():
        if files > FOLDER_FILES:
            findings.append(f"{folder}: {files} files, more than {FOLDER_FILES}")
    return findings


def lines_within(modules: Iterable[Module], package: str) -> int:
    return sum(len(module.lines) for module in modules if is_within(module.name, package))


def files_by_folder(modules: Iterable[Module]) -> Counter[str]:
    """An `__init__.py` is no file of its folder."""
    return Counter(module.name.rpartition(".")[0] for module in modules if not module.is_package)


def _length_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        first = node.body[0]
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length
