"""The webhook's chain: what has been seen to reach everybody, and its rotation by leaders that come and go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from certs.authority import read_authorities
from certs.evidence import PublishedBundles, Spread
from certs.keeper import CertificateMode, Certificates
from certs.rotation import DAY, ROTATING, Chain
from certs.secret import SecretStore
from certs.webhook import CLIENT, DEFAULT_PACE, LEADER, SERVER, Pace, webhook_plan
from controller.errors import ClusterError, ConfigError
from controller.kube.resources import MUTATING_WEBHOOKS as MUTATING
from controller.kube.resources import OUR_CONFIGURATIONS, Resource
from controller.kube.resources import VALIDATING_WEBHOOKS as VALIDATING
from controller.settings import ProcessSettings
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.fakes.secrets import publish
from tests.unit.certs.chains import trusts

SPACE = "longhorn-system"
SETTINGS = ProcessSettings(webhook_service="webhook", webhook_tls_secret="server")
PLAN = webhook_plan(SETTINGS)
LEAFS = PLAN.leaves()
DAY_SECONDS = 86_400.0
DUE = 275 * DAY_SECONDS  # the authority lives a year and is replaced from 90 days before its end


class ChainLeaders:
    """A cluster, its webhook configurations, and leaders one after the other."""

    def __init__(self) -> None:
        self.api, self.clock = FakeApiServer(), VirtualClock()
        self.leader = self.new_leader()

    def new_leader(self) -> Certificates:
        store = SecretStore(self.api, SPACE)
        self.spread = Spread(PublishedBundles(self.api), self.clock, DEFAULT_PACE.spread_seconds)
        self.held: tuple[bytes, bytes, bytes] | None = None
        return Certificates(
            CertificateMode.SELF, store, PLAN, self.clock, {LEADER: self._use}, lambda: True, evidence=self.spread
        )

    def _use(self, *material: bytes) -> bool:
        is_new, self.held = material != self.held, (material[0], material[1], material[2])
        return is_new

    def publish_now(self) -> None:
        publish(self.api, self.leader.bundle)

    def prepare(self, after: float = 2 * DAY_SECONDS) -> bytes:
        """The next authority is due, made and published, for so long; the bundle with both."""
        self.clock.advance(DUE)
        self.leader.look()
        self.publish_now()
        self.clock.advance(after)
        return self.leader.bundle

    def look_for(self, seconds: float, every: float = 10.0) -> None:
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            self.clock.advance(every)
            self.leader.look()

    @property
    def authorities(self) -> int:
        return len(read_authorities(self.leader.bundle, what="bundle"))


@pytest.fixture
def world() -> ChainLeaders:
    world = ChainLeaders()
    world.leader.look()
    world.publish_now()
    return world


def test_the_chain_is_made_for_both_services_and_the_client(world: ChainLeaders) -> None:
    assert world.leader.is_serving
    ends = {"webhook-ca", "webhook-client", "webhook-server", "replica-scheduler-server"}
    assert ends == world.leader.expiries().keys()
    assert world.held is not None
    _, _, trusted = world.held
    assert trusted == world.leader.bundle
    assert f"webhook.{SPACE}.svc" in LEAFS[SERVER].names
    assert f"longhorn-replica-scheduler.{SPACE}.svc" in LEAFS[LEADER].names
    assert LEAFS[CLIENT].is_client


def test_who_listens_learns_of_a_new_bundle_once() -> None:
    world, told = ChainLeaders(), list[bytes]()
    world.leader.subscribe(lambda: told.append(world.leader.bundle))
    world.leader.look()
    world.leader.look()
    assert [world.leader.bundle] == told


def test_an_authority_is_replaced_in_three_steps_while_everything_spreads(world: ChainLeaders) -> None:
    first = world.leader.bundle
    both = world.prepare(DAY_SECONDS)
    assert both.startswith(first)
    assert 2 == world.authorities
    world.look_for(50.0)
    assert both == world.leader.bundle  # it signs nothing before it was seen everywhere for a minute
    world.look_for(30.0)
    turned = world.leader.bundle
    assert set(read_authorities(both, what="x")) == set(read_authorities(turned, what="x"))
    assert both != turned
    world.publish_now()
    world.clock.advance(DAY_SECONDS)
    world.look_for(50.0)
    assert 1 == world.authorities  # leaves have stood there for a day
    assert first not in world.leader.bundle


@pytest.mark.parametrize("kept", [MUTATING, VALIDATING], ids=lambda resource: resource.plural)
def test_a_caBundle_that_lacks_the_next_authority_holds_the_rotation_up(world: ChainLeaders, kept: Resource) -> None:  # noqa: N802
    old = world.leader.bundle
    both = world.prepare(0.0)
    publish(world.api, old, kept)
    world.clock.advance(5 * DAY_SECONDS)
    world.look_for(600.0)
    assert both == world.leader.bundle
    world.publish_now()
    world.look_for(80.0)
    assert both != world.leader.bundle


def lose_it_for_a_moment(world: ChainLeaders) -> None:
    both = world.leader.bundle
    publish(world.api, both[: both.index(b"-----BEGIN", 1)])
    world.look_for(10.0)
    publish(world.api, both)


def change_the_leader(world: ChainLeaders) -> None:
    world.leader = world.new_leader()


def jump_ahead(world: ChainLeaders) -> None:
    """Only the wall clock does, and the whole minute is still to come."""
    ahead = world.clock.now_utc() + 30 * DAY
    world.clock.now_utc = lambda: ahead  # type: ignore[method-assign]
    world.leader = world.new_leader()


@pytest.mark.parametrize("interrupt", [lose_it_for_a_moment, change_the_leader, jump_ahead])
def test_the_minute_is_counted_anew(world: ChainLeaders, interrupt: Callable[[ChainLeaders], None]) -> None:
    both = world.prepare()
    world.look_for(50.0)
    interrupt(world)
    world.look_for(50.0)
    assert both == world.leader.bundle
    world.look_for(30.0)
    turned = world.leader.bundle
    assert both != turned
    assert set(read_authorities(both, what="x")) == set(read_authorities(turned, what="x"))


def test_leaves_are_renewed_though_configurations_cannot_be_read(world: ChainLeaders) -> None:
    for days in (240.0, 35.0):
        world.clock.advance(days * DAY_SECONDS)
        world.leader.look()
    both, shown = world.leader.bundle, world.held
    assert 2 == world.authorities
    world.api.fail_with(ClusterError("403: forbidden"), about=VALIDATING)
    world.clock.advance(30 * DAY_SECONDS)
    world.look_for(100.0)
    assert both == world.leader.bundle
    assert shown != world.held
    assert "403" in world.spread.problem
    world.api.work()
    world.publish_now()
    world.look_for(100.0)
    assert "" == world.spread.problem
    assert both != world.leader.bundle


def test_without_webhook_configurations_nobody_is_waited_for(world: ChainLeaders) -> None:
    for resource, name in OUR_CONFIGURATIONS.items():
        world.api.delete(resource, None, name)
    world.clock.advance(DUE)
    world.leader.look()
    both = world.leader.bundle
    world.clock.advance(DAY_SECONDS)
    world.look_for(80.0)
    assert both != world.leader.bundle


def test_a_client_that_lags_by_the_spread_is_never_refused(world: ChainLeaders) -> None:
    """For two changes of authority: a server that is as late as may be, and a client that is as late as may be."""
    seen: list[tuple[float, bytes, bytes]] = []  # when, the bundle in caBundle, the webhook's leaf
    store = SecretStore(world.api, SPACE)
    signers = set[str]()
    while len(signers) < 3:
        world.clock.advance((0.3 if world.authorities > 1 else 20.0) * DAY_SECONDS)
        if seen:
            seen.append((world.clock.now(), *seen[-1][1:]))  # nothing has changed until now
        for _ in range(10):
            world.clock.advance(10.0)
            world.leader.look()
            world.publish_now()
            leaf = (store.data("server") or {})["tls.crt"]
            seen.append((world.clock.now(), world.leader.bundle, leaf))
            late = [entry for entry in seen if entry[0] >= world.clock.now() - 60.0]
            now, bundles, leaves = world.clock.now_utc(), {bundle for _, bundle, _ in late}, {leaf for *_, leaf in late}
            assert all(trusts(bundle, leaf, now, name=f"webhook.{SPACE}.svc") for bundle in bundles for leaf in leaves)
        signers |= {pair.facts.fingerprint for pair in read_authorities(world.leader.bundle, what="x")[:1]}
        del seen[:-20]


@pytest.mark.parametrize(
    "pace",
    [
        replace(DEFAULT_PACE, confirm_seconds=2 * DAY_SECONDS),
        replace(DEFAULT_PACE, look_every_seconds=60.0),
        replace(DEFAULT_PACE, policy=replace(ROTATING, settle=timedelta(hours=1))),
    ],
)
def test_a_pace_that_leaves_somebody_behind_is_refused(pace: Pace) -> None:
    with pytest.raises(ConfigError):
        pace.checked()


def test_the_products_pace_leaves_nobody_behind() -> None:
    DEFAULT_PACE.checked().policy.checked(LEAFS.values())
    assert DEFAULT_PACE.spread_seconds >= 2 * 30.0  # watches of an API server may lag for half a minute


def test_four_secrets_have_four_names() -> None:
    with pytest.raises(ConfigError, match="four"):
        webhook_plan(replace(SETTINGS, webhook_ca_secret="server"))


def test_an_entry_without_a_bundle_lacks_the_authority_and_what_is_gone_is_not_seen(world: ChainLeaders) -> None:
    authority = read_authorities(world.leader.bundle, what="x")[0]
    bundles = PublishedBundles(world.api)
    assert bundles.all_have(authority)
    key = (MUTATING.path(), "", OUR_CONFIGURATIONS[MUTATING])
    for client_config in ({}, {"caBundle": "%%%"}, {"caBundle": ""}):
        world.api.objects[key]["webhooks"][0]["clientConfig"] = client_config
        assert not bundles.all_have(authority)
    assert frozenset() == world.spread(Chain()).used
