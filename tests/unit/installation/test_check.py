"""`check`: an installation in order, and what is said of each fault, with a hint and the right outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.commands.check import service_by_table
from controller.errors import ConfigError, ForbiddenError, UnavailableError
from controller.installation.check import check_installation
from controller.installation.rights import needed_rights
from controller.installation.site import CheckResult, CheckTarget, started_with
from controller.kube.resources import (
    ACCESS_REVIEWS,
    CONFIG_MAPS,
    CRDS,
    CSI_DRIVERS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    EVENTS,
    LEASES,
    LONGHORN_NODES,
    LONGHORN_REPLICAS,
    LONGHORN_SETTINGS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    OUR_CONFIGURATIONS,
    PODS,
    POLICIES,
    POLICY_BINDINGS,
    SECRETS,
    SERVICE_ACCOUNTS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from controller.model.names import GATE, LONGHORN_DRIVER, MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION
from controller.placement.gate import NO_TIME
from controller.settings import ProcessSettings
from tests.helm.chart import EXAMPLES
from tests.helm.rights import rights_of
from tests.ports import free_port
from tests.unit.installation.stage import (
    LEASE,
    NAME,
    ON,
    SPACE,
    SYSTEM,
    WEBHOOK,
    Extender,
    StagedSite,
    pod,
)

DAY_SECONDS = 86_400
Change = Callable[[StagedSite], object]


@pytest.fixture
def extender() -> Iterator[Extender]:
    made = Extender()
    yield made
    made.stop()


@pytest.fixture
def site(extender: Extender) -> StagedSite:
    return StagedSite(extender)


def unhealthy(results: list[CheckResult]) -> list[CheckResult]:
    return [one for one in results if one.outcome != "ok" and not one.text.startswith("the extender serves plain HTTP")]


def test_nothing_is_wrong_where_all_is_in_order(site: StagedSite) -> None:
    found = site.results()
    assert [] == unhealthy(found)
    assert 22 == len(found)
    (question,) = site.extender.asked
    assert ["longhorn-scheduler-extender-check"] == question["NodeNames"]
    assert not [key for key in site.server.objects if key[2] == "longhorn-scheduler-extender-check"]  # dry runs


def without(resource: Resource, name: str, namespace: str | None = SPACE) -> Change:
    return lambda site: site.delete(resource, name, namespace)


def changed(**pods: Any) -> Change:
    """The second copy of the controller is another one."""
    return lambda site: site.put_pod(pod(f"{NAME}-2", NAME, **{"node": "n2", **pods}))


def configured(**data: str) -> Change:
    return lambda site: site.set(**{**ON, **{f"scheduler-extender-{name}": value for name, value in data.items()}})


def said(**overview: Any) -> Change:
    def change(site: StagedSite) -> None:
        assert isinstance(site.overview, dict)
        site.overview |= overview

    return change


def problem(what: str, severity: str = "failure") -> Change:
    return said(problems=[{"severity": severity, "what": what, "text": f"trouble with {what}", "hint": "mend it"}])


def publish_bundle(site: StagedSite, text: str) -> None:
    found = site.server.get(MUTATING_WEBHOOKS, None, MUTATING_CONFIGURATION)
    found["webhooks"][0]["clientConfig"]["caBundle"] = text
    site.server.put(MUTATING_WEBHOOKS, None, found)


def lose_webhooks(site: StagedSite) -> None:
    for number in (1, 2):
        site.delete(PODS, f"{WEBHOOK}-{number}", SPACE)


def wait_webhooks(site: StagedSite) -> None:
    for number in (1, 2):
        pod = site.server.get(PODS, SPACE, f"{WEBHOOK}-{number}")
        site.server.put(PODS, SPACE, {**pod, "status": {"conditions": []}})


def lose_webhooks_and_answers(site: StagedSite) -> None:
    lose_webhooks(site)
    deny("")(site)


def lose_second(site: StagedSite) -> None:
    site.delete(PODS, f"{NAME}-2", SPACE)
    site.server.put(DEPLOYMENTS, SPACE, {"metadata": {"name": NAME}, "spec": {"replicas": 1}})


def leave_a_lease(site: StagedSite) -> None:
    site.lease("longhorn-scheduler", SPACE)
    site.clock.advance(21)
    site.lead()
    site.lease("kube-scheduler", SYSTEM)


def start_unconfigured(site: StagedSite) -> None:
    body = pod("kube-scheduler-2", "", "n2", args=["--leader-elect=true"])
    body["metadata"]["labels"] = {"component": "kube-scheduler"}
    site.server.put(PODS, SYSTEM, body)


def track_capacity(site: StagedSite) -> None:
    site.server.put(CSI_DRIVERS, None, {"metadata": {"name": LONGHORN_DRIVER}, "spec": {"storageCapacity": True}})


def close_port(site: StagedSite) -> None:
    site.extender.address = f"127.0.0.1:{free_port()}"


def tell_no_time(site: StagedSite) -> None:
    site.server.date = lambda: None


def answer(status: int = 200, **body: Any) -> Change:
    def change(site: StagedSite) -> None:
        site.extender.status, site.extender.answer = status, body

    return change


def speak_tls(site: StagedSite) -> None:
    """The extender's chain is there, and is not what this one speaks."""
    site.start("--tls-mode", "self")
    site.make_chain("extender")


