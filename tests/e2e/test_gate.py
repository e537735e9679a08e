"""The three policies by which only the leader places, on a real API server: `admin` stands for Longhorn and all others.

The policies are the manifest's, with shorter times. The leader is a thread that renews the account as the leader does.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import pytest
import yaml

from controller.kube.resources import POLICIES, POLICY_BINDINGS, SERVICE_ACCOUNTS
from controller.model.names import (
    FENCE,
    GATE,
    GUARD,
    HELD_ANNOTATION,
    LEFT_ANNOTATION,
    MANAGER_PREFIX,
    PROOF_MANAGER,
    RENEWED_ANNOTATION,
    SINCE_ANNOTATION,
    TERM_ANNOTATION,
)
from controller.placement.gate_policy import (
    POLICY_DIGESTS,
    SILENT_SECONDS,
    Enforcement,
    digest_of,
    expected_bindings,
)
from tests.cluster.client import ApiClient, Object
from tests.cluster.cluster import Cluster
from tests.e2e.policy_site import REPLICAS, VOLUME, PolicySite, refusal
from tests.e2e.scheduling import NAMESPACE, SERVICE
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

SHORT: Final = {SILENT_SECONDS: 6, 30: 4, 120: 10}
SILENT, YOUNG, MOST = SHORT.values()
ACCOUNT: Final = SERVICE_ACCOUNTS.path(NAMESPACE, GATE)
BINDING: Final = POLICY_BINDINGS.path(None, GATE)
PLACE: Final = {"nodeID": "n1", "diskID": "d", "diskPath": "/d", "dataDirectoryName": f"{VOLUME}-0123abcd"}
LABELS: Final = {"longhornnode": "n1", "longhorndiskuuid": "d"}
PLACED: Final[Object] = {"metadata": {"labels": LABELS}, "spec": PLACE}
HELD: Final[Object] = {"metadata": {"annotations": {HELD_ANNOTATION: "no room"}}}
LEFT: Final[Object] = {"metadata": {"annotations": {LEFT_ANNOTATION: "Longhorn's"}}}
CLOSED, FENCED, GUARDED = (
    f"'{name}' with binding '{name}' denied request: {text}"
    for name, text in (
        (GATE, "the Longhorn scheduler extender places this replica"),
        (FENCE, "this is not the term"),
        (GUARD, "the Longhorn scheduler extender may"),
    )
)
BEAT_SECONDS: Final = 0.5
WAIT_SECONDS: Final = 30.0


class GateSite(PolicySite):
    """A cluster with the policies. `admin` may do all, `ours` is our account's client."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, shortened)
        self.ours = ApiClient.from_kubeconfig(self.kubeconfig)

    # The binding, and the leader's stamps

    def bind(self, wanted: Enforcement = Enforcement.DENY) -> None:
        spec = expected_bindings(NAMESPACE, wanted)[GATE]
        self.ours.create(POLICY_BINDINGS.path(), {"metadata": {"name": GATE}, "spec": spec})

    def stamp(self, **annotations: str | None) -> None:
        names = {"term": TERM_ANNOTATION, "since": SINCE_ANNOTATION, "renewed": RENEWED_ANNOTATION}
        self.ours.patch(ACCOUNT, {"metadata": {"annotations": {names[key]: at for key, at in annotations.items()}}})

    def forget(self) -> None:
        self.stamp(term=None, since=None, renewed=None)

    @contextmanager
    def leader(self, term: Callable[[], str] = lambda: "t1") -> Iterator[None]:
        """Somebody leads, and falls silent when the block ends. A new term begins whenever `term` changes."""
        ended = threading.Event()

        def renew() -> None:
            last, since = "", ""
            while True:
                if last != term():
                    last, since = term(), stamp_of()
                self.stamp(term=last, since=since, renewed=stamp_of())
                if ended.wait(BEAT_SECONDS):
                    return

        self.forget()
        thread = threading.Thread(target=renew, name="leader")
        thread.start()
        try:
            young = self.replica()
            wait_until(lambda: CLOSED in self.place(young), "a closed gate", WAIT_SECONDS)
            yield
        finally:
            ended.set()
            thread.join()

    # Replicas

    def replica(self, *changes: Mapping[str, Any]) -> str:
        """A new one without a node; `changes` are our own."""
        name = self.new_replica()
        for change in changes:
            assert "" == self.write(name, change)
        return name

    def placed(self) -> str:
        """One that our account has placed."""
        return self.replica(PLACED)

    def place(self, name: str, **params: Any) -> str:
        """Why Longhorn may not place it; "" where it may. Nothing is stored."""
        return refusal(partial(self.admin.patch, f"{REPLICAS}/{name}", PLACED, **{"dryRun": "All", **params}))

    def write(self, name: str, patch: Any, manager: str = f"{MANAGER_PREFIX}t1", **params: Any) -> str:
        """Why our account may not write that."""
        return refusal(partial(self.ours.patch, f"{REPLICAS}/{name}", patch, fieldManager=manager, **params))

    def prove(self, name: str) -> str:
        """What a proof finds: why somebody else may not give the Replica a node."""
        unplaced = {"metadata": {"labels": {"longhornnode": ""}, "annotations": {LEFT_ANNOTATION: "a proof"}}}
        return self.write(name, unplaced, PROOF_MANAGER, dryRun="All")


