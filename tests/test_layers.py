"""The source tree keeps its layers and limits, and each rule is shown able to fail."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import layer_rules as rules

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = rules.read_tree(ROOT, rules.PRODUCT)

PRODUCT_CHECKS = [
    rules.check_layers,
    rules.check_cycles,
    rules.check_kubernetes,
    rules.check_pure,
    rules.check_wall_clock,
    rules.check_wide_excepts,
    rules.check_sizes,
]


def test_the_product_was_found() -> None:
    assert {"controller", "extender"} <= {module.name.split(".")[0] for module in PRODUCT}


@pytest.mark.parametrize("check", PRODUCT_CHECKS, ids=lambda check: check.__name__)
def test_the_product_keeps(check: Callable[[list[rules.Module]], list[str]]) -> None:
    assert [] == check(PRODUCT)


def test_the_product_imports_neither_tests_nor_benchmarks() -> None:
    assert [] == rules.check_imports_none_of(PRODUCT, ["tests", "bench"], "the product stands alone")


@pytest.mark.parametrize("package", ["tests.cluster", "tests.longhorn"])
def test_the_test_cluster_and_the_stand_in_know_nothing_of_the_product(package: str) -> None:
    modules = rules.read_tree(ROOT, [package])
    assert modules
    assert [] == rules.check_imports_none_of(modules, rules.PRODUCT, "a mistake must not stand on both sides")


def test_the_test_cluster_does_not_know_the_stand_in() -> None:
    modules = rules.read_tree(ROOT, ["tests.cluster"])
    assert [] == rules.check_imports_none_of(modules, ["tests.longhorn"], "it is the layer below")


def test_no_test_sleeps_instead_of_waiting_for_something() -> None:
    modules = [
        module
        for module in rules.read_tree(ROOT, ["tests"])
        if not module.name.startswith(("tests.cluster", "tests.longhorn"))  # delays are what those two simulate
    ]
    assert [] == rules.check_sleeps(modules)


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
    names = [module.name for module in PRODUCT if not module.name.endswith("__main__")]
    done = subprocess.run(
        [sys.executable, "-c", program, *names], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (0, "") == (done.returncode, done.stderr)


# From here on: each rule on synthetic sources that break it, and on the nearest ones that do not.


def findings(check: Callable[[list[rules.Module]], list[str]], **sources: str) -> list[str]:
    return check([rules.parse(name.replace("__", "."), source) for name, source in sources.items()])


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("controller.model.parse", "from controller.allocator.promises import ledger"),
        ("controller.allocator.promises.ledger", "import controller.allocator.allocator"),
        ("controller.allocator.judge.packing", "from controller.allocator.verbs.filter import plan_pod"),
        ("controller.allocator.world.world", "from controller.kube.store import Store"),
        ("controller.kube.store", "from controller.feed import Feed"),
        ("controller.election.elector", "from controller.lifecycle import begin_term"),
        ("controller.clock", "def now():\n    from controller.settings import ProcessSettings"),
        ("controller.lifecycle", "from controller import wiring"),
        ("extender.app", "from controller.wiring import build"),
        ("controller.kube.api", "from extender import wire"),
        ("controller.kube.api", "from ..metrics import Metrics"),
        ("webhook.app", "from controller.allocator.promises.ledger import Ledger"),
        ("webhook.app", "from controller.wiring import build"),
        ("certs.rotation", "from controller.settings import ProcessSettings"),
        ("controller.feed", "from webhook.review import decode"),
    ],
)
def test_an_import_of_a_higher_or_closed_layer_is_found(importer: str, source: str) -> None:
    assert 1 == len(rules.check_layers([rules.parse(importer, source)]))


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("controller.cli", "from controller.wiring import build"),
        ("controller.wiring", "from extender.app import create_blueprint"),
        ("controller.allocator.allocator", "from controller.allocator.judge.node import plan_pod"),
        ("controller.allocator.judge.node", "from controller.allocator.judge.packing import pack"),
        ("controller.feed", "from controller.kube.store import Store"),
        ("controller.kube.lease", "from ..errors import ConflictError"),
        ("webhook.app", "from controller.kube.api import KubeApi"),
        ("webhook.app", "from webhook.review import decode"),
        ("certs.secret", "from controller.clock import Clock"),
        ("extender.wire", "import msgspec"),
    ],
)
def test_an_import_of_an_equal_or_lower_layer_passes(importer: str, source: str) -> None:
    assert [] == rules.check_layers([rules.parse(importer, source)])


def test_a_module_without_a_layer_is_found() -> None:
    assert ["somewhere: has no layer; give it one"] == findings(rules.check_layers, somewhere="")


def test_an_import_cycle_is_found_through_others_too() -> None:
    ring = {
        "controller__model__a": "from controller.model import b",
        "controller__model__b": "from controller.model.c import thing",
        "controller__model__c": "import controller.model.a",
    }
    assert [
        "import cycle: controller.model.a > controller.model.b > controller.model.c > controller.model.a"
    ] == findings(rules.check_cycles, **ring)
    del ring["controller__model__c"]
    assert [] == findings(rules.check_cycles, **ring)


def test_the_client_library_outside_its_package_is_found() -> None:
    assert findings(rules.check_kubernetes, extender__app="from kubernetes import client")
    assert findings(rules.check_kubernetes, controller__kubelike="import kubernetes.client")
    assert not findings(rules.check_kubernetes, controller__kube__api="from kubernetes import client")


def test_input_and_output_in_the_core_is_found() -> None:
    assert findings(rules.check_pure, controller__model__parse="import logging")
    assert findings(rules.check_pure, controller__allocator__ledger="from urllib import request")
    assert not findings(rules.check_pure, controller__feed="import logging")


def test_imports_of_named_packages_are_found() -> None:
    module = [rules.parse("controller.feed", "import math\nfrom tests.fakes import clock")]
    assert ["controller.feed:2: imports tests.fakes.clock: no"] == rules.check_imports_none_of(module, ["tests"], "no")
    assert [] == rules.check_imports_none_of(module, ["test", "math.sin"], "no")


def test_relative_imports_are_resolved() -> None:
    plain = rules.parse("a.b.c", "from . import x\nfrom .y import z\nfrom ..w import v")
    package = rules.parse("a.b", "from . import x\nfrom ..w import v", is_package=True)
    assert ["a.b.x", "a.b.y.z", "a.w.v"] == [found.target for found in rules.imports_of(plain)]
    assert ["a.b.x", "a.w.v"] == [found.target for found in rules.imports_of(package)]


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "import time as t\nt.time_ns()",
        "from time import time\ntime()",
        "from time import time as wall\nnow = wall",
        "import datetime\ndatetime.datetime.now(datetime.UTC)",
        "import datetime as dt\ndt.date.today()",
        "from datetime import datetime, UTC\ndatetime.now(UTC)",
    ],
)
def test_a_wall_clock_is_found(source: str) -> None:
    assert 1 == len(findings(rules.check_wall_clock, controller__feed=source))
    assert not findings(rules.check_wall_clock, controller__clock=source)
    assert not findings(rules.check_wall_clock, controller__kube__lease=source)


def test_a_sleep_is_found() -> None:
    assert findings(rules.check_sleeps, tests__unit__test_a="from time import sleep\nsleep(1)")
    assert findings(rules.check_sleeps, tests__unit__test_a="import asyncio\nasyncio.sleep(1)")
    assert not findings(rules.check_sleeps, tests__unit__test_a="import time\nevent.wait(1)")
    polling = "import time\nwhile time.monotonic() < end:\n    if done():\n        break\n    time.sleep(0.01)\n"
    assert not findings(rules.check_sleeps, tests__unit__test_a=polling)
    assert findings(rules.check_sleeps, tests__unit__test_a=polling + "time.sleep(1)")


def test_a_monotonic_clock_is_none() -> None:
    assert not findings(rules.check_wall_clock, controller__feed="import time\ntime.monotonic()\nclock.time()")


@pytest.mark.parametrize("caught", ["", " Exception", " BaseException as error", " (ValueError, Exception)"])
def test_a_wide_except_is_found(caught: str) -> None:
    source = "try:\n    act()\nexcept{}:{}\n    {}\n"
    assert findings(rules.check_wide_excepts, controller__feed=source.format(caught, "", "pass"))
    assert not findings(rules.check_wide_excepts, controller__feed=source.format(caught, "  # thread top", "pass"))
    assert not findings(rules.check_wide_excepts, controller__feed=source.format(caught, "", "raise"))
    assert findings(rules.check_wide_excepts, controller__feed=source.format(caught, "", "raise ValueError"))


def test_a_narrow_except_is_none() -> None:
    assert not findings(
        rules.check_wide_excepts, controller__feed="try:\n    act()\nexcept (OSError, ValueError):\n    pass"
    )


def test_long_files_and_functions_are_found() -> None:
    assert not findings(rules.check_sizes, controller__feed="a = 1\n" * rules.FILE_LINES)
    assert findings(rules.check_sizes, controller__feed="a = 1\n" * (rules.FILE_LINES + 1))
    body = "    a = 1\n" * (rules.FUNCTION_LINES - 1)
    assert not findings(rules.check_sizes, controller__feed="def f():\n" + body)
    assert not findings(rules.check_sizes, controller__feed='def f():\n    """Promise.\n    """\n' + body)
    assert findings(rules.check_sizes, controller__feed="class C:\n  def f():\n" + body + "    a = 2\n")
