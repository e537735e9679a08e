"""Helm and Prometheus are built before the first test, because a first build outlasts a test's time limit."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster, ClusterOptions
from tests.conftest import progress_of
from tests.helm.chart import NAMESPACE, Helm
from tests.helm.combinations import kinds_of_others
from tests.helm.tools import HELM_3, HELM_4, KUBECONFORM, PROMETHEUS, PROMTOOL, Tool
from tests.longhorn import install

HERE = Path(__file__).parent
# What a fixture needs; what is Prometheus' takes minutes to build, so only `make alerts` and `make test-long` do.
NEEDED = {"helm": HELM_3, "helm4": HELM_4, "kubeconform": KUBECONFORM, "promtool": PROMTOOL, "prometheus": PROMETHEUS}
built = pytest.StashKey[dict[Tool, Path | Exception]]()


def _needed(item: pytest.Item) -> set[Tool]:
    names = getattr(item, "fixturenames", ()) if HERE in item.path.parents else ()
    return {NEEDED[name] for name in names if name in NEEDED}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "site" in getattr(item, "fixturenames", ()) and HERE in item.path.parents:
            item.add_marker("cluster")
        elif needed := _needed(item):
            item.add_marker("slow" if needed.isdisjoint((PROMTOOL, PROMETHEUS)) else "long")


def pytest_collection_finish(session: pytest.Session) -> None:
    found: dict[Tool, Path | Exception] = {}
    session.config.stash[built] = found
    if not session.config.option.collectonly:
        for tool in set[Tool]().union(*map(_needed, session.items)):
            try:
                found[tool] = tool.build(progress_of(session.config))
            except Exception as error:  # the other tests still run; those that need it fail with this
                found[tool] = error


def _program(request: pytest.FixtureRequest, tool: Tool) -> Path:
    program = request.config.stash[built][tool]
    if isinstance(program, Exception):
        raise RuntimeError(f"{tool.name} could not be built: {program}") from program
    return program


@pytest.fixture(scope="session")
def helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(_program(request, HELM_3), tmp_path_factory.mktemp("helm3"))


@pytest.fixture(scope="session")
def helm4(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(_program(request, HELM_4), tmp_path_factory.mktemp("helm4"))


@pytest.fixture(scope="session")
def kubeconform(request: pytest.FixtureRequest) -> Path:
    return _program(request, KUBECONFORM)


@pytest.fixture(scope="session")
def promtool(request: pytest.FixtureRequest) -> Path:
    return _program(request, PROMTOOL)


@pytest.fixture(scope="session")
def prometheus(request: pytest.FixtureRequest) -> Path:
    return _program(request, PROMETHEUS)


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