def shortened(policies: str) -> str:
    return with_times(policies, SHORT)


def with_times(policies: str, times: Mapping[int, int]) -> str:
    for former, seconds in times.items():
        policies = policies.replace(f'duration("{former}s")', f'duration("{seconds}s")')
    return policies


def stamp_of(ahead: float = 0.0) -> str:
    return (datetime.now(UTC) + timedelta(seconds=ahead)).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[GateSite]:
    with GateSite.on(cluster) as found:
        found.bind()
        name = found.replica()
        wait_until(lambda: FENCED in found.write(name, PLACED, dryRun="All"), "the fence", WAIT_SECONDS)
        found.stamp(term="t1")
        numbers = itertools.count()  # each write changes something, also after one that was let through
        label: Callable[[], Object] = lambda: {"metadata": {"labels": {"any": f"{next(numbers)}"}}}  # noqa: E731
        wait_until(lambda: GUARDED in found.write(name, label()), "the guard", WAIT_SECONDS)
        yield found


@pytest.fixture
def open_site(site: GateSite) -> GateSite:
    """Nobody has led so far."""
    site.forget()
    name = site.replica()
    wait_until(lambda: "" == site.place(name), "an open gate", WAIT_SECONDS)
    return site


@pytest.fixture
def led(site: GateSite) -> Iterator[GateSite]:
    """Somebody leads."""
    with site.leader():
        yield site


# What is stored


def test_the_api_server_stores_what_the_leader_expects_and_finds_nothing_wrong_with_it(site: GateSite) -> None:
    times = {short: seconds for seconds, short in SHORT.items()}
    for name, digest in POLICY_DIGESTS.items():
        path = POLICIES.path(None, name)
        wait_until(lambda: site.admin.get(path).get("status"), "a policy that was checked", WAIT_SECONDS)  # noqa: B023
        found = site.admin.get(path)
        spec = yaml.safe_load(with_times(yaml.safe_dump(found["spec"], width=10_000), times))
        assert digest == digest_of(spec, f"system:serviceaccount:{NAMESPACE}:{SERVICE}")
        assert {} == found["status"]["typeChecking"], name
    for name, spec in expected_bindings(NAMESPACE).items():
        assert spec == site.admin.get(POLICY_BINDINGS.path(None, name))["spec"]


# Nobody leads


def test_where_nobody_ever_led_longhorn_places(open_site: GateSite) -> None:
    name = open_site.replica()
    assert "" == open_site.place(name, dryRun=None)
    assert "n1" == open_site.admin.get(f"{REPLICAS}/{name}")["spec"]["nodeID"]