def inline(tls: dict[str, Any]) -> Change:
    """What stands in kube-scheduler's file, in place of the extender's own or some of them."""

    def change(site: StagedSite) -> None:
        speak_tls(site)
        data = site.server.get(SECRETS, SPACE, f"{NAME}-client")["data"]
        own = {"caData": data["ca.crt"], "certData": data["tls.crt"], "keyData": data["tls.key"]}
        entry = {"urlPrefix": f"https://{NAME}", "tlsConfig": {**own, **tls}}
        site.configure("default-scheduler", extenders=[entry])

    return change


def strange_keys(site: StagedSite) -> None:
    """kube-scheduler's file has another program's."""
    data = site.server.get(SECRETS, SPACE, f"{WEBHOOK}-client-tls")["data"]
    inline({"caData": data["ca.crt"], "certData": data["tls.crt"], "keyData": data["tls.key"]})(site)


def ended_keys(site: StagedSite) -> None:
    """The file is ten years old."""
    inline({})(site)
    site.clock.advance(3_651 * DAY_SECONDS)


def lack(account: str, right: str) -> Change:
    return lambda site: site.server.lacking.add((account, right))


def deny(text: str) -> Change:
    return lambda site: setattr(site.server, "denial", text)


def renamed_entries(site: StagedSite) -> None:
    site.server.opts_in = False


def lose_entries(site: StagedSite) -> None:
    for kind, name in OUR_CONFIGURATIONS.items():
        site.server.put(kind, None, {"metadata": {"name": name}})


def off_without_entries(site: StagedSite) -> None:
    lose_entries(site)
    configured(enabled="false")(site)


def advance(seconds: float) -> Change:
    return lambda site: site.clock.advance(seconds)


def lead_and_renew(site: StagedSite, seconds: float) -> None:
    """The gate alone is not renewed."""
    site.clock.advance(seconds)
    site.lead()
    site.lease("kube-scheduler", SYSTEM)


