"""Publishes what callers of the status port on the network need to know: in a ConfigMap, which everybody may read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from controller.errors import ConfigError, NotFoundError
from controller.kube.api import KubeApi
from controller.kube.resources import CONFIG_MAPS
from controller.model.names import STATUS_CONFIG_MAP
from controller.process.repeated import Repeated
from controller.process.worker import Part

LOOK_SECONDS: Final = 10.0
AUTHORITIES, LEADER, ADDRESS = "ca.crt", "leader", "address"  # the keys

log = logging.getLogger(__name__)


class StatusTrust(Part):
    """On the leader, keeps the ConfigMap as it should be. The manifest makes it, and it is never made here.

    `authorities`: PEM of those by which the certificate of the port can be checked, the present and the next one, so
    that a caller who read it before a rotation is right after it; empty where the caller's own have to do, None while
    unknown. Threads: `worker`'s; `problem` from any. Blocks: never. I/O: a read, and a patch if something differs.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        *,
        leader: str,
        address: str,
        authorities: Callable[[], bytes | None],
        is_leading: Callable[[], bool],
    ) -> None:
        """`leader`: this pod. `address`: "host:port" of its port."""
        self._api, self._namespace, self._authorities, self._is_leading = api, namespace, authorities, is_leading
        self._leader, self._address = leader, address
        say = partial(log.warning, "ConfigMap %s: %s", STATUS_CONFIG_MAP)
        self._looks = Repeated(self.look, lambda _: LOOK_SECONDS, say, thread="status-trust")
        self.worker = self._looks.worker

    @property
    def problem(self) -> str:
        """Why callers do not find there what is true; "" if they do, or another process leads."""
        return "; ".join(self._looks.problems)

    def look(self) -> None:
        """One round. Raises ClusterError."""
        problems: list[str] = []
        if self._is_leading():
            try:
                self._publish()
            except NotFoundError:
                problems.append(f"ConfigMap {STATUS_CONFIG_MAP} does not exist: apply the manifest again")
            except (ConfigError, UnicodeDecodeError) as error:
                problems.append(f"the authorities of --status-tls-port cannot be read: {error}")
        self._looks.note(problems)

    def _publish(self) -> None:
        authorities = self._authorities()
        if authorities is None:
            return
        found: Mapping[str, str] = self._api.get(CONFIG_MAPS, self._namespace, STATUS_CONFIG_MAP).get("data") or {}
        wanted = {LEADER: self._leader, ADDRESS: self._address, AUTHORITIES: authorities.decode("ascii")}
        changed = {key: value for key, value in wanted.items() if found.get(key, "") != value}
        if changed and self._is_leading():
            self._api.patch(CONFIG_MAPS, self._namespace, STATUS_CONFIG_MAP, {"data": changed})
            log.info("ConfigMap %s: %s", STATUS_CONFIG_MAP, ", ".join(sorted(changed)))
