"""Helm is built before the first test, because a first build outlasts a test's time limit."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, ClusterOptions
from tests.helm.chart import NAMESPACE, Helm
from tests.helm.combinations import kinds_of_others
from tests.helm.tools import TOOLS
from tests.longhorn import install

HERE = Path(__file__).parent
NEEDING = {"helm", "helm4", "kubeconform", "site"}
built = pytest.StashKey[dict[str, Path] | Exception]()


def _needs_tools(item: pytest.Item) -> bool:
    return HERE in item.path.parents and not NEEDING.isdisjoint(getattr(item, "fixturenames", ()))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _needs_tools(item):
            item.add_marker("cluster" if "site" in getattr(item, "fixturenames", ()) else "slow")


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.collectonly or not any(map(_needs_tools, session.items)):
        return
    try:
        session.config.stash[built] = {tool.name: tool.build() for tool in TOOLS}
    except Exception as error:  # the other tests still run; those that need it fail with this
        session.config.stash[built] = error


def _program(request: pytest.FixtureRequest, name: str) -> Path:
    programs = request.config.stash[built]
    if isinstance(programs, Exception):
        raise RuntimeError(f"Helm could not be built: {programs}") from programs
    return programs[name]


@pytest.fixture(scope="session")
def helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(_program(request, "helm3"), tmp_path_factory.mktemp("helm3"))


@pytest.fixture(scope="session")
def helm4(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(_program(request, "helm4"), tmp_path_factory.mktemp("helm4"))


@pytest.fixture(scope="session")
def kubeconform(request: pytest.FixtureRequest) -> Path:
    return _program(request, "kubeconform")


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster of its own, with Longhorn's kinds, cert-manager's and those of the Prometheus Operator; in Longhorn's
    namespace the API server enforces Pod Security `restricted`, and warns."""
    flags = {"enable-admission-plugins": "OwnerReferencesPermissionEnforcement"}  # as OpenShift has it
    with Cluster.start(ClusterOptions(name=f"helm-{secrets.token_hex(4)}", api_server_flags=flags)) as running:
        api = running.api()
        install.install(api, NAMESPACE, {}, capacity_tracking=False)
        for definition in kinds_of_others():
            install.ensure(api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
        api.patch(f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {"labels": labels}})
        yield running