NOT_LED = "no copy has led yet"
FAULTS: list[tuple[Change, str, str, str, str]] = [
    # Longhorn
    (
        without(LONGHORN_SETTINGS, "current-longhorn-version"),
        "longhorn",
        "failure",
        "no Longhorn in the",
        "--namespace",
    ),
    (
        lambda site: site.set_longhorn("current-longhorn-version", "v1.8.0"),
        *("longhorn", "failure", "v1.8.0 is older than v1.9.0", "docs/compatibility.md"),
    ),
    (
        lambda site: site.server.put(CRDS, None, {"metadata": {"name": "diskschedules.longhorn.io"}}),
        *("longhorn", "failure", "has a disk scheduler of its own", "docs/compatibility.md"),
    ),
    (
        lambda site: site.set_longhorn("storage-over-provisioning-percentage", "lots"),
        *("longhorn", "warning", "storage-over-provisioning-percentage: 'lots' is not an integer", "kubectl"),
    ),
    (without(LONGHORN_NODES, "n1"), "longhorn", "warning", "it has no Nodes yet", "longhorn-manager"),
    (without(CSI_DRIVERS, LONGHORN_DRIVER, None), "csi driver", "failure", "there is no CSIDriver", "driver-deployer"),
    (track_capacity, "csi driver", "failure", "there is no CSIStorageCapacity", "csi-storage-capacity-tracking"),
    # settings
    (without(CONFIG_MAPS, NAME), "settings", "failure", "there is no ConfigMap", "docs/operations.md"),
    (lambda site: site.set(), "settings", "failure", "scheduler-extender-enabled: is not set", "settings.enabled=true"),
    (configured(enabld="true"), "settings", "failure", "is not a setting of this version", "docs/settings.md"),
    (configured(**{"allow-stranding": "true"}), "settings", "warning", "'true' has no effect", "take the line out"),
    (configured(enabled="false"), "settings", "warning", "is switched off", "settings.enabled=true"),
    (configured(bypass="true"), "settings", "warning", "every pod is let through", "Let everything through now"),
    # who leads
    (without(LEASES, LEASE), "leader", "failure", NOT_LED, f"name={NAME}"),
    (lambda site: site.lead(""), "leader", "failure", "nobody leads: the Lease", f"name={NAME}"),
    (advance(21), "leader", "failure", f"{NAME}-1 has not renewed the Lease for 21 s", f"name={NAME}"),
    (lambda site: site.lead("gone_1"), "leader", "failure", "gone holds the Lease", f"name={NAME}"),
    (
        lambda site: site.put_pod(pod(f"{NAME}-1", NAME, "n1", ready=False)),
        *("leader", "failure", "its pod is not ready", f"name={NAME}"),
    ),
    # copies
    (lose_second, "copies", "warning", "there is one pod", "controller.replicas=2"),
    (changed(ready=False), "copies", "warning", f"1 of 2 pods of {NAME} are ready, not {NAME}-2", f"name={NAME}"),
    (changed(node="n1"), "copies", "warning", "all 2 pods of", "controller.nodeSelector"),
    (changed(image="it:2"), "copies", "warning", "several images: it:1, it:2", "rollout status"),
    (
        lose_webhooks,
        *("webhook copies", "failure", f"there is no pod of {WEBHOOK}", f"describe deployment {WEBHOOK}"),
    ),
    (wait_webhooks, "webhook copies", "failure", f"none of the 2 pods of {WEBHOOK} is ready", f"name={WEBHOOK}"),
    (
        lose_webhooks_and_answers,
        *("growth", "failure", "the API server does not reach the webhook", "webhook copies"),
    ),
    # where the Services lead
    (without(ENDPOINT_SLICES, NAME), "endpoints", "failure", f"{NAME} leads to no pod", f"service-name={NAME}"),
    (
        lambda site: site.point("longhorn-replica-scheduler", "10.0.0.2"),
        *("endpoints", "failure", "elsewhere than to the leader 10.0.0.1: 10.0.0.2", "kubectl"),
    ),
    (
        lambda site: site.point(NAME, "10.0.0.9", slice_name="stranger"),
        *("endpoints", "failure", "10.0.0.9 (stranger)", "delete an EndpointSlice"),
    ),
    # kube-scheduler
    (said(wiring={"batch": "unwired"}), "wiring", "failure", "batch does not ask", "render-scheduler-config"),
    (said(wiring={}), "wiring", "failure", "has not heard of any scheduler", "Is kube-scheduler wired?"),
    (said(wiring={"batch": "unknown"}), "wiring", "failure", "not known whether batch", "does it run"),
    (start_unconfigured, "kube-scheduler", "failure", "started without --config on n2", "Every control-plane node"),
    (
        lambda site: site.configure("default-scheduler", "batch"),
        *("profiles", "warning", "has the profile batch, which --scheduler-names does not list", "schedulerNames"),
    ),
    (
        lambda site: site.configure("default-scheduler", extenders=[]),
        *("profiles", "failure", "does not ask the extender", "docs/kube-scheduler.md"),
    ),
    (leave_a_lease, "leases", "warning", f"{SPACE}/longhorn-scheduler", "delete lease"),
    # the ways
    (renamed_entries, "webhook", "failure", "does not get longhorn.io/scheduler-extender", "port 9443"),
    (
        without(MUTATING_WEBHOOKS, MUTATING_CONFIGURATION, None),
        *("webhook", "failure", "there is no MutatingWebhookConfiguration", "apply the manifest again"),
    ),
    (
        without(VALIDATING_WEBHOOKS, VALIDATING_CONFIGURATION, None),
        *("growth", "failure", "there is no ValidatingWebhookConfiguration", "apply the manifest again"),
    ),
    (lose_entries, "webhook", "failure", "pods do not opt in: the leader has not entered it", "When pods opt in"),
    (lose_entries, "growth", "failure", "growth is not checked: the leader has not entered it", "docs/admission.md"),
    (StagedSite.silence, "growth", "failure", "the leader does not answer the webhook", "port 9505"),
    (deny(""), "growth", "failure", "the API server does not reach the webhook", "port 9443"),
    (deny("no pods today"), "growth", "failure", "no pods today", "see the message"),
    (answer(503, x="not leading"), "extender", "failure", "answers 503", "docs/operations.md"),
    (answer(Error="no"), "extender", "failure", "refuses a pod without volumes: no", "docs/operations.md"),
    (answer(NodeNames=[]), "extender", "failure", "refuses a pod without volumes", "docs/operations.md"),
    (close_port, "extender", "failure", "Connection refused", "the extender's URL"),
    (speak_tls, "extender", "failure", "127.0.0.1", "docs/certificates.md"),
    (
        lambda site: site.start("--tls-mode=self"),
        *("extender", "failure", f"{NAME}-client", "docs/operations.md"),
    ),
    # the gate
    (without(POLICIES, GATE, None), "gate", "failure", f"no ValidatingAdmissionPolicy {GATE}", "manifest again"),
    (without(POLICY_BINDINGS, GATE, None), "gate", "failure", f"PolicyBinding {GATE}, so Longhorn", "the leader makes"),
    (without(SERVICE_ACCOUNTS, GATE), "gate", "failure", f"no ServiceAccount {GATE}", "manifest again"),
    (lambda site: lead_and_renew(site, 46), "gate", "failure", "renewed it for 46 s, so Longhorn places", "its log"),
    (lambda site: site.renew(""), "gate", "failure", "no leader has renewed it yet", "its log"),
    (tell_no_time, "gate", "failure", NO_TIME, "its log"),
    (without(POLICY_BINDINGS, GATE, None), "placement", "failure", "r is not refused", "manifest again"),
    # certificates
    (advance(80 * DAY_SECONDS), "certificate", "warning", "ends in 10 d", "docs/operations.md"),
    (advance(91 * DAY_SECONDS), "certificate", "failure", "is not valid now", "docs/operations.md"),
    (without(SECRETS, f"{WEBHOOK}-tls"), "certificate", "failure", "its Secret does not exist", "docs/operations.md"),
    (lambda site: publish_bundle(site, ""), "certificate", "failure", "caBundle: lacks", "docs/operations.md"),
    (lambda site: publish_bundle(site, ""), "ca bundle", "failure", "holds no PEM", "who writes it"),
    (advance(400 * DAY_SECONDS), "ca bundle", "failure", "every authority in its caBundle has ended", "who writes it"),
    (inline({"caData": "eA=="}), "certificate", "failure", "caData: holds no PEM", "docs/kube-scheduler.md"),
    (inline({"keyData": ""}), "certificate", "failure", "keyData: its key is not a PEM", "docs/kube-scheduler.md"),
    (ended_keys, "certificate", "failure", "(config.yaml): certData: ", "docs/kube-scheduler.md"),
    (strange_keys, "certificate", "failure", "none of the extender's authorities", "docs/kube-scheduler.md"),
    (strange_keys, "certificate", "failure", "certData is not signed by", "docs/kube-scheduler.md"),
    # rights
    (
        lack(NAME, f"patch replicas.longhorn.io in {SPACE}"),
        *("rights", "failure", f"the account {NAME} may not patch replicas.longhorn.io in {SPACE}", "docs/security.md"),
    ),
    (lack(WEBHOOK, "list namespaces"), "rights", "failure", f"account {WEBHOOK} may not list", "docs/security.md"),
    # what the leader alone sees
    (problem("missed-pods"), "missed-pods", "failure", "trouble with missed-pods", "mend it"),
    (problem("disks", "warning"), "disks", "warning", "trouble with disks", "mend it"),
    (said(gate="missing"), "placement", "ok", "is refused", ""),  # what was tried counts more than what is said
]


