"""A control plane with the shipped policies and Longhorn's kinds; `admin` stands for Longhorn and all others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from tests.cluster.client import ApiError, ignored_when_gone
from tests.cluster.cluster import Cluster
from tests.e2e.harness import GATE_BINDING, apply_manifests
from tests.e2e.manager_writes import unplaced_replica
from tests.e2e.scheduling import NAMESPACE, SERVICE
from tests.longhorn import install, paths
from tests.longhorn.options import GIB

REPLICAS: Final = paths.longhorn("replicas", NAMESPACE)
VOLUME: Final = "v"


class PolicySite:
    """`kubeconfig` is our account's. `changed`: what becomes of the manifests."""

    def __init__(self, cluster: Cluster, changed: Callable[[str], str] = str) -> None:
        self.cluster, self.admin, self._changed = cluster, cluster.api(), changed
        install.install(self.admin, NAMESPACE, {}, capacity_tracking=False)
        self.apply()
        self.kubeconfig: Path = cluster.state_dir / "ours.kubeconfig"
        cluster.service_account_kubeconfig(NAMESPACE, SERVICE, self.kubeconfig)
        self._numbers = itertools.count()

    @classmethod
    @contextmanager
    def on(cls, cluster: Cluster) -> Iterator[Self]:
        """What it leaves behind is taken away."""
        site = cls(cluster)
        yield site
        site.admin.delete(REPLICAS)
        with ignored_when_gone():
            site.admin.delete(GATE_BINDING)

    def apply(self) -> None:
        apply_manifests(self.cluster, self._changed)

    def new_replica(self) -> str:
        """One without a node."""
        name = f"v{next(self._numbers)}-r-0"
        self.admin.create(REPLICAS, unplaced_replica(name, VOLUME, GIB))
        return name


def refusal(write: Callable[[], object]) -> str:
    """Why a policy or the schema refuses it; "" where nothing does."""
    try:
        write()
    except ApiError as error:
        if error.status not in (403, 422):
            raise
        return str(error)
    return ""
