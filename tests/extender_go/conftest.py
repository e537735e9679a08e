"""The client is built before the first test, because a first build outlasts a test's time limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.extender_go.build import build
from tests.extender_go.client import SchedulerClient, ServedExtender

HERE = Path(__file__).parent
built = pytest.StashKey[Path | Exception]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("slow")


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.collectonly or not any("client" in _fixtures(item) for item in session.items):
        return
    try:
        session.config.stash[built] = build()
    except Exception as error:  # the other tests still run; those that need it fail with this
        session.config.stash[built] = error


def _fixtures(item: pytest.Item) -> tuple[str, ...]:
    return tuple(getattr(item, "fixturenames", ())) if HERE in item.path.parents else ()


@pytest.fixture(scope="session")
def client(request: pytest.FixtureRequest) -> Iterator[SchedulerClient]:
    program = request.config.stash[built]
    if isinstance(program, Exception):
        raise RuntimeError(f"the client could not be built: {program}") from program
    with SchedulerClient(program) as running:
        yield running


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedExtender]:
    server = ServedExtender(tmp_path_factory.mktemp("extender"))
    yield server
    server.stop()