BAD_STAMPS: Final = ["", "soon", "2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "0000-01-01T00:00:00Z"]


@pytest.mark.parametrize("stamp", ["since", "renewed"])
def test_stamps_that_cannot_be_read_or_lie_ahead_keep_nothing(site: GateSite, stamp: str) -> None:
    for bad in (None, *BAD_STAMPS, stamp_of(3600)):
        name = site.replica()
        site.admin.patch(f"{REPLICAS}/{name}", HELD)
        site.stamp(since=stamp_of(), renewed=stamp_of())
        wait_until(lambda: CLOSED in site.place(name), "a closed gate", WAIT_SECONDS)  # noqa: B023
        site.stamp(**{stamp: bad})
        wait_until(lambda: "" == site.place(name), f"an open gate with {bad}", SILENT / 2)  # noqa: B023


def test_without_the_account_longhorn_places(site: GateSite) -> None:
    with site.leader():
        name = site.replica()
        assert CLOSED in site.place(name)
    site.admin.delete(ACCOUNT)
    try:
        wait_until(lambda: "" == site.place(name), "an open gate", SILENT / 2)
    finally:
        site.apply()


def test_a_write_that_empties_the_managed_fields_is_refused(open_site: GateSite) -> None:
    """There is no clock in it then. Longhorn writes nothing of the kind."""
    emptied = {**PLACED, "metadata": {**PLACED["metadata"], "managedFields": [{}]}}
    name = open_site.replica()
    said = refusal(partial(open_site.admin.patch, f"{REPLICAS}/{name}", emptied, dryRun="All"))
    assert GATE in said
    assert "" == open_site.place(name)


# Somebody leads


def test_a_young_replica_is_placed_by_the_leader_alone(led: GateSite) -> None:
    name = led.replica()
    path, raw = f"{REPLICAS}/{name}", led.admin.get(f"{REPLICAS}/{name}")
    whole = {**raw, "spec": {**raw["spec"], **PLACE}}
    add: Callable[..., Object] = lambda key: {"op": "add", "path": f"/spec/{key}", "value": PLACE[key]}  # noqa: E731
    applied = {"apiVersion": raw["apiVersion"], "kind": raw["kind"], "metadata": {"name": name}, "spec": PLACE}
    writes: Mapping[str, Callable[[], object]] = {
        "PUT": lambda: led.admin.replace(path, whole),
        "merge": lambda: led.admin.patch(path, {"spec": PLACE}),
        "JSON patch": lambda: led.admin.patch(path, [add(key) for key in PLACE], "json"),
        "apply": lambda: led.admin.patch(path, applied, "apply"),
        "dry run": lambda: led.admin.patch(path, PLACED, dryRun="All"),
        "under the leader's name": lambda: led.admin.patch(path, PLACED, fieldManager=f"{MANAGER_PREFIX}t1"),
        "as a proof": lambda: led.admin.patch(path, PLACED, fieldManager=PROOF_MANAGER, dryRun="All"),
    }
    assert [] == [how for how, write in writes.items() if CLOSED not in refusal(write)]
    assert "" == led.write(name, PLACED)
    assert "n1" == led.admin.get(path)["spec"]["nodeID"]


def test_writes_of_placed_replicas_and_of_their_status_are_nobodys_business(led: GateSite) -> None:
    path = f"{REPLICAS}/{led.placed()}"
    led.admin.patch(path, {"spec": {"active": False}, "metadata": {"labels": {"a": "b"}}})
    led.admin.patch(path, {"spec": {"nodeID": "n2"}, "metadata": {"labels": {"longhornnode": "n2"}}})
    unplaced = f"{REPLICAS}/{led.replica()}"
    led.admin.patch(unplaced, {"spec": {"active": False}})
    for one in (path, unplaced):
        led.admin.patch(f"{one}/status", {"spec": {"nodeID": "n3"}, "status": {"currentState": "stopped"}})
    assert ["n2", ""] == [led.admin.get(one)["spec"]["nodeID"] for one in (path, unplaced)]


def test_a_mark_leaves_a_replica_to_longhorn_at_once(led: GateSite) -> None:
    assert "" == led.place(led.replica(LEFT))
    assert "" == led.place(led.replica(HELD, LEFT))


def test_without_a_mark_a_replica_is_longhorns_after_a_while_and_in_another_term_anew(site: GateSite) -> None:
    terms = ["t1"]
    with site.leader(lambda: terms[-1]):
        began = time.monotonic()
        name, held = site.replica(), site.replica(HELD)
        wait_until(lambda: "" == site.place(name), "an open gate", WAIT_SECONDS)
        assert YOUNG - 1 <= time.monotonic() - began
        assert CLOSED in site.place(held)
        terms.append("t2")
        wait_until(lambda: CLOSED in site.place(name), "a closed gate", YOUNG)


def test_terms_that_change_all_the_time_keep_a_held_replica_and_no_other_for_ever(site: GateSite) -> None:
    with site.leader(lambda: str(int(time.monotonic()))):
        began = time.monotonic()
        name, held = site.replica(), site.replica()
        site.admin.patch(f"{REPLICAS}/{held}", HELD)
        wait_until(lambda: "" == site.place(name), "an open gate", 2 * MOST)
        assert MOST - 1 <= time.monotonic() - began
        assert CLOSED in site.place(held)


def test_a_leader_that_falls_silent_keeps_nothing_held_or_not(site: GateSite) -> None:
    with site.leader():
        names = [site.replica(), site.replica(HELD)]
    ended = time.monotonic()
    assert [] == [name for name in names if CLOSED not in site.place(name)]
    for name in names:
        wait_until(lambda: "" == site.place(name), "an open gate", WAIT_SECONDS)  # noqa: B023
    assert SILENT - 1 <= time.monotonic() - ended < SILENT + 4


# Our account


def test_our_account_writes_under_the_name_of_the_present_term_alone(led: GateSite) -> None:
    name = led.replica()
    others = [f"{MANAGER_PREFIX}t0", MANAGER_PREFIX, "longhorn-manager", PROOF_MANAGER, None]
    assert [] == [other for other in others if FENCED not in led.write(name, PLACED, other)]  # type: ignore[arg-type]
    assert "" == led.place(led.replica(LEFT))
    assert "" == led.write(name, PLACED)


def test_before_the_first_term_it_writes_nothing(open_site: GateSite) -> None:
    name = open_site.replica()
    for manager in (MANAGER_PREFIX, f"{MANAGER_PREFIX}none"):
        assert FENCED in open_site.write(name, PLACED, manager)


def test_a_dry_run_shows_whether_the_former_term_is_over_on_any_replica(led: GateSite) -> None:
    for name in (led.replica(), led.placed()):
        assert FENCED in led.write(name, LEFT, f"{MANAGER_PREFIX}t0", dryRun="All")
        assert FENCED in led.write(name, {}, f"{MANAGER_PREFIX}t0", dryRun="All")
        assert "" == led.write(name, LEFT, dryRun="All")


def test_a_proof_is_refused_on_any_replica_while_somebody_leads(site: GateSite) -> None:
    with site.leader():
        names = [site.replica(), site.replica(HELD), site.replica(LEFT), site.placed(), site.replica()]
        wait_until(lambda: "" == site.place(names[-1]), "a replica that is no longer kept", WAIT_SECONDS)
        before = [site.admin.get(f"{REPLICAS}/{name}") for name in names]
        assert [] == [name for name in names if CLOSED not in site.prove(name)]
        site.admin.delete(BINDING)
        try:
            for name in names:
                wait_until(lambda: "" == site.prove(name), "a gate that is seen as open", WAIT_SECONDS)  # noqa: B023
        finally:
            site.bind()
        assert before == [site.admin.get(f"{REPLICAS}/{name}") for name in names]
        wait_until(lambda: CLOSED in site.prove(names[0]), "a closed gate", WAIT_SECONDS)


def test_a_proof_that_is_stored_is_a_write_like_any_other(led: GateSite) -> None:
    assert FENCED in led.write(led.replica(), PLACED, PROOF_MANAGER)
    assert "denied request" in led.write(led.placed(), {"metadata": {"labels": {"longhornnode": ""}}}, PROOF_MANAGER)


def test_a_term_of_that_name_is_no_way_around_the_guard(site: GateSite) -> None:
    with site.leader(lambda: PROOF_MANAGER.removeprefix(MANAGER_PREFIX)):
        assert GUARDED in site.write(site.replica(), {"spec": {"active": False}}, PROOF_MANAGER)


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"failedAt": "2026-01-01T00:00:00Z"}},
        {"spec": {"volumeSize": "1"}},
        {"spec": {"volumeName": None}},
        {"metadata": {"labels": {"longhornvolume": "another"}}},
        {"metadata": {"annotations": {"any": "1"}}},
        {"metadata": {"annotations": {"theirs": None}}},
        {"metadata": {"annotations": {"theirs": "2", HELD_ANNOTATION: "1"}}},
        {"metadata": {"finalizers": ["example.org/keep"]}},
    ],
    ids=str,
)
def test_our_account_may_change_nothing_else(led: GateSite, patch: Object) -> None:
    name = led.replica()
    led.admin.patch(f"{REPLICAS}/{name}", {"metadata": {"annotations": {"theirs": "1"}}})
    assert GUARDED in led.write(name, patch)


