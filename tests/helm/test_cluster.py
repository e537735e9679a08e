"""The chart on a real API server: what is rendered is taken, installed, upgraded beside a leader, and taken away."""

from __future__ import annotations

import base64
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from certs.authority import make_authority
from controller.commands import scheduler_config
from controller.model.names import GATE, RENEWED_ANNOTATION, SINCE_ANNOTATION, TERM_ANNOTATION
from tests.cluster.client import ApiClient, ignored_when_gone
from tests.cluster.cluster import Cluster
from tests.e2e import workloads
from tests.e2e.programs import Controller, leader_address
from tests.e2e.webhooks import Webhook
from tests.helm.chart import CHART, EXAMPLES, NAME, NAMESPACE, Helm, merged, with_image
from tests.helm.combinations import COMBINATIONS, Values, kinds_of_others
from tests.helm.hooks import TEST, UNINSTALL, HookPods
from tests.helm.openapi import LOCATION, write_schemas
from tests.longhorn import paths
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

Listing = set[tuple[str, str, str]]
Object = dict[str, Any]
CONFIGURATIONS = (
    f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/zz-{NAME}",
    f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{NAME}",
)
GATE_ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{GATE}"
STAMPS = {TERM_ANNOTATION: "t1", SINCE_ANNOTATION: "2026-01-01T00:00:00Z", RENEWED_ANNOTATION: "2026-01-01T00:00:02Z"}
HOOK = "helm.sh/hook"
CONFIG_MAP = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}"
LEASE, LEASES = "longhorn-manager-disk-scheduler-lock", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
CA = base64.b64encode(make_authority("ca", timedelta(days=1), datetime.now(UTC)).certificate).decode()
ENTRY: Object = {
    "name": "pods.scheduling.longhorn.io",
    "admissionReviewVersions": ["v1"],
    "clientConfig": {
        "service": {"name": "longhorn-scheduler-webhook", "namespace": NAMESPACE, "path": "/pods", "port": 443},
        "caBundle": CA,
    },
    "failurePolicy": "Ignore",
    "sideEffects": "None",
    "objectSelector": {"matchLabels": {"nobody": "has-this"}},
}


