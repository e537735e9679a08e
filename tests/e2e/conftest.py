"""One scene for the tests of the product's own behaviour, one control plane with one Longhorn for those of the
stand-in, and a cell of its own for each test."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster, ClusterOptions
from tests.conftest import build_failure, progress_of
from tests.e2e import client_of_webhooks, longhorn_cell
from tests.e2e.harness import Cell, Scene, cells
from tests.e2e.late_volumes import PlansSeen
from tests.e2e.programs import QUICK_LEASE, Controller
from tests.e2e.scheduling import ASKING, Config
from tests.e2e.view import View
from tests.longhorn.longhorn import Longhorn
from tests.longhorn.options import Delays, LonghornOptions

DELAYS = Delays(
    provision=(0.1, 1.5), attach=(0.1, 1.0), placement=(0.0, 0.5), start=0.1, disk_figures=(0.2, 2.0), delete=0.2
)


PACKAGE_WIDE = ("cluster", "shared_scene", "unscheduled_scene")  # fixtures with a control plane


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """A control plane that idles costs something, too: those of the fixtures below end with the last file in a row
    that uses them."""
    yield
    if nextitem is None or nextitem.path != item.path:
        used = _control_planes(nextitem) if nextitem is not None else []
        for one in _control_planes(item):
            if one not in used:
                one.finish(item._request)  # type: ignore[attr-defined]


def _control_planes(item: pytest.Item) -> list[pytest.FixtureDef[Any]]:
    """Fixtures of the whole package that tests of this one's file use."""
    functions = [one for one in item.session.items if isinstance(one, pytest.Function) and one.path == item.path]
    defined = [one._fixtureinfo.name2fixturedefs for one in functions]
    found = [one[name][-1] for one in defined for name in PACKAGE_WIDE if name in one]
    return [one for number, one in enumerate(found) if one.scope == "package" and one not in found[:number]]


@pytest.fixture(scope="package")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One control plane for all; name and ports are free ones, so that two sessions can run at once."""
    failure = request.config.stash.get(build_failure, None)
    if failure is not None:
        raise RuntimeError(f"the control plane could not be built: {failure}") from failure
    options = ClusterOptions(name=f"pytest-{secrets.token_hex(4)}")
    with Cluster.start(options, progress=progress_of(request.config)) as running:
        yield running


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what the scene's API server shows to webhooks."""
    return tmp_path_factory.mktemp("pki")


@pytest.fixture(scope="package")
def shared_scene(pki: Path) -> Iterator[Scene]:
    flags = client_of_webhooks.write_files(pki)
    with Scene.start(LonghornOptions(delays=DELAYS, retry_seconds=3.0), api_server_flags=flags) as scene:
        scene.start_stock_scheduler()
        yield scene


@pytest.fixture(scope="package")
def unscheduled_scene() -> Iterator[Scene]:
    """A scene whose kube-schedulers a test starts itself, with a quick Longhorn."""
    delays = Delays(
        provision=(0.0, 0.1), attach=(0.0, 0.1), placement=(0.0, 0.1), start=0.1, disk_figures=(0.1, 0.3), delete=0.1
    )
    with Scene.start(LonghornOptions(delays=delays), run_scheduler=False) as scene:
        yield scene


@pytest.fixture
def scene(shared_scene: Scene) -> Iterator[Scene]:
    """The shared scene with Longhorn at work and one copy of the product in charge; a copy that dies fails the test."""
    shared_scene.longhorn.resume()
    shared_scene.lead()
    yield shared_scene
    if any(controller.has_died() for controller in shared_scene.controllers):
        shared_scene.stop_controllers()


@pytest.fixture
def late_scene(shared_scene: Scene) -> Scene:
    """The shared scene, where Longhorn's figures are late: while they show that no disk would take a Replica, it makes
    none. Nobody is in charge yet."""
    shared_scene.longhorn.resume(replace(DELAYS, disk_figures=(5.0, 7.0)))
    return shared_scene


@pytest.fixture
def leader(late_scene: Scene) -> Controller:
    """The copy in charge of the late scene: that of an earlier test, if it still leads; with a short Lease."""
    return late_scene.lead(*QUICK_LEASE)


@pytest.fixture
def start_scheduler(shared_scene: Scene) -> Iterator[Callable[..., str]]:
    """A function that starts one more kube-scheduler, wired as the documents say; the name of its profile.

    `config`: a whole configuration, in place of the options.
    """
    started: list[str] = []

    def start(
        name: str, config: Config | str | None = None, *, flags: dict[str, str] | None = None, **options: Any
    ) -> str:
        if config is None:
            assert name in ASKING.split(","), f"{name} is not served"
            config = {**shared_scene.extender_config(**options), "profiles": [{"schedulerName": name}]}
        shared_scene.cluster.start_scheduler(config, name=name, flags=flags)
        started.append(name)
        return name

    yield start
    for name in started:
        shared_scene.cluster.stop_scheduler(name)


@pytest.fixture
def make_cell(shared_scene: Scene) -> Iterator[Callable[..., Cell]]:
    """A function that makes a cell; all of it goes after the test, whatever the test left behind."""
    with cells(shared_scene, "cell") as make:
        yield make


@pytest.fixture
def make_bare_cell(make_cell: Callable[..., Cell]) -> Callable[..., Cell]:
    """The same without pods that fill nodes."""
    return partial(make_cell, fillers=0)


@pytest.fixture(scope="module")
def plans(shared_scene: Scene) -> Iterator[PlansSeen]:
    """What has been planned since the module's first test that asks."""
    found = PlansSeen(shared_scene.api)
    yield found
    found.stop()


@pytest.fixture
def cell(make_cell: Callable[..., Cell]) -> Cell:
    """Four nodes with one disk of 400 GiB each, two of them three quarters full of something else."""
    return make_cell()


# The stand-in for Longhorn alone


@pytest.fixture(scope="module")
def longhorn(cluster: Cluster) -> Iterator[Longhorn]:
    with Longhorn(cluster.api(), longhorn_cell.OPTIONS) as running:
        yield running
        assert [] == running.failures


@pytest.fixture(scope="module")
def view(cluster: Cluster, longhorn: Longhorn) -> Iterator[View]:
    found = View(cluster.api(), longhorn_cell.WATCHED)
    yield found
    found.close()


@pytest.fixture
def longhorn_cells(
    cluster: Cluster, longhorn: Longhorn, view: View
) -> Iterator[Callable[..., longhorn_cell.LonghornCell]]:
    with longhorn_cell.cells(cluster, longhorn, view) as make:
        yield make


@pytest.fixture
def make_namespace(cluster: Cluster) -> Iterator[Callable[..., str]]:
    """A function that makes a namespace ready for pods and returns its name; all of them are deleted after the test."""
    api = cluster.api()
    made: list[str] = []

    def make(prefix: str = "test") -> str:
        name = f"{prefix}-{secrets.token_hex(4)}"
        cluster.create_namespace(name)
        made.append(name)
        return name

    yield make
    for name in reversed(made):
        api.delete(f"/api/v1/namespaces/{name}")