@pytest.mark.parametrize(("change", "what", "outcome", "text", "hint"), FAULTS)
def test_each_fault_has_its_line_and_its_hint(
    site: StagedSite, change: Change, what: str, outcome: str, text: str, hint: str
) -> None:
    change(site)
    found = [one for one in site.results() if one.what == what]
    lines = [one for one in found if one.outcome == outcome and text in one.text and hint in one.hint]
    assert lines, found


@pytest.mark.parametrize(
    ("change", "what", "text"),
    [
        (configured(enabled="false"), "gate", "Longhorn places while the extender is switched off"),
        (configured(bypass="true"), "placement", "Longhorn places while"),
        (configured(placement="longhorn"), "gate", "the leader does not place"),
        (configured(placement="audit"), "placement", "placement is audit"),
        (configured(**{"allocation-authority": "disk-scheduler"}), "gate", "the leader does not place"),
        (configured(enabled="false"), "extender", "it answers nobody while it is switched off"),
        (lambda site: site.start("--webhook-tls-mode=off"), "webhook copies", "without the webhook"),
        (lambda site: site.start("--webhook-tls-mode=off"), "certificate", "no webhook"),
        (lambda site: site.start("--tls-mode=provided", "--tls-cert-dir=/x"), "certificate", "in a file of its pod"),
        (lambda site: setattr(site, "overview", OSError("away")), "wiring", "has not heard of any scheduler"),
        (off_without_entries, "webhook", "pods do not opt in: it is switched off"),
        (off_without_entries, "growth", "growth is not checked: it is switched off"),
        (without(CONFIG_MAPS, "scheduler", SYSTEM), "profiles", "is in no ConfigMap"),
        (lambda site: site.start("--scheduler-names=other"), "leases", "no scheduler that is named has a Lease"),
    ],
)
def test_what_is_switched_off_or_not_there_is_skipped(site: StagedSite, change: Change, what: str, text: str) -> None:
    change(site)
    found = [one for one in site.results() if one.what == what and one.outcome == "skipped"]
    assert [True] == [text in one.text for one in found], found


