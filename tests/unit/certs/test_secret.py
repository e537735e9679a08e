"""Secrets in an API server in memory: written by the leader, repaired when damaged, never fought over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from certs.authority import read_authorities
from certs.rotation import Chain
from certs.secret import ChainKeeper, ChainPlan, Kept, SecretStore, data_of
from controller.errors import ConflictError, UnavailableError
from controller.kube.resources import SECRETS, SERVICES, Resource
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.fakes.secrets import spoil_secret
from tests.unit.certs.chains import LEAFS, POLICY, SUBJECT, coming_of, signer_of, trusts

PLAN = ChainPlan("ca", {"server": "tls", "client": "client"}, lambda: LEAFS, POLICY, SUBJECT, ("server",), ("client",))
HOUR_SECONDS = 3_600


class StoredChain:
    def __init__(self) -> None:
        self.api, self.clock = FakeApiServer(), VirtualClock()
        self.is_leading = True

    def keeper(self) -> ChainKeeper:
        return ChainKeeper(SecretStore(self.api, "n"), PLAN, self.clock)

    def keep(self, keeper: ChainKeeper) -> Kept:
        return keeper.keep(lambda: self.is_leading)

    def raw(self, name: str) -> dict[str, Any]:
        return self.api.get(SECRETS, "n", name)

    def delete(self, *names: str) -> None:
        for name in names:
            self.api.delete(SECRETS, "n", name)

    def stored(self) -> Chain:
        reading = SecretStore(self.api, "n").read_chain(PLAN).reading
        assert () == reading.problems
        return reading.chain

    def server_is_taken(self, bundle: bytes) -> bool:
        return trusts(bundle, self.stored().leaves["server"].certificate, self.clock.now_utc())


@pytest.fixture
def world() -> StoredChain:
    return StoredChain()


def test_all_secrets_are_made_once_and_then_left_alone(world: StoredChain) -> None:
    keeper = world.keeper()
    assert ["ca", "tls", "client"] == list(world.keep(keeper).written)
    version = world.api.version
    assert [] == list(world.keep(keeper).written)
    assert [] == list(world.keep(world.keeper()).written)
    assert version == world.api.version
    assert {"kubernetes.io/tls"} == {world.raw(name)["type"] for name in ("ca", "tls", "client")}


def test_every_leaves_secret_says_whom_to_trust(world: StoredChain) -> None:
    world.keep(world.keeper())
    chain = world.stored()
    for name in ("tls", "client", "ca"):
        assert chain.bundle == (data_of(world.raw(name)) or {})["ca.crt"]
    assert world.server_is_taken(chain.bundle)


def test_who_does_not_lead_writes_nothing(world: StoredChain) -> None:
    world.is_leading = False
    kept = world.keep(world.keeper())
    assert [] == list(kept.written)
    assert {} == world.api.objects
    assert kept.reading.problems


def spoil(name: str, **data: bytes) -> Callable[[StoredChain], None]:
    return lambda world: spoil_secret(world.api, "n", name, {key.replace("_", "."): data[key] for key in data})


def change(name: str, **parts: Any) -> Callable[[StoredChain], object]:
    return lambda world: world.api.replace(SECRETS, "n", name, {**world.raw(name), **parts})


SPOILINGS: dict[str, Callable[[StoredChain], object]] = {
    "authority deleted": lambda world: world.delete("ca"),
    "server deleted": lambda world: world.delete("tls"),
    "client deleted": lambda world: world.delete("client"),
    "all deleted": lambda world: world.delete("ca", "tls", "client"),
    "authority's key garbage": spoil("ca", tls_key=b"garbage"),
    "authority's certificate garbage": spoil("ca", tls_crt=b"\x00\xff"),
    "previous garbage": spoil("ca", previous_crt=b"garbage"),
    "next without a certificate": spoil("ca", next_key=b"x"),
    "authority without data": change("ca", data=None),
    "server's key garbage": spoil("tls", tls_key=b"garbage"),
    "server's certificate empty": spoil("tls", tls_crt=b""),
    "server's bundle garbage": spoil("tls", ca_crt=b"garbage"),
    "server no base64": change("tls", data={"tls.crt": "%%%", "tls.key": 3}),
    "a key of somebody else": spoil("tls", more_key=b"x"),
}


@pytest.mark.parametrize("spoiling", SPOILINGS)
@pytest.mark.parametrize("remembers", [True, False], ids=["who read it whole before", "who has just started"])
def test_what_is_damaged_comes_back(world: StoredChain, spoiling: str, remembers: bool) -> None:
    keeper = world.keeper()
    world.keep(keeper)
    before = world.stored()
    SPOILINGS[spoiling](world)

    keeper = keeper if remembers else world.keeper()
    assert world.keep(keeper).written
    after = world.stored()
    assert world.server_is_taken(after.bundle)
    if remembers:
        assert before == after
    elif spoiling != "all deleted":
        # Those who trusted the authority before go on being served, though its key may be lost.
        assert world.server_is_taken(before.bundle)
        assert signer_of(before).facts in {pair.facts for pair in read_authorities(after.bundle, what="")}
    assert [] == list(world.keep(keeper).written)


def test_an_authority_that_is_lost_while_nobody_remembers_it_is_replaced_with_overlap(world: StoredChain) -> None:
    world.keep(world.keeper())
    old = world.stored()
    world.delete("ca")
    keeper = world.keeper()
    world.keep(keeper)
    between = world.stored()
    assert old.leaves == between.leaves
    assert b"" == signer_of(between).key

    world.clock.advance(6 * HOUR_SECONDS)
    world.keep(keeper)
    assert coming_of(between).facts == signer_of(world.stored()).facts
    assert world.server_is_taken(between.bundle)


def test_a_conflict_is_decided_anew_on_what_the_other_wrote(world: StoredChain) -> None:
    first, second = world.keeper(), world.keeper()
    interfered: list[bool] = []

    def interfere(verb: str, resource: Resource) -> None:
        if verb == "create" and resource is SECRETS and not interfered:
            interfered.append(True)
            world.keep(second)

    world.api.fail = interfere
    world.keep(first)
    chain = world.stored()
    assert world.server_is_taken(chain.bundle)
    assert [] == list(world.keep(second).written)
    assert [] == list(world.keep(first).written)


def test_conflicts_without_end_are_given_up(world: StoredChain) -> None:
    world.api.fail_with(ConflictError("409"), "create")
    with pytest.raises(ConflictError):
        world.keep(world.keeper())


@pytest.mark.parametrize("stops_at", range(1, 4))
def test_a_crash_between_two_writes_is_healed_by_the_next_leader(world: StoredChain, stops_at: int) -> None:
    keeper = world.keeper()
    world.keep(keeper)
    world.clock.advance(76 * HOUR_SECONDS)
    world.keep(keeper)
    before = world.stored()
    world.clock.advance(6 * HOUR_SECONDS)
    writes = 0

    def crash(verb: str, _resource: Resource) -> None:
        nonlocal writes
        if verb == "replace":
            writes += 1
            if writes == stops_at:
                raise UnavailableError("the process died here")

    world.api.fail = crash
    with pytest.raises(UnavailableError):
        world.keep(world.keeper())
    assert world.server_is_taken(before.bundle)
    world.api.work()
    world.keep(world.keeper())
    assert coming_of(before).facts == signer_of(world.stored()).facts
    assert world.server_is_taken(before.bundle)


def test_who_lost_the_lead_in_the_middle_writes_no_more(world: StoredChain) -> None:
    answers = iter([True, True, False, False, False])
    kept = world.keeper().keep(lambda: next(answers))
    assert ["ca"] == list(kept.written)


def test_an_unreachable_api_server_is_no_missing_secret(world: StoredChain) -> None:
    keeper = world.keeper()
    world.keep(keeper)
    before = world.stored()
    world.api.fail_with(UnavailableError("503"), "get")
    with pytest.raises(UnavailableError):
        world.keep(keeper)
    world.api.work()
    assert before == world.stored()


def test_labels_and_the_type_of_a_secret_that_exists_stay(world: StoredChain) -> None:
    body = {"type": "Opaque", "metadata": {"name": "tls", "labels": {"a": "b"}}, "data": {}}
    world.api.create(SECRETS, "n", body)
    world.keep(world.keeper())
    raw = world.raw("tls")
    assert ("Opaque", {"a": "b"}) == (raw["type"], raw["metadata"]["labels"])


@pytest.mark.parametrize(
    ("spec", "addresses"),
    [
        ({"clusterIP": "10.0.0.1"}, ("10.0.0.1",)),
        ({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"]}, ("10.0.0.1", "fd00::1")),
        ({"clusterIP": "None", "clusterIPs": ["None"]}, ()),
        ({}, ()),
    ],
)
def test_a_service_has_its_cluster_addresses(world: StoredChain, spec: Any, addresses: tuple[str, ...]) -> None:
    assert () == SecretStore(world.api, "n").service_addresses("s")
    world.api.create(SERVICES, "n", {"metadata": {"name": "s"}, "spec": spec})
    assert addresses == SecretStore(world.api, "n").service_addresses("s")
