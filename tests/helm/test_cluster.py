"""The chart on a real API server: what is rendered is taken, installed, upgraded beside a leader, and taken away."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.cli import _parser
from tests.cluster.client import ApiClient
from tests.cluster.cluster import Cluster
from tests.e2e.programs import Controller
from tests.helm.chart import CHART, EXAMPLES, NAME, NAMESPACE, Helm, merged, with_image
from tests.helm.combinations import API_VERSIONS, COMBINATIONS, Values, kinds_of_others
from tests.helm.openapi import LOCATION, write_schemas
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

Listing = set[tuple[str, str, str]]
Object = dict[str, Any]
CONFIGURATIONS = (
    f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/zz-{NAME}",
    f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{NAME}",
)
CONFIG_MAP = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
ENTRY = {
    "name": "pods.scheduling.longhorn.io",
    "admissionReviewVersions": ["v1"],
    "clientConfig": {"service": {"name": "longhorn-scheduler-webhook", "namespace": NAMESPACE, "path": "/pods"}},
    "failurePolicy": "Ignore",
    "sideEffects": "None",
    "objectSelector": {"matchLabels": {"nobody": "has-this"}},
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_the_api_server_takes_every_combination(site: Cluster, helm: Helm, name: str) -> None:
    """All of its objects, without a warning: Pod Security `restricted` would warn about a Deployment's pods."""
    text = helm.rendered(with_image(COMBINATIONS[name]), *API_VERSIONS)
    done = site.kubectl("apply", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-", input=text)
    assert (0, "") == (done.returncode, done.stderr)
    assert len([one for one in yaml.safe_load_all(text) if one]) == len(done.stdout.split())


def test_pod_security_would_warn_about_less(site: Cluster, helm: Helm) -> None:
    text = helm.rendered({}).replace("allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true")
    done = site.kubectl("apply", "--dry-run=server", "-f", "-", input=text)
    assert 2 == done.stderr.count('would violate PodSecurity "restricted')


def test_kubeconform_finds_nothing_by_the_servers_own_schemas(
    site: Cluster, helm: Helm, kubeconform: Path, tmp_path: Path
) -> None:
    wanted = {definition["spec"]["names"]["kind"] for definition in kinds_of_others()}
    wait_until(lambda: wanted <= write_schemas(site.api().get("/openapi/v2"), tmp_path), "the schemas of all kinds", 30)
    command = [str(kubeconform), "-schema-location", f"{tmp_path}/{LOCATION}", "-summary", "-output", "json", "-"]

    def findings(text: str) -> tuple[int, list[str]]:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
        report = json.loads(done.stdout)
        return report["summary"]["valid"], [one["msg"] for one in report["resources"]]

    texts = [helm.rendered(with_image(values), *API_VERSIONS) for values in COMBINATIONS.values()]
    count = sum(len([one for one in yaml.safe_load_all(text) if one]) for text in texts)
    assert (count, []) == findings("\n---\n".join(texts))
    (finding,) = findings(helm.rendered({}).replace("minAvailable:", "minAvailabel:", 1))[1]
    assert "minAvailabel" in finding


# Everything that the chart has, but for what needs another's programs or values of the site.
WHOLE: Values = {
    "settings": {"wake-with-annotation": True},
    "secondScheduler": {"enabled": True},
    "networkPolicy": {"enabled": True, "controlPlaneCIDRs": ["10.0.0.0/28"]},
    "monitoring": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}},
    "tls": {"mode": "cert-manager"},
    "webhook": {"tls": {"mode": "cert-manager"}},
}


class Release:
    """The chart, installed by one Helm."""

    def __init__(self, site: Cluster, helm: Helm) -> None:
        self.site, self._helm = site, helm

    def helm(self, command: str, *words: str, values: Values | None = None) -> str:
        chart = (str(CHART),) if command != "uninstall" else ()
        options = ("--kubeconfig", str(self.site.kubeconfig), "--namespace", NAMESPACE)
        done = self._helm.run(command, NAME, *chart, *options, *words, values=values)
        assert 0 == done.returncode, done.stderr
        return done.stdout


def listing(site: Cluster) -> Listing:
    """Everything that is stored, but for what comes and goes by itself."""
    kinds = site.kubectl("api-resources", "--verbs=list", "-o", "name").stdout.split()
    passing = {"events", "events.events.k8s.io", "componentstatuses"}
    one = '{range .items[*]}{.kind}{"\\t"}{.metadata.namespace}{"\\t"}{.metadata.name}{"\\n"}{end}'
    done = site.kubectl("get", ",".join(sorted(set(kinds) - passing)), "--all-namespaces", "-o", f"jsonpath={one}")
    assert 0 == done.returncode, done.stderr
    return {
        (kind, namespace, name) for kind, namespace, name in (line.split("\t") for line in done.stdout.splitlines())
    }


