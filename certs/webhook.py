"""The webhook's chain: an authority that rotates, the webhook's server, the leader's gRPC server, and its one client.

kube-apiserver trusts it through `caBundle`, the webhook and the leader through `ca.crt` in their Secrets.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from certs.authority import LeafSpec, server_names
from certs.evidence import PublishedBundles
from certs.foreign import ForeignFollowing
from certs.rotation import DAY, ROTATING, RotationPolicy
from certs.secret import ChainPlan
from controller.errors import ConfigError

CLIENT: Final = "webhook-client"
LEADER: Final = "replica-scheduler-server"
SERVER: Final = "webhook-server"
PREFIX: Final = "webhook-"
SUBJECT: Final = "longhorn-scheduler-webhook-ca"
CLIENT_SUBJECT: Final = "longhorn-scheduler-webhook"


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the chain rotates, and how soon everybody knows.

    A program that serves or calls with a certificate confirms it within `confirm_seconds`, or stops. That is less than
    `overlap` and `settle`, so no program still uses what the leader removes, however long it was cut off.
    """

    policy: RotationPolicy = ROTATING
    leaf_life: timedelta = 90 * DAY
    leaf_renew_before: timedelta = 30 * DAY
    spread_seconds: float = 60.0  # twice what the watches of an API server may lag
    look_every_seconds: float = 10.0
    confirm_seconds: float = 43_200.0

    @property
    def settle_seconds(self) -> float:
        """How long an authority that is no longer named stays trusted, where others write the chain."""
        return (self.policy.settle or DAY).total_seconds()

    def checked(self) -> Pace:
        """Returns itself; raises ConfigError if a program could be left behind."""
        for name in ("overlap", "settle"):
            distance: timedelta | None = getattr(self.policy, name)
            if distance is not None and distance.total_seconds() < self.confirm_seconds:
                raise ConfigError(f"confirm_seconds: is above {name}")
        if self.look_every_seconds >= min(self.spread_seconds, self.confirm_seconds):
            raise ConfigError("look_every_seconds: is not below spread_seconds and confirm_seconds")
        return self


DEFAULT_PACE: Final = Pace()


class WebhookFlags(Protocol):
    """The controller's flags about the webhook's chain: its settings, or the parsed flags of `certs`."""

    @property
    def namespace(self) -> str: ...
    @property
    def cluster_domain(self) -> str: ...
    @property
    def webhook_service(self) -> str: ...
    @property
    def webhook_tls_secret(self) -> str: ...
    @property
    def webhook_client_tls_secret(self) -> str: ...
    @property
    def webhook_ca_secret(self) -> str: ...
    @property
    def replica_scheduler_service(self) -> str: ...
    @property
    def replica_scheduler_tls_secret(self) -> str: ...


def webhook_plan(flags: WebhookFlags, pace: Pace = DEFAULT_PACE) -> ChainPlan:
    """The webhook's chain, at this pace; ConfigError unless the four Secrets have four names."""
    ca, server, client = flags.webhook_ca_secret, flags.webhook_tls_secret, flags.webhook_client_tls_secret
    leader = flags.replica_scheduler_tls_secret
    if len({ca, server, client, leader} - {""}) != 4:
        raise ConfigError(
            f"Secrets: four are needed, with four names, not {ca!r}, {server!r}, {client!r} and {leader!r}"
        )
    leaves = webhook_leaves(
        flags.namespace,
        service=flags.webhook_service,
        leader_service=flags.replica_scheduler_service,
        domain=flags.cluster_domain,
        pace=pace,
    )
    secrets = {CLIENT: client, LEADER: leader, SERVER: server}
    return ChainPlan(ca, secrets, lambda: leaves, pace.policy, SUBJECT, (SERVER, LEADER), (CLIENT,), PREFIX)


def webhook_leaves(
    namespace: str, *, service: str, leader_service: str, domain: str, pace: Pace = DEFAULT_PACE
) -> dict[str, LeafSpec]:
    """What the chain signs: the names of two Services, and one client."""
    life, before = pace.leaf_life, pace.leaf_renew_before
    return {
        CLIENT: LeafSpec(CLIENT_SUBJECT, life, is_client=True, renew_before=before),
        LEADER: LeafSpec(
            leader_service, life, server_names(leader_service, namespace, (), domain), renew_before=before
        ),
        SERVER: LeafSpec(service, life, server_names(service, namespace, (), domain), renew_before=before),
    }


def webhook_following(published: PublishedBundles, pace: Pace = DEFAULT_PACE) -> ForeignFollowing:
    """How the leader follows the chain where others write it. Webhooks read the Secrets of server and client."""
    return ForeignFollowing(
        named_by=(CLIENT, LEADER, SERVER),
        callers=(CLIENT, SERVER),
        settle_seconds=pace.settle_seconds,
        spread_seconds=pace.spread_seconds,
        patience_seconds=pace.confirm_seconds,
        published=published,
    )