@pytest.mark.parametrize(
    ("verb", "resource", "what", "right"),
    [
        ("list", PODS, "copies", "list pods"),
        ("list", PODS, "webhook copies", "list pods"),
        ("get", LEASES, "leader", "get leases.coordination.k8s.io"),
        ("get", CONFIG_MAPS, "settings", "get configmaps"),
        ("list", CONFIG_MAPS, "profiles", "list configmaps in kube-system nor list configmaps in longhorn-system"),
        ("list", ENDPOINT_SLICES, "endpoints", "list endpointslices.discovery.k8s.io"),
        ("create", PODS, "webhook", "create pods"),
        ("create", PODS, "growth", "create pods"),
        ("get", POLICIES, "gate", "get validatingadmissionpolicies.admissionregistration.k8s.io"),
        (
            "get",
            LEASES,
            "leases",
            "get leases.coordination.k8s.io in kube-system nor get leases.coordination.k8s.io in longhorn-system",
        ),
        ("get", SECRETS, "certificate", "get secrets"),
        ("get", MUTATING_WEBHOOKS, "ca bundle", "get mutatingwebhookconfigurations.admissionregistration.k8s.io"),
        ("create", ACCESS_REVIEWS, "rights", "create subjectaccessreviews.authorization.k8s.io"),
        ("list", LONGHORN_SETTINGS, "longhorn", "list settings.longhorn.io"),
        ("get", CSI_DRIVERS, "csi driver", "get csidrivers.storage.k8s.io"),
    ],
)
def test_what_the_caller_has_no_right_to_is_skipped_and_the_right_named(
    site: StagedSite, verb: str, resource: Resource, what: str, right: str
) -> None:
    site.server.forbid(verb, resource)
    found = [one for one in site.results() if one.what == what and one.outcome == "skipped"]
    assert [f"may not {right}"] == [one.text[one.text.index("may not") :] for one in found if "may not" in one.text]