def rendered(helm: Helm, values: Values) -> Listing:
    documents = yaml.safe_load_all(helm.rendered(with_image(values), *API_VERSIONS))
    return {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in documents if one}


def pods_made(api: ApiClient) -> None:
    """The pods of all Deployments are created: Pod Security is enforced, and lets them in."""

    def are_made() -> bool:
        return all(
            one.get("status", {}).get("updatedReplicas", 0) == one["spec"]["replicas"]
            and one["status"].get("observedGeneration") == one["metadata"]["generation"]
            for one in api.list(DEPLOYMENTS)["items"]
        )

    wait_until(are_made, "pods of the Deployments", 60)


def lead(site: Cluster, folder: Path) -> None:
    """Fill the configurations with the rights of the leader's account, as the leader does; a person sets something."""
    account = ApiClient.from_kubeconfig(site.service_account_kubeconfig(NAMESPACE, NAME, folder / "leader.kubeconfig"))
    for path in CONFIGURATIONS:
        account.replace(path, account.get(path) | {"webhooks": [ENTRY]})
    site.api().patch(CONFIG_MAP, {"data": {"scheduler-extender-enabled": "true"}})


def entries(api: ApiClient) -> list[list[str]]:
    return [[entry["name"] for entry in api.get(path).get("webhooks", ())] for path in CONFIGURATIONS]


@pytest.fixture(params=["helm", "helm4"])
def release(site: Cluster, request: pytest.FixtureRequest) -> Iterator[Release]:
    release = Release(site, request.getfixturevalue(request.param))
    yield release
    release.helm("uninstall", "--ignore-not-found")


@pytest.fixture
def release_3(site: Cluster, helm: Helm) -> Iterator[Release]:
    release = Release(site, helm)
    yield release
    release.helm("uninstall", "--ignore-not-found")


def gone_again(site: Cluster, before: Listing) -> None:
    """The API server and its garbage collector have ended what belonged to what was deleted."""
    left: Callable[[], Listing] = lambda: {one for one in listing(site) ^ before if one[0] != "Lease"}  # noqa: E731
    try:
        wait_until(lambda: not left(), "end of what was installed", 60)
    except TimeoutError:
        assert set() == left()


def test_install_upgrade_and_uninstall(release: Release, helm: Helm, tmp_path: Path) -> None:
    """An upgrade leaves what the leader wrote and what a person set; forced, it empties both."""
    site, values = release.site, with_image(WHOLE)
    api, before = site.api(), listing(site)
    release.helm("install", values=values)
    made_by_others = {"Secret", "ReplicaSet", "Pod", "ControllerRevision", "EndpointSlice", "Endpoints"}
    made_by_others |= {"Lease", "IPAddress"}
    new = {one for one in listing(site) - before if one[0] not in made_by_others}
    assert rendered(helm, WHOLE) == new
    pods_made(api)

    lead(site, tmp_path)
    for level in ("debug", "info"):
        release.helm("upgrade", values=merged(values, {"logLevel": level, "controller": {"replicas": 3}}))
        assert [[ENTRY["name"]]] * 2 == entries(api)
        assert "true" == api.get(CONFIG_MAP)["data"]["scheduler-extender-enabled"]
        spec = api.get(f"{DEPLOYMENTS}/{NAME}")["spec"]
        words = spec["template"]["spec"]["containers"][0]["args"]
        assert (3, level == "debug") == (spec["replicas"], "--log-level=debug" in words)
    pods_made(api)
    release.helm("upgrade", "--reset-then-reuse-values", "--set", "settings.enabled=true")
    assert [[ENTRY["name"]]] * 2 == entries(api)

    release.helm("uninstall", "--wait")
    gone_again(site, before)


def test_a_forced_upgrade_empties_what_the_leader_then_fills(release: Release, tmp_path: Path) -> None:
    site, values = release.site, with_image({})
    api, before = site.api(), listing(site)
    is_four = release._helm.program.name == "helm4"
    release.helm("install", *(("--server-side=false",) if is_four else ()), values=values)
    lead(site, tmp_path)
    address = api.get(f"/api/v1/namespaces/{NAMESPACE}/services/{NAME}")["spec"]["clusterIP"]
    flags = ("--force-replace", "--server-side=false") if is_four else ("--force",)
    release.helm("upgrade", *flags, values=merged(values, {"logLevel": "debug"}))
    assert [[], []] == entries(api)
    assert "data" not in api.get(CONFIG_MAP)
    assert address == api.get(f"/api/v1/namespaces/{NAMESPACE}/services/{NAME}")["spec"]["clusterIP"]
    lead(site, tmp_path)  # it may, and finds them
    assert [[ENTRY["name"]]] * 2 == entries(api)
    release.helm("uninstall", "--wait")
    gone_again(site, before)


