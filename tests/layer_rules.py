"""The rules of the source tree, checked on syntax trees: who imports whom, clocks, wide excepts, sizes.

Every check takes parsed modules and returns findings, one line of text each; an empty list means that the rule holds.
Nothing of the product is imported here, so that a module that does not import cleanly is checked all the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PRODUCT = ("controller", "extender", "webhook", "certs")

# A higher number may import an equal or a lower one. The longest prefix of a module's name decides.
LAYERS: Mapping[str, int] = {
    "controller.__main__": 90,
    "controller.cli": 80,
    "controller.scheduler_config": 75,
    "controller.wiring": 70,
    "controller.configuration": 65,
    "controller.certificates": 65,
    "controller.adapters": 65,
    "controller.followed": 65,
    "controller.status_view": 66,
    "controller.lifecycle": 60,
    "controller.metrics": 60,
    "controller.kinds": 60,
    "controller.status": 60,
    "extender": 50,
    "controller.rpc": 50,
    "controller.rpc.build": 62,
    "controller.rpc.metrics": 61,
    "controller.reconcile": 50,
    "controller.feed": 50,
    "controller.plan": 50,
    "controller.plan_answers": 49,
    "controller.plan_input": 49,
    "controller.plan_objects": 48,
    "controller.plan_world": 49,
    "controller.plan_yaml": 49,
    "controller.allocator": 47,
    "controller.allocator.allocator": 46,
    "controller.allocator.verbs": 45,
    "controller.allocator.waiting": 44,
    "controller.allocator.judge": 43,
    "controller.allocator.promises": 42,
    "controller.allocator.world": 41,
    "controller.allocator.outcome": 40,
    "controller.rules": 25,
    "controller.views": 31,
    "controller.serving": 31,
    "controller.kube": 30,
    "controller.election": 30,
    "controller.settings": 22,
    "controller.model": 21,
    "controller.clock": 20,
    "controller.errors": 20,
    "controller": 20,
    "webhook": 100,
    "certs": 35,  # below the wiring, which gives the server its certificates
}

# Beside the layers: what a package may import of the product, and what it may not although it lies lower.
ONLY: Mapping[str, tuple[str, ...]] = {
    "webhook": (
        "webhook",
        "controller.kube",
        "controller.model",
        "controller.rpc",
        "controller.serving",
        "controller.settings",
        "controller.clock",
        "controller.errors",
        "controller.repeated",
        # The flags, the second port, the form of log lines and the version are the same in every process.
        "controller.flags",
        "controller.status",
        "controller.logs",
        "controller.version",
        "controller.views",
        "certs",
    ),
    "certs": ("certs", "controller.kube", "controller.clock", "controller.errors", "controller.repeated"),
}
NEVER: Mapping[str, tuple[str, ...]] = {
    # The allocator decides on facts; where they come from is not its business.
    "controller.allocator": ("controller.kube", "controller.election"),
}

# The pure core touches no network, thread pool, process, log or random source.
PURE = (
    "controller.model",
    "controller.rules",
    "controller.allocator",
    "certs.authority",
    "certs.layout",
    "certs.rotation",
    "certs.trust",
)
IMPURE_LIBRARIES = (
    "asyncio",
    "http",
    "kubernetes",
    "logging",
    "os",
    "random",
    "requests",
    "selectors",
    "socket",
    "ssl",
    "subprocess",
    "urllib",
    "urllib3",
)

WALL_CLOCK = frozenset(
    {
        "time.time",
        "time.time_ns",
        "time.gmtime",
        "time.localtime",
        "time.ctime",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
    }
)
WALL_CLOCK_ALLOWED = ("controller.kube.lease", "controller.clock", "certs")

THREAD_TOP = "# thread top"
FILE_LINES = 500
FUNCTION_LINES = 60


@dataclass(frozen=True, slots=True)
class Module:
    """One parsed source file."""

    name: str  # dotted, without a trailing ".__init__"
    is_package: bool
    source: str
    tree: ast.Module

    @property
    def lines(self) -> list[str]:
        return self.source.splitlines()


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name: `from a.b import c` reads `a.b.c`, which may be a module or something in one."""

    target: str
    line: int


def parse(name: str, source: str, *, is_package: bool = False) -> Module:
    return Module(name, is_package, source, ast.parse(source, filename=name))