def test_a_caller_without_any_right_meets_no_failure(site: StagedSite) -> None:
    for verb in ("get", "list", "create", "patch"):
        for resource in _resources(site):
            site.server.forbid(verb, resource)
    site.overview = ForbiddenError("403: may not get /overview")
    found = site.results()
    assert {"skipped"} == {one.outcome for one in found} - {"warning", "ok"}
    assert all("may not" in one.text for one in found if one.outcome == "skipped" and one.what != "extender"), found


def _resources(site: StagedSite) -> list[Resource]:
    known = [value for value in globals().values() if isinstance(value, Resource)]
    assert {key[0] for key in site.server.objects} <= {one.path() for one in known} | {NAMESPACES.path()}
    return known


def test_without_the_leaders_word_its_events_tell_of_the_wiring(site: StagedSite) -> None:
    site.overview = UnavailableError("503: away")
    for number, (reason, words) in enumerate((("SchedulerWired", "is wired"), ("SchedulerNotWired", "is not wired"))):
        text = f"Scheduler 'default-scheduler' {words}: x"
        event = {"metadata": {"name": f"e{number}"}, "reason": reason, "message": text, "lastTimestamp": str(number)}
        event["involvedObject"] = {"kind": "Lease", "name": LEASE}
        site.server.put(EVENTS, SPACE, event)
    found = {one.what: one for one in site.results()}
    assert ("failure", True) == (found["wiring"].outcome, "does not ask" in found["wiring"].text)
    assert ("skipped", True) == (found["status"].outcome, "503: away" in found["status"].text)


def test_what_has_a_line_already_is_not_told_again_by_the_leader(site: StagedSite) -> None:
    problem("growth-unchecked")(site)
    assert ["trouble with growth-unchecked"] == [one.text for one in unhealthy(site.results())]
    site.silence()
    assert ["growth"] == [one.what for one in unhealthy(site.results())]
    assert "trouble" not in unhealthy(site.results())[0].text


@pytest.mark.parametrize(("state", "outcome"), [("enforced", "ok"), ("unproven", "skipped"), ("missing", "failure")])
def test_without_a_replica_to_try_it_on_the_leaders_proof_of_the_gate_counts(
    site: StagedSite, state: str, outcome: str
) -> None:
    site.replica(held=False)
    said(gate=state)(site)
    assert [outcome] == [one.outcome for one in site.results() if one.what == "placement"]


@pytest.mark.parametrize("verb", ["patch", "list"])
def test_who_may_not_try_a_placement_is_told_which_right_is_missing(site: StagedSite, verb: str) -> None:
    site.server.forbid(verb, LONGHORN_REPLICAS)
    assert ["ok"] == [one.outcome for one in site.results() if one.what == "placement"]  # by the leader's proof
    said(gate="unproven")(site)
    (found,) = [one for one in site.results() if one.what == "placement"]
    assert ("skipped", True) == (found.outcome, f"may not {verb} replicas.longhorn.io" in found.text)