def test_helm_takes_over_what_was_applied_by_hand(release_3: Release, tmp_path: Path) -> None:
    release, site = release_3, release_3.site
    api, before = site.api(), listing(site)
    files = [word for name in ("install.yaml", "webhook.yaml") for word in ("-f", str(EXAMPLES / name))]
    done = site.kubectl("apply", *files)
    assert (0, "") == (done.returncode, done.stderr)
    lead(site, tmp_path)

    def specs() -> list[tuple[str, Object]]:
        return [(one["metadata"]["uid"], one["spec"]) for one in api.list(DEPLOYMENTS)["items"]]

    by_hand = specs()
    release.helm("install", "--take-ownership", values=with_image({}))
    assert by_hand == specs()  # the same pods
    assert [[ENTRY["name"]]] * 2 == entries(api)
    assert "true" == api.get(CONFIG_MAP)["data"]["scheduler-extender-enabled"]
    release.helm("uninstall", "--wait")
    gone_again(site, before)


def test_renewals_of_the_lease_are_ranked_with_the_clusters_own(release_3: Release, tmp_path: Path) -> None:
    """The API server says in each answer which FlowSchema a call was under."""
    release, site = release_3, release_3.site
    release.helm("install", values=with_image({}))
    schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
    kubeconfig = site.service_account_kubeconfig(NAMESPACE, NAME, tmp_path / "kubeconfig")

    def schema_of(path: str) -> str:
        done = site.kubectl("--kubeconfig", str(kubeconfig), "get", "--raw", path, "-v=8")
        uids = re.findall(r'X-Kubernetes-Pf-Flowschema-Uid: ?"?([0-9a-f-]+)', done.stderr, re.IGNORECASE)
        names = {one["metadata"]["uid"]: one["metadata"]["name"] for one in site.api().list(schemas)["items"]}
        return str(names[uids[-1]])

    # The API server takes a new FlowSchema into account a moment later.
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/longhorn-manager-disk-scheduler-lock"
    wait_until(lambda: f"{NAME}-leases" == schema_of(lease), "the FlowSchema in use", 30)
    assert "service-accounts" == schema_of(CONFIG_MAP)


NOTES: list[tuple[Values, str, list[str]]] = [
    ({}, "--for kubeadm", ["--set settings.enabled=true", "opt in by themselves"]),
    ({"tls": {"mode": "insecure-plain-http"}}, "--insecure-plain-http", ["WARNING: over plain HTTP"]),
    (
        {"tls": {"mode": "provided", "clientSecretName": "mine"}, "webhook": {"enabled": False}},
        "--client-secret mine",
        ['requests `longhorn.io/scheduler-extender: "1"`'],
    ),
    ({"secondScheduler": {"enabled": True}}, "--part config", ["schedulerName: longhorn-scheduler"]),
]


def test_the_notes_print_a_command_that_the_program_takes(site: Cluster, helm: Helm) -> None:
    release = Release(site, helm)
    for values, flag, others in NOTES:
        text = release.helm("install", "--dry-run=server", values=with_image(values)).partition("\nNOTES:\n")[2]
        (command,) = re.findall(
            r"-- \\\n +longhorn-scheduler-extender (render-scheduler-config .*?) > ", text, re.DOTALL
        )
        words = shlex.split(command)
        assert NAMESPACE == _parser().parse_args(words).namespace
        assert flag in command
        assert [] == [other for other in others if other not in text]


def test_a_leader_keeps_its_entries_in_upgrades_and_fills_them_after_a_forced_one(
    release_3: Release, tmp_path: Path
) -> None:
    """The program itself, with the account that the chart made. The last test here: its Secrets and Lease stay."""
    release, site = release_3, release_3.site
    values = with_image({"settings": {"enabled": True, "opt-in": "always"}})
    release.helm("install", values=values)
    controller = Controller(site, site.service_account_kubeconfig(NAMESPACE, NAME, tmp_path / "kubeconfig"))
    try:
        controller.wait_leading()
        wait_until(lambda: all(entries(site.api())), "entries of both configurations", 60)
        filled = entries(site.api())
        repairs = controller.status()["admission"]["repairs"]
        for level in ("debug", "info"):
            release.helm("upgrade", values=merged(values, {"logLevel": level}))
            assert filled == entries(site.api())
        assert repairs == controller.status()["admission"]["repairs"]
        release.helm("upgrade", "--force", values=values)
        wait_until(lambda: filled == entries(site.api()), "entries that are filled again", 15)
        wait_until(lambda: controller.status()["admission"]["repairs"] > repairs, "repairs that are counted", 15)
        # Its canary is a pod as well, and Pod Security lets it in.
        wait_until(lambda: "canary sent" in controller.log.read_text(), "a canary", 30)
        assert 0 == controller.counted('canaries_total{outcome="failed"}')
    finally:
        controller.stop()