@pytest.fixture
def with_test_account(site: Cluster) -> Iterator[Cluster]:
    """A pod is taken only where its account is; the chart makes that of `helm test` a moment before."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": TEST, "namespace": NAMESPACE}}
    done = site.kubectl("apply", "-f", "-", input=json.dumps(account))
    assert (0, "") == (done.returncode, done.stderr)
    yield site
    site.api().delete(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{TEST}")


# The others are checked against the same API server's schemas, below.
EVERY_RUN = ("defaults", "network", "eks", "openshift")


HOST_NETWORK = 'Warning: would violate PodSecurity "restricted:latest": host namespaces (hostNetwork=true)\n'


@pytest.mark.parametrize(
    "name", [name if name in EVERY_RUN else pytest.param(name, marks=pytest.mark.long) for name in COMBINATIONS]
)
def test_the_api_server_takes_every_combination(with_test_account: Cluster, helm: Helm, name: str) -> None:
    """All of its objects, without a warning: Pod Security `restricted` would warn about a Deployment's pods. It does so
    of the host's network, which needs a namespace that is `privileged`, as Longhorn's is."""
    text = helm.rendered(with_image(COMBINATIONS[name]))
    done = with_test_account.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-", input=text
    )
    assert (0, HOST_NETWORK if name == "eks" else "") == (done.returncode, done.stderr)
    assert len([one for one in yaml.safe_load_all(text) if one]) == len(done.stdout.split())


def test_pod_security_would_warn_about_less(with_test_account: Cluster, helm: Helm) -> None:
    text = helm.rendered({}).replace("allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true")
    done = with_test_account.kubectl("apply", "--dry-run=server", "-f", "-", input=text)
    # Both Deployments and the hook's Job; the test's pod itself is refused.
    assert 3 == done.stderr.count('would violate PodSecurity "restricted')
    assert 1 == done.stderr.count('violates PodSecurity "restricted')


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

    texts = [helm.rendered(with_image(values)) for values in COMBINATIONS.values()]
    count = sum(len([one for one in yaml.safe_load_all(text) if one]) for text in texts)
    assert (count, []) == findings("\n---\n".join(texts))
    (finding,) = findings(helm.rendered({}).replace("minAvailable:", "minAvailabel:", 1))[1]
    assert "minAvailabel" in finding


def test_new_copies_keep_apart_while_those_that_they_replace_still_run(site: Cluster, helm: Helm) -> None:
    """Both old ones are on one node: away from them as well, both new ones would go to the other."""
    (template,) = (one["spec"]["template"] for one in helm.objects({}, "Deployment") if one["metadata"]["name"] == NAME)
    api, pods, hosts = site.api(), "/api/v1/namespaces/default/pods", ("host-a", "host-b")
    for host in hosts:
        site.add_node(host, labels={"hosts": "copies"})

    def host_of(name: str, generation: str, **spec: Any) -> str:
        """Creates the copy; where it is, once it is bound."""
        labels = {**template["metadata"]["labels"], "pod-template-hash": generation}
        spec |= {"affinity": template["spec"]["affinity"], "tolerations": [{"operator": "Exists"}]}
        selector = {"hosts": "copies"}
        api.create(pods, workloads.pod(name, labels=labels, opted_in=False, selector=selector, **spec))
        wait_until(lambda: api.get(f"{pods}/{name}")["spec"].get("nodeName"), f"{name} that is bound", 30)
        return str(api.get(f"{pods}/{name}")["spec"]["nodeName"])

    names = {"old-1": "old", "old-2": "old", "new-1": "new", "new-2": "new"}
    try:
        found = {
            name: host_of(name, generation, **({"nodeName": "host-a"} if generation == "old" else {}))
            for name, generation in names.items()
        }
        assert set(hosts) == {found["new-1"], found["new-2"]}
    finally:
        for name in names:
            with ignored_when_gone():
                api.delete(f"{pods}/{name}", gracePeriodSeconds=0)
        for host in hosts:
            site.delete_node(host)


# Everything that the chart has, but for what needs another's programs or values of the site.
WHOLE: Values = {
    "settings": {"wake-with-annotation": True},
    "secondScheduler": {"enabled": True},
    "networkPolicy": {"enabled": True, "controlPlaneCIDRs": ["10.0.0.0/28"]},
    "monitoring": {"serviceMonitor": {"enabled": True}},
    "tls": {"mode": "cert-manager"},
    "webhook": {"tls": {"mode": "cert-manager"}},
}


class Release:
    """The chart, installed by one Helm."""

    def __init__(self, site: Cluster, helm: Helm) -> None:
        self.site, self._helm = site, helm

    def helm(self, command: str, *words: str, values: Values | None = None) -> str:
        done = self._run(command, *words, values=values)
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout

    def fails(self, command: str) -> str:
        """What it says."""
        done = self._run(command)
        assert 0 != done.returncode, done.stdout
        return done.stdout + done.stderr

    def _run(self, command: str, *words: str, values: Values | None = None) -> subprocess.CompletedProcess[str]:
        chart = (str(CHART),) if command in ("install", "upgrade") else ()
        options = ("--kubeconfig", str(self.site.kubeconfig), "--namespace", NAMESPACE)
        return self._helm.run(command, NAME, *chart, *options, *words, values=values)


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
    return {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"])
        for one in helm.objects(values)
        if HOOK not in one["metadata"].get("annotations", {})
    }


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
    """Fill the configurations and stamp the gate's account, with the rights of the leader's account, as the leader
    does; a person sets something."""
    account = ApiClient.from_kubeconfig(site.service_account_kubeconfig(NAMESPACE, NAME, folder / "leader.kubeconfig"))
    for path in CONFIGURATIONS:
        account.replace(path, account.get(path) | {"webhooks": [ENTRY]})
    account.patch(GATE_ACCOUNT, {"metadata": {"annotations": STAMPS}})
    site.api().patch(CONFIG_MAP, {"data": {"scheduler-extender-enabled": "true"}})


def entries(api: ApiClient) -> list[list[str]]:
    return [[entry["name"] for entry in api.get(path).get("webhooks", ())] for path in CONFIGURATIONS]


def stamps(api: ApiClient) -> dict[str, str]:
    found: dict[str, str] = api.get(GATE_ACCOUNT)["metadata"].get("annotations", {})
    return {name: found[name] for name in STAMPS if name in found}


@pytest.fixture(params=["helm", pytest.param("helm4", marks=pytest.mark.long)])
def release(site: Cluster, request: pytest.FixtureRequest) -> Iterator[Release]:
    release = Release(site, request.getfixturevalue(request.param))
    yield release
    release.helm("uninstall", "--ignore-not-found", "--no-hooks")


@pytest.fixture
def release_3(site: Cluster, helm: Helm) -> Iterator[Release]:
    release = Release(site, helm)
    yield release
    release.helm("uninstall", "--ignore-not-found", "--no-hooks")


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
        assert ([[ENTRY["name"]]] * 2, STAMPS) == (entries(api), stamps(api))
        assert "true" == api.get(CONFIG_MAP)["data"]["scheduler-extender-enabled"]
        spec = api.get(f"{DEPLOYMENTS}/{NAME}")["spec"]
        words = spec["template"]["spec"]["containers"][0]["args"]
        assert (3, level == "debug") == (spec["replicas"], "--log-level=debug" in words)
    pods_made(api)
    release.helm("upgrade", "--reset-then-reuse-values", "--set", "settings.enabled=true")
    assert [[ENTRY["name"]]] * 2 == entries(api)

    release.helm("uninstall", "--wait", "--no-hooks")
    gone_again(site, before)


@pytest.mark.long
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
    release.helm("uninstall", "--wait", "--no-hooks")
    gone_again(site, before)


@pytest.mark.long
@pytest.mark.parametrize(
    "flags",
    [(), ("--server-side", "--force-conflicts", "--field-manager=a-tool")],
)
def test_objects_that_are_applied_again_leave_alone_what_the_leader_wrote(
    site: Cluster, helm: Helm, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """As Argo CD and Flux apply them: from the client, and from the server whoever owns the fields."""
    api, before = site.api(), listing(site)

    def apply(level: str) -> None:
        done = site.kubectl("apply", *flags, "-f", "-", input=helm.rendered({"logLevel": level}, "--no-hooks"))
        assert 0 == done.returncode, done.stderr

    apply("info")
    lead(site, tmp_path)
    for level in ("info", "debug"):
        apply(level)
        assert [[ENTRY["clientConfig"]]] * 2 == [
            [entry["clientConfig"] for entry in api.get(path)["webhooks"]] for path in CONFIGURATIONS
        ]
        assert STAMPS == stamps(api)
        assert "true" == api.get(CONFIG_MAP)["data"]["scheduler-extender-enabled"]
    assert 0 == site.kubectl("delete", "-f", "-", input=helm.rendered({}, "--no-hooks")).returncode
    gone_again(site, before)


@pytest.mark.long
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
    release.helm("uninstall", "--wait", "--no-hooks")
    gone_again(site, before)


def test_renewals_and_places_do_not_queue_behind_other_accounts(release_3: Release, tmp_path: Path) -> None:
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
    wait_until(lambda: f"{NAME}-leases" == schema_of(f"{LEASES}/{LEASE}"), "the FlowSchema in use", 30)
    wait_until(lambda: f"{NAME}-places" == schema_of(paths.longhorn("replicas", NAMESPACE, "any")), "the other one", 30)
    assert f"{NAME}-leases" == schema_of(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{NAME}-gate")
    assert "service-accounts" == schema_of(CONFIG_MAP)


NOTES: list[tuple[Values, str, list[str]]] = [
    ({}, "--for kubeadm", ["--set settings.enabled=true", "opt in automatically"]),
    ({"tls": {"mode": "insecure-plain-http"}}, "--insecure-plain-http", ["WARNING: over plain HTTP"]),
    (
        {"tls": {"mode": "provided", "clientSecretName": "mine"}, "webhook": {"enabled": False}},
        "--client-secret mine",
        ['request and the limit `longhorn.io/scheduler-extender: "1"`'],
    ),
    ({"secondScheduler": {"enabled": True}}, "--part config", ["schedulerName: longhorn-scheduler"]),
    ({"replicaPlacement": {"enabled": True}}, "--part config", ["settings.placement says whether the leader places"]),
    (
        {"replicaPlacement": {"enabled": True}, "settings": {"allocation-authority": "disk-scheduler"}},
        "--part config",
        ["settings.allocation-authority is disk-scheduler: set that to longhorn, or no replica gets a disk."],
    ),
]


def test_the_notes_print_a_command_that_the_program_takes(site: Cluster, helm: Helm) -> None:
    release = Release(site, helm)
    for values, flag, others in NOTES:
        text = release.helm("install", "--dry-run=server", values=with_image(values)).partition("\nNOTES:\n")[2]
        (command,) = re.findall(
            r"-- \\\n +longhorn-scheduler-extender (render-scheduler-config .*?) > ", text, re.DOTALL
        )
        words = shlex.split(command)
        assert NAMESPACE == scheduler_config.command.make_context(words[0], words[1:]).params["namespace"]
        assert flag in command
        assert [] == [other for other in others if other not in text]


def test_a_namespace_without_longhorn_is_refused_where_helm_can_look(site: Cluster, helm: Helm, helm4: Helm) -> None:
    flags = ("--dry-run=server", "--namespace", "default", "--kubeconfig", str(site.kubeconfig))
    for one in (helm, helm4):
        done = one.run("install", NAME, str(CHART), *flags, values=with_image({}))
        assert 0 != done.returncode
        assert "there is no Longhorn in the namespace default: install this chart in Longhorn's" in done.stderr
        done = one.run("install", NAME, str(CHART), *flags, values=with_image({"requireLonghorn": False}))
        assert 0 == done.returncode, done.stderr
        assert 0 == one.template(with_image({}), namespace="default").returncode


@pytest.mark.long
def test_a_release_from_its_first_leader_to_its_end(release_3: Release, tmp_path: Path) -> None:
    """The program itself, with the account that the chart made. It keeps its entries in upgrades and fills them after a
    forced one, `helm test` tries it out, and it is uninstalled."""
    release, site = release_3, release_3.site
    values = with_image({"settings": {"enabled": True, "opt-in": "always"}, "uninstall": {"waitSeconds": 1}})
    before = listing(site)
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
        with HookPods(
            site, tmp_path, lambda: ["--extender-address", address_of(site), "--wait-seconds", "10"]
        ) as hooks:
            tried_out(release, hooks)
            uninstalled(release, hooks, before)
    finally:
        controller.stop()


def address_of(site: Cluster) -> str:
    host, port = site.services.address(NAMESPACE, NAME, 9504)
    return f"{host}:{port}"


def tried_out(release: Release, hooks: HookPods) -> None:
    """`helm test` tries what it can with its account, and fails while pods come out as they are, and growth unchecked.
    That of the copies it finds none stays: this program runs beside them."""
    failed = release.fails("test")
    assert {"webhook", "growth"} <= {what for outcome, what in tried(hooks) if outcome == "failure"}, failed
    webhook = Webhook(release.site, ("--leader-address", leader_address(release.site)))
    try:
        webhook.wait_ready()
        release.fails("test")
        found = {what: outcome for outcome, what in tried(hooks) if what != "certificate"}
        ways = dict.fromkeys(("extender", "webhook", "growth", "gate", "endpoints", "rights", "settings"), "ok")
        assert ways.items() <= found.items(), hooks.outputs[TEST]
        assert {"leader", "copies", "webhook copies"} == {what for what in found if found[what] == "failure"} - {
            "wiring"
        }
    finally:
        webhook.stop()


def tried(hooks: HookPods) -> list[tuple[str, str]]:
    """Outcome and subject of each line that it said last."""
    return re.findall(r"^(ok|warning|failure|skipped) +(.*?)  ", hooks.outputs[TEST], re.MULTILINE)


def uninstalled(release: Release, hooks: HookPods, before: Listing) -> None:
    """Not while a pod waits for the extender; then all goes but the authorities, and purged these as well."""
    site = release.site
    api, waiting = site.api(), "/api/v1/namespaces/default/pods"
    api.create(waiting, workloads.pod("waiting", "c"))
    assert f"{UNINSTALL} failed" in release.fails("uninstall")
    assert "pending pods that request longhorn.io/scheduler-extender: 1 (default/waiting)" in (hooks.outputs[UNINSTALL])
    assert {NAME, "longhorn-scheduler-webhook"} == {one["metadata"]["name"] for one in api.list(DEPLOYMENTS)["items"]}
    api.delete(f"{waiting}/waiting", gracePeriodSeconds=0)

    api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{TEST}")  # for its log, it stays
    release.helm("uninstall", "--wait")
    authorities = {("Secret", NAMESPACE, f"{name}-ca") for name in (NAME, "longhorn-scheduler-webhook")}
    gone_again(site, before | authorities)
    assert LEASE not in {one["metadata"]["name"] for one in api.list(LEASES)["items"]}

    release.helm("install", values=with_image({"uninstall": {"purge": True}}))
    release.helm("uninstall", "--wait")
    gone_again(site, before)