def read_tree(root: Path, packages: Iterable[str]) -> list[Module]:
    """Every module under `root` of the named packages (dotted names); a package that does not exist has none."""
    modules = []
    for package in packages:
        for path in sorted(root.joinpath(*package.split(".")).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            modules.append(parse(name, path.read_text(encoding="utf-8"), is_package=is_package))
    return modules


def is_within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def imports_of(module: Module) -> Iterator[Import]:
    """All imports, wherever in the file they stand, relative ones resolved."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = _base_of(module, node)
            for alias in node.names:
                yield Import(base if alias.name == "*" else f"{base}.{alias.name}", node.lineno)


def _base_of(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    keep = len(parts) - node.level + (1 if module.is_package else 0)
    return ".".join([*parts[:keep], *([node.module] if node.module else [])])


def _longest(name: str, prefixes: Iterable[str]) -> str | None:
    return max((prefix for prefix in prefixes if is_within(name, prefix)), key=len, default=None)


def layer_of(name: str) -> int | None:
    prefix = _longest(name, LAYERS)
    return None if prefix is None else LAYERS[prefix]


def check_layers(modules: Iterable[Module]) -> list[str]:
    """No product module imports a higher layer, or a part that is closed to it."""
    findings = []
    for module in modules:
        own = layer_of(module.name)
        if own is None:
            findings.append(f"{module.name}: has no layer; give it one")
            continue
        for imported in imports_of(module):
            target = layer_of(imported.target)
            if target is None:
                continue
            where = f"{module.name}:{imported.line}: imports {imported.target}"
            only = ONLY.get(_longest(module.name, ONLY) or "")
            if only is not None:
                if not any(is_within(imported.target, prefix) for prefix in only):
                    findings.append(f"{where}, which is closed to it")
            elif target > own:
                findings.append(f"{where}, a higher layer")
            never = NEVER.get(_longest(module.name, NEVER) or "", ())
            if any(is_within(imported.target, prefix) for prefix in never):
                findings.append(f"{where}, which it must not know")
    return findings


def check_cycles(modules: Iterable[Module]) -> list[str]:
    """No two modules import one another, directly or through others."""
    by_name = {module.name: module for module in modules}
    graph = {
        name: sorted({found for i in imports_of(module) if (found := _longest(i.target, by_name))} - {name})
        for name, module in by_name.items()
    }
    findings: list[str] = []
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            findings.append("import cycle: " + " > ".join([*path[path.index(name) :], name]))
            return
        if name in done:
            return
        for target in graph[name]:
            visit(target, [*path, name])
        done.add(name)

    for name in sorted(graph):
        visit(name, [])
    return findings


def check_imports_none_of(modules: Iterable[Module], forbidden: Iterable[str], why: str) -> list[str]:
    """None of `modules` imports one of the `forbidden` packages."""
    forbidden = tuple(forbidden)
    return [
        f"{module.name}:{imported.line}: imports {imported.target}: {why}"
        for module in modules
        for imported in imports_of(module)
        if any(is_within(imported.target, prefix) for prefix in forbidden)
    ]


def check_kubernetes(modules: Iterable[Module]) -> list[str]:
    """Only controller.kube imports the Kubernetes client library."""
    others = [module for module in modules if not is_within(module.name, "controller.kube")]
    return check_imports_none_of(others, ["kubernetes"], "only controller.kube may")


def check_pure(modules: Iterable[Module]) -> list[str]:
    """The facts and the allocator import nothing that touches the world outside."""
    pure = [module for module in modules if any(is_within(module.name, prefix) for prefix in PURE)]
    return check_imports_none_of(pure, IMPURE_LIBRARIES, "the core does no I/O")


def check_wall_clock(modules: Iterable[Module]) -> list[str]:
    """Wall time is read in few, named places."""
    findings = []
    for module in modules:
        if any(is_within(module.name, prefix) for prefix in WALL_CLOCK_ALLOWED):
            continue
        findings += [f"{module.name}:{line}: reads {name}" for name, line in uses_of(module, WALL_CLOCK)]
    return findings


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
    """Everything is caught at the top of a thread only (the line says so), or to clean up and raise again."""
    findings = []
    for module in modules:
        lines = module.lines
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ExceptHandler) or not _is_wide(node.type):
                continue
            last = node.body[-1]
            raises_again = isinstance(last, ast.Raise) and last.exc is None
            if not raises_again and THREAD_TOP not in lines[node.lineno - 1]:
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
