"""The source tree keeps its layers and limits, and each rule is shown able to fail."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import source_rules as rules

ROOT = Path(__file__).resolve().parent.parent
TOOLS = Path(sys.executable).parent

PRODUCT_CHECKS = [
    rules.check_wide_excepts,
    rules.check_localities,
    rules.check_sizes,
    rules.check_ratchets,
    rules.check_class_names,
]


@functools.cache
def product() -> list[rules.Module]:
    return rules.read_tree(ROOT, rules.PRODUCT)


@functools.cache
def written_beside() -> list[rules.Module]:
    return rules.read_tree(ROOT, ["tests", "bench", "release"])


def test_the_product_was_found() -> None:
    assert set(rules.PRODUCT) == {module.name.split(".")[0] for module in product()}


@pytest.mark.parametrize("check", PRODUCT_CHECKS, ids=lambda check: check.__name__)
def test_the_product_keeps(check: Callable[[list[rules.Module]], list[str]]) -> None:
    assert [] == check(product())


def test_no_test_sleeps_instead_of_waiting_for_something() -> None:
    simulating = ("tests.cluster", "tests.longhorn")  # delays are what those two simulate
    modules = [
        module
        for module in written_beside()
        if rules.is_within(module.name, "tests") and not module.name.startswith(simulating)
    ]
    assert [] == rules.check_sleeps(modules)


@pytest.mark.parametrize("check", [rules.check_class_names, rules.check_shared_code], ids=lambda check: check.__name__)
def test_tests_and_benches_keep(check: Callable[[list[rules.Module]], list[str]]) -> None:
    assert [] == check(written_beside())


def broken_contracts(root: Path) -> tuple[int, list[str]]:
    """import-linter's exit code, and the names of the contracts that are broken there (pyproject.toml has them all)."""
    command = [str(TOOLS / "lint-imports"), "--no-cache", "--no-logo"]
    env = {"COLUMNS": "300"}  # a name's line is not broken
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert "Contracts: " in done.stdout, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    return done.returncode, [line.removesuffix(" BROKEN") for line in lines if line.endswith(" BROKEN")]


def test_imports_keep_their_contracts() -> None:
    assert (0, []) == broken_contracts(ROOT)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all that the contracts speak of."""
    made = tmp_path_factory.mktemp("tree")
    for package in (*rules.PRODUCT, "tests", "bench", "release"):
        shutil.copytree(ROOT / package, made / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", made)
    return made


@pytest.mark.parametrize(
    ("path", "source", "contract"),
    [
        ("controller/model/parse.py", "from controller.allocator.plans import table", "Imports go down"),
        ("controller/allocator/world/world.py", "from controller.kube.store import Store", "Imports go down"),
        ("extender/app.py", "def late():\n    from controller.assembly.assemble import Controller", "Imports go down"),
        ("webhook/app.py", "from controller.allocator.plans.table import Table", "The webhook asks"),
        ("webhook/app.py", "from controller.scheduler_config import command", "The webhook asks"),
        ("certs/rotation.py", "from controller.settings import ProcessSettings", "Certificates know"),
        ("certs/secret.py", "from controller.allocator.outcome import Mode", "Certificates know"),
        ("controller/model/quantity.py", "from controller.model.workload import pod_facts", "No two modules"),
        ("controller/rules/placing.py", "import logging", "The core does no I/O"),
        ("extender/wire.py", "from kubernetes import client", "One package knows"),
        ("controller/clock.py", "import tests.fakes.clock", "The product stands alone"),
        ("tests/longhorn/plan.py", "from controller.rules import placing", "A mistake must not stand on both sides"),
        ("tests/judge/facts.py", "from controller.model import quantity", "A mistake must not stand on both sides"),
        ("tests/cluster/nodes.py", "import tests.longhorn.plan", "The test cluster does not know"),
    ],
)
def test_an_import_that_a_contract_forbids_is_found(tree: Path, path: str, source: str, contract: str) -> None:
    text = (tree / path).read_text()
    (tree / path).write_text(f"{text}\n{source}\n")
    code, broken = broken_contracts(tree)
    (tree / path).write_text(text)
    assert code
    assert any(name.startswith(contract) for name in broken)


def test_every_module_has_a_layer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    named = {name for line in layers for name in line.split(" | ")}
    homeless = [one.name for one in product() if not any(rules.is_within(one.name, name) for name in named)]
    assert ["controller", "controller.allocator"] == homeless  # the packages around them, which hold nothing


IMPORT_ALL = """
import importlib, sys, threading
for name in sys.argv[1:]:
    importlib.import_module(name)
assert threading.enumerate() == [threading.main_thread()], threading.enumerate()
"""

IMPORT_METRICS = """
import importlib, sys
from prometheus_client import REGISTRY
before = set(REGISTRY._names_to_collectors)
for name in sys.argv[1:]:
    importlib.import_module(name)
