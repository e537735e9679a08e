"""What is shipped starts: the Dockerfile's own steps, and in the image every container that a manifest names."""

from __future__ import annotations

import re
import secrets
import signal
import subprocess
import sys
import tomllib
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.cluster.cache import REPOSITORY
from tests.cluster.cluster import Cluster
from tests.e2e.image import Image, build
from tests.longhorn import install
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

DOCKERFILE, EXAMPLES = REPOSITORY / "Dockerfile", REPOSITORY / "docs" / "examples"
IMAGE_NAME: Final = "REGISTRY/longhorn-scheduler-extender:TAG"
NAMESPACE: Final = "longhorn-system"
READY_SECONDS: Final = 120.0
GIVEN: Final = {"VERSION": "1.2.3", "REVISION": "0123456789abcdef"}
Object = dict[str, Any]


BUILT = pytest.param(None, marks=pytest.mark.long, id="built")


@pytest.fixture(scope="module", params=[pytest.param(Path(sys.prefix), id="with what is installed here"), BUILT])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Building takes a minute or two, nearly all of it pip's."""
    return build(DOCKERFILE, tmp_path_factory.mktemp("image") / "built", GIVEN, app=request.param)


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Cluster:
    """With Longhorn's kinds."""
    install.install(cluster.api(), NAMESPACE, {}, capacity_tracking=False)
    return cluster


def manifests() -> list[Path]:
    """Those that need the image, the controller's first."""
    return sorted(path for path in EXAMPLES.glob("*.yaml") if IMAGE_NAME in path.read_text())


def containers(manifest: Path) -> list[tuple[Object, Object]]:
    """Pod specs and the containers in them that are to run the image."""
    found = []
    for document in yaml.safe_load_all(manifest.read_text()):
        template = (document or {}).get("spec", {}).get("template", {}).get("spec", {})
        found += [(template, one) for one in template.get("containers", ()) if one["image"] == IMAGE_NAME]
    return found


@pytest.mark.parametrize("manifest", manifests(), ids=lambda path: path.name)
def test_the_manifest_is_taken_whole_in_another_namespace(site: Cluster, manifest: Path) -> None:
    """With its namespace replaced, as the page tells those to do who have another one."""
    site.api().create("/api/v1/namespaces", {"metadata": {"name": f"other-{manifest.stem}"}})
    text = manifest.read_text().replace(NAMESPACE, f"other-{manifest.stem}")
    done = site.kubectl("apply", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-", input=text)
    assert (0, "") == (done.returncode, done.stderr)
    assert len([item for item in yaml.safe_load_all(text) if item]) == len(done.stdout.split())


class Running:
    """One container's process. It listens on the manifest's ports, at an address of its own in place of the pod's."""

    def __init__(self, image: Image, site: Cluster, pod: Object, container: Object, folder: Path) -> None:
        account, self._grace = pod["serviceAccountName"], pod["terminationGracePeriodSeconds"]
        self.address = f"127.77.{1 + secrets.randbelow(254)}.{1 + secrets.randbelow(254)}"
        self._ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        known = {
            "metadata.name": f"{account}-1",
            "metadata.namespace": NAMESPACE,
            "status.podIP": self.address,
            "spec.nodeName": "node-1",
        }
        env = {entry["name"]: known[entry["valueFrom"]["fieldRef"]["fieldPath"]] for entry in container["env"]}
        command = image.command(container.get("command"), container.get("args"))
        # No service account is mounted here, and all containers share one network.
        kubeconfig = site.service_account_kubeconfig(NAMESPACE, account, folder / f"{account}.kubeconfig")
        help_text = subprocess.run([*command, "--help"], env=image.env(env), capture_output=True, text=True, check=True)
        addresses = sorted(set(re.findall(r"--(?:[a-z]+-)?address(?= TEXT)", help_text.stdout)) - {"--leader-address"})
        command += ["--kubeconfig", str(kubeconfig), *(word for flag in addresses for word in (flag, self.address))]
        command += ["--status-port", str(free_port())]  # of the loopback that they share here
        self.log = folder / f"{account}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd="/", env=image.env(env), stdout=log, stderr=log)

    def answers(self, probe: Object) -> bool:
        assert self._process.poll() is None, self.log.read_text()[-4000:]
        url = f"http://{self.address}:{self._ports[probe['httpGet']['port']]}{probe['httpGet']['path']}"
        try:
            with urllib.request.urlopen(url, timeout=10):
                return True
        except OSError:
            return False

    def end(self) -> int:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(self._grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise


def test_every_container_of_the_manifests_starts_in_the_image(image: Image, site: Cluster, tmp_path: Path) -> None:
    started: list[Running] = []
    try:
        for manifest in manifests():
            done = site.kubectl("apply", "-f", str(manifest))
            assert (0, "") == (done.returncode, done.stderr)
            for pod, container in containers(manifest):
                running = Running(image, site, pod, container, tmp_path)
                started.append(running)
                try:
                    wait_until(partial(running.answers, container["readinessProbe"]), "readiness", READY_SECONDS)
                except TimeoutError as error:
                    raise AssertionError(f"{error}: {running.log.read_text()[-4000:]}") from error
                assert running.answers(container["livenessProbe"])
    finally:
        codes = [running.end() for running in reversed(started)]
    assert 2 <= len(started)
    assert {0} == set(codes)


def test_the_image_exposes_the_ports_of_the_manifests(image: Image) -> None:
    ports = {
        port["containerPort"]
        for manifest in manifests()
        for _, container in containers(manifest)
        for port in container["ports"]
    }
    assert ports == image.stage.ports


def test_the_image_says_what_it_is_and_does_not_run_as_root(image: Image) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    said = {name.removeprefix("org.opencontainers.image."): value for name, value in image.stage.labels.items()}
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", said.pop("base.name"))
    assert {
        "title": project["name"],
        "description": project["description"],
        "licenses": project["license"],
        "version": GIVEN["VERSION"],
        "revision": GIVEN["REVISION"],
    } == said
    assert "65532:65532" == image.stage.user


def test_every_program_of_the_image_answers(image: Image) -> None:
    """All scripts of the package but those of kubectl's plugin."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    for name in project["scripts"]:
        if name.startswith("kubectl"):
            continue
        words = image.command([name], ["--help"])
        done = subprocess.run(words, env=image.env({}), cwd="/", capture_output=True, text=True, check=False)
        assert (0, "") == (done.returncode, done.stderr), name


@pytest.mark.parametrize("image", [BUILT], indirect=True)
def test_nothing_but_what_runs_is_in_the_image(image: Image) -> None:
    """No installer, no test tools, no compiler's leavings, no other part of the repository."""
    packages = next((image.root / "app" / "lib").glob("python3*")) / "site-packages"
    names = {path.name.lower() for path in packages.iterdir()}
    tools = {"pip", "setuptools", "pytest", "hypothesis", "mypy", "matplotlib", "grpc_tools"}
    assert not names & {*tools, "tests", "bench", "release"}
    assert {"app", "usr"} == {path.name for path in image.root.iterdir()}
    scripts = {path.name for path in (image.root / "app" / "bin").iterdir() if not path.name.startswith("python")}
    assert {"longhorn-scheduler-extender", "longhorn-scheduler-webhook"} == scripts