@pytest.mark.parametrize(
    "place",
    [
        *(
            {"dataDirectoryName": name}
            for name in ("w-0123abcd", f"{VOLUME}-1", f"{VOLUME}-0123abcd/..", "..", "", None)
        ),
        *({"diskPath": path} for path in ("/var/lib/longhorn/../..", "..", "../dev", "/var/../etc")),
    ],
    ids=str,
)
def test_our_account_leads_no_replica_to_other_data(led: GateSite, place: Object) -> None:
    name = led.replica()
    assert GUARDED in led.write(name, {**PLACED, "spec": {**PLACE, **place}})


@pytest.mark.parametrize("path", ["/var/lib/longhorn/", "/data..old/.x", "/dev/nvme1n1", "0000:00:1e.0"])
def test_a_disk_is_a_folder_a_block_device_or_an_address_on_the_bus(led: GateSite, path: str) -> None:
    assert "" == led.write(led.replica(), {**PLACED, "spec": {**PLACE, "diskPath": path}})


def test_what_a_replica_was_made_with_does_not_keep_our_account_from_it(led: GateSite) -> None:
    made = {"diskPath": "/a/../b", "dataDirectoryName": "of-a-former-place"}
    for patch in (HELD, PLACED):
        name = led.replica()
        led.admin.patch(f"{REPLICAS}/{name}", {"spec": made})
        assert "" == led.write(name, patch)