assert before == set(REGISTRY._names_to_collectors), set(REGISTRY._names_to_collectors) - before
"""


@pytest.mark.parametrize("program", [IMPORT_ALL, IMPORT_METRICS], ids=["starts no thread", "registers no metric"])
def test_importing_the_product(program: str) -> None:
    names = [module.name for module in product() if not module.name.endswith("__main__")]
    done = subprocess.run(
        [sys.executable, "-c", program, *names], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (0, "") == (done.returncode, done.stderr)


# From here on: each of our own rules on synthetic sources that break it, and on the nearest ones that do not.


def findings(check: Callable[[list[rules.Module]], list[str]], **sources: str) -> list[str]:
    return check([rules.Module(name.replace("__", "."), source) for name, source in sources.items()])


CLOCKS = """
import datetime as dt
import time
from datetime import UTC, datetime
from time import time_ns as wall
banned = time.time(), wall(), datetime.now(UTC), dt.datetime.now(dt.UTC), dt.date.today()
allowed = time.monotonic()
"""


def test_wall_clocks_are_found() -> None:
    """By ruff, whose list of them stands in pyproject.toml."""
    command = [str(TOOLS / "ruff"), "check", "--select", "TID251", "--output-format", "concise", "--stdin-filename"]
    for name, found in (("controller/follow/live.py", 5), ("controller/clock.py", 0)):
        done = subprocess.run(
            [*command, name, "-"], cwd=ROOT, input=CLOCKS, capture_output=True, text=True, timeout=60, check=False
        )
        assert found == done.stdout.count("TID251"), done.stdout + done.stderr


def test_a_sleep_is_found() -> None:
    assert findings(rules.check_sleeps, tests__unit__test_a="from time import sleep\nsleep(1)")
    assert findings(rules.check_sleeps, tests__unit__test_a="import asyncio\nasyncio.sleep(1)")
    assert findings(rules.check_sleeps, tests__unit__test_a="from time import sleep as rest\nrest(1)")
    assert not findings(rules.check_sleeps, tests__unit__test_a="import time\nevent.wait(1)")
    polling = "import time\nwhile time.monotonic() < end:\n    if done():\n        break\n    time.sleep(0.01)\n"
    assert not findings(rules.check_sleeps, tests__unit__test_a=polling)
    assert findings(rules.check_sleeps, tests__unit__test_a=polling + "time.sleep(1)")


@pytest.mark.parametrize("caught", ["", " Exception", " BaseException as error", " (ValueError, Exception)"])
def test_a_wide_except_is_found(caught: str) -> None:
    source = "try:\n    act()\nexcept{}:{}\n    {}\n"
    assert findings(rules.check_wide_excepts, controller__feed=source.format(caught, "", "pass"))
    assert not findings(rules.check_wide_excepts, controller__feed=source.format(caught, "  # thread top", "pass"))
    assert not findings(rules.check_wide_excepts, controller__feed=source.format(caught, "", "raise"))
    assert findings(rules.check_wide_excepts, controller__feed=source.format(caught, "", "raise ValueError"))
    assert not findings(rules.check_wide_excepts, controller__feed=source.format(" (OSError, ValueError)", "", "pass"))


@pytest.mark.parametrize(
    "source",
    [
        'is_strict = volume.data_locality == "strict-local"',
        "is_strict = volume.data_locality == DATA_LOCALITIES[2]",
        'is_near = name in ("best-effort", "strict-local")',
        'is_anywhere = given.get("dataLocality") == "disabled"',
        'is_strict = locality_of(volume) is LOCALITIES["strict-local"]',
        'match name:\n    case "strict-local":\n        pass',
    ],
)
def test_a_data_locality_that_is_compared_by_name_is_found(source: str) -> None:
    assert findings(rules.check_localities, webhook__a=source)
    assert not findings(rules.check_localities, controller__rules__locality=source)


@pytest.mark.parametrize("source", ['given.get("dataLocality") == ""', "locality_of(volume).reach is Reach.NODE_FIRST"])
def test_what_a_data_locality_means_may_be_asked(source: str) -> None:
    assert not findings(rules.check_localities, webhook__a=source)


def test_two_classes_of_one_name_are_found() -> None:
    assert findings(rules.check_class_names, controller__a="class Search: ...", webhook__b="class Search: ...")
    assert not findings(rules.check_class_names, controller__a="class _Kind: ...", webhook__b="class _Kind: ...")


@pytest.mark.parametrize(
    "source",
    [
        "from tests.unit.test_a import World",
        "from tests.unit import test_a",
        "import tests.unit.test_a",
        "from .test_a import b",
    ],
)
def test_code_that_is_shared_through_a_test_is_found(source: str) -> None:
    assert findings(rules.check_shared_code, tests__unit__test_b=source)
    assert not findings(rules.check_shared_code, tests__unit__test_b="from tests.unit.rooms import a_test, room")


def test_long_files_and_functions_are_found() -> None:
    assert not findings(rules.check_sizes, controller__feed="a = 1\n" * rules.FILE_LINES)
    assert findings(rules.check_sizes, controller__feed="a = 1\n" * (rules.FILE_LINES + 1))
    body = "    a = 1\n" * (rules.FUNCTION_LINES - 1)
    assert not findings(rules.check_sizes, controller__feed="def f():\n" + body)
    assert not findings(rules.check_sizes, controller__feed='def f():\n    """Promise.\n    """\n' + body)
    assert findings(rules.check_sizes, controller__feed="class C:\n  def f():\n" + body + "    a = 2\n")


def test_a_package_that_grows_is_found() -> None:
    most = rules.PACKAGE_LINES["controller.allocator"]
    assert not findings(rules.check_ratchets, controller__allocator__feed="a = 1\n" * most)
    assert findings(rules.check_ratchets, controller__allocator__feed="a = 1\n" * (most + 1))


def test_a_folder_with_one_file_too_many_is_found() -> None:
    most = rules.FOLDER_FILES
    files = [rules.Module(f"certs.m{number}", "") for number in range(most + 1)]
    package = rules.Module("certs", "", is_package=True)
    assert [] == rules.check_ratchets([package, *files[:most]])
    assert [f"certs: {most + 1} files, more than {most}"] == rules.check_ratchets([package, *files])