def test_what_fails_is_tried_again_until_the_time_is_over(site: StagedSite) -> None:
    answer(503, x="not leading")(site)
    assert ["extender"] == [one.what for one in unhealthy(site.results(seconds=5.0))]
    assert 6 == len(site.extender.asked)


def test_what_is_mended_meanwhile_is_well(site: StagedSite) -> None:
    site.silence()
    pauses = list[float]()

    def mend(seconds: float) -> None:
        pauses.append(seconds)
        site.server.denial = "the leader answers the webhook"

    found = site.results(seconds=60.0, pause=mend)
    assert [] == unhealthy(found)
    assert [1.0] == pauses


def test_a_namespace_that_does_not_exist_and_an_api_server_that_is_away_are_no_findings(site: StagedSite) -> None:
    target = CheckTarget("nowhere")
    with pytest.raises(ConfigError, match="--namespace: there is no namespace nowhere"):
        next(check_installation(site.server, site.clock, target, lambda _: {}))
    site.server.fail_with(UnavailableError("no connection"))
    with pytest.raises(UnavailableError):
        site.results()


def test_outside_the_cluster_the_services_name_is_not_expected_to_be_known(site: StagedSite) -> None:
    found = {one.what: one for one in site.results(address="")}
    assert ("skipped", "helm test tries it there") == (found["extender"].outcome, found["extender"].hint)
    assert "failure" == {one.what: one for one in site.results(address="", is_inside=True)}["extender"].outcome


def test_kube_schedulers_file_with_the_extenders_own_keys_is_in_order(site: StagedSite) -> None:
    inline({})(site)
    assert ["ok", "ok"] == [one.outcome for one in site.results() if one.what in ("profiles", "certificate")][:2]


def test_the_flags_of_the_running_controller_are_heeded() -> None:
    found = started_with(["run", "--tls-mode=provided", "--extender-port", "1", "--grpc-port=x"], "n")
    assert ("n", "provided", 1, 9505) == (found.namespace, found.tls_mode, found.extender_port, found.grpc_port)


# What stands in the manifest and is needed only at times: by a second scheduler, and after an upgrade.
AT_TIMES = {
    *((NAME, verb, "coordination.k8s.io", "leases", "longhorn-scheduler") for verb in ("get", "update", "delete")),
    (NAME, "delete", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", NAME),
}


def test_the_rights_that_are_asked_for_are_those_of_the_manifest() -> None:
    documents = [
        one
        for name in ("install.yaml", "webhook.yaml")
        for one in yaml.safe_load_all((EXAMPLES / name).read_text())
        if one
    ]
    given = {
        (one.account, one.verb, one.group, one.resource, one.name)
        for one in rights_of(documents)
        if "-plans-" not in one.name or one.name.endswith("-plans-0")
    }
    settings = ProcessSettings(tls_mode="self")
    needed = {(one.account, one.verb, one.group, one.resource, one.name) for one in needed_rights(settings)}
    assert given == needed | AT_TIMES


def test_where_no_dns_knows_the_service_a_table_of_addresses_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "" == service_by_table("extender", "https")
    table = tmp_path / "table.json"
    monkeypatch.setenv("LONGHORN_SCHEDULER_ADDRESSES", str(table))
    with pytest.raises(ConfigError, match=r"LONGHORN_SCHEDULER_ADDRESSES: .*: No such file"):
        service_by_table("extender", "https")
    table.write_text('{"extender": {"https": "127.0.0.1:1"}}')
    assert ("127.0.0.1:1", "") == (service_by_table("extender", "https"), service_by_table("other", "https"))
    table.write_text("[1]")
    with pytest.raises(ConfigError, match="is no table of addresses"):
        service_by_table("extender", "https")