def test_our_account_gives_a_first_place_and_marks_what_has_none(led: GateSite) -> None:
    name = led.replica()
    led.admin.patch(f"{REPLICAS}/{name}", {"metadata": {"annotations": {"theirs": "1"}}})
    changed = {"metadata": {"annotations": {HELD_ANNOTATION: "another reason"}}}
    removed: Object = {"metadata": {"annotations": {HELD_ANNOTATION: None}}}
    for patch in (HELD, changed, removed, HELD, {"spec": {"hardNodeAffinity": "n1"}}):
        assert "" == led.write(name, patch)
    assert "" == led.write(name, {**PLACED, "metadata": {"labels": LABELS, **removed["metadata"]}})
    found = led.admin.get(f"{REPLICAS}/{name}")
    assert ({"theirs": "1"}, "n1") == (found["metadata"]["annotations"], found["spec"]["nodeID"])
    for patch in ({"spec": {"nodeID": "n2"}}, HELD, LEFT):
        assert GUARDED in led.write(name, patch)


def test_a_second_binding_that_names_no_account_closes_nothing(site: GateSite) -> None:
    """Whoever has our account's token can make one, and only an administrator can delete it."""
    seconds = {policy: POLICY_BINDINGS.path(None, f"{policy}-second") for policy in (GATE, FENCE)}
    with site.leader():
        young, left = site.replica(), site.replica(LEFT)
        site.ours.delete(BINDING)
        wait_until(lambda: "" == site.place(young), "an open gate", YOUNG - 1)
        try:
            for policy, path in seconds.items():
                spec = {"policyName": policy, "validationActions": ["Deny"]}
                site.ours.create(POLICY_BINDINGS.path(), {"metadata": {"name": path.rpartition("/")[2]}, "spec": spec})
            site.bind()  # seen after the others
            wait_until(lambda: CLOSED in site.place(site.replica()), "a closed gate", WAIT_SECONDS)
            assert "" == site.place(left)
            assert "" == site.write(young, HELD)
        finally:
            for path in seconds.values():
                site.admin.delete(path)


@pytest.mark.parametrize("found_by", [{"name": "another"}, {"name": "default"}, {"selector": {}}], ids=str)
def test_our_account_binds_no_policy_to_another_account(site: GateSite, found_by: Object) -> None:
    """Where a binding refuses what finds no account, it refuses everybody's writes of all Replicas."""
    reference = {**found_by, "namespace": NAMESPACE, "parameterNotFoundAction": "Deny"}
    spec = {"policyName": FENCE, "validationActions": ["Deny"], "paramRef": reference}
    body = {"metadata": {"name": "another"}, "spec": spec}
    said = refusal(partial(site.ours.create, POLICY_BINDINGS.path(), body, dryRun="All"))
    assert "permission on the object referenced by paramRef" in said


# Opened on purpose: these change the policies, and come last


def test_in_audit_nothing_is_refused(site: GateSite) -> None:
    with site.leader():
        site.ours.delete(BINDING)
        site.bind(Enforcement.AUDIT)
        name = site.replica()
        try:
            wait_until(lambda: "" == site.place(name), "an open gate", YOUNG - 1)
        finally:
            site.ours.delete(BINDING)
            site.bind()


def test_without_its_policy_the_gate_is_open_whatever_the_leader_does(site: GateSite) -> None:
    with site.leader():
        name = site.replica()
        assert CLOSED in site.place(name)
        done = site.cluster.kubectl("delete", "validatingadmissionpolicy", GATE)
        assert 0 == done.returncode, done.stderr
        wait_until(lambda: "" == site.place(name), "an open gate", YOUNG - 1)
