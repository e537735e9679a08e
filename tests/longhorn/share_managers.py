"""Longhorn's share-managers: the pod that serves a volume of several nodes (RWX, not migratable) by NFS.

It comes once a consumer was scheduled and its attachment asks for the volume, has no node, and is placed by
kube-scheduler like any other pod. The volume is attached where it runs, and everything that follows a volume's node
(engine, owner, the local replica) follows it. Consumers get the volume when it serves. It ends with the last of them,
and another one comes after a failure, anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.cluster.client import ApiError
from tests.longhorn import locality, owners, paths, tickets
from tests.longhorn.install import ensure
from tests.longhorn.volumes import close
from tests.longhorn.world import Busy, LonghornWorld, Raw, put

COMPONENT: Final = "longhorn.io/component"
VOLUME_LABEL: Final = "longhorn.io/share-manager"
IMAGE: Final = "longhornio/longhorn-share-manager:v1.12.1"
DELAYS: Final = {
    "start": "share_start",
    "restart": "share_retry",
    "attach": "share_attach",
    "serve": "share_serve",
    "fail": "share_fail",
    "stop": "share_stop",
}


def pod_name(volume: str) -> str:
    return f"share-manager-{volume}"


def served_volume(pod: Raw) -> str:
    """The volume that the pod is the share-manager of, "" for other pods."""
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get(VOLUME_LABEL, "")) if labels.get(COMPONENT) == "share-manager" else ""


@dataclass(frozen=True)
class Share:
    """One volume and everything that serving it is about, as it is now."""

    volume: Raw | None
    manager: Raw | None
    attachment: Raw | None
    pod: Raw | None
    is_node_ready: bool  # the pod's
    waits: bool  # a consumer's attachment is not told yet that it can use the volume


def next_step(share: Share) -> str:
    """What the share-manager controller does next, "" for nothing."""
    volume, pod = share.volume, share.pod
    if volume is not None and not locality.is_served(volume):
        return ""
    if volume is None or locality.is_deleting(volume):
        return "remove" if share.manager or share.attachment or pod else ""
    if share.manager is None:
        return "make"
    state = str((share.manager.get("status") or {}).get("state") or "stopped")
    own = tickets.of_kind(share.attachment, tickets.SHARE_MANAGER)
    is_up = state in ("starting", "running") or bool(own)
    if pod is not None and (locality.is_deleting(pod) or _has_ended(pod) or not share.is_node_ready):
        return "fail" if is_up or not locality.is_deleting(pod) else ""
    if not tickets.of_kind(share.attachment, tickets.CSI):
        return "stop" if pod is not None or is_up else ""
    if pod is None:
        return "fail" if is_up and state != "starting" else "restart" if state == "error" else "start"
    node = str(pod["spec"].get("nodeName") or "")
    if not node:
        return ""
    if volume["spec"].get("nodeID") != node or list(own.values()) != [node]:
        return "attach"
    if state != "running":
        return "serve" if locality.attached_node(volume) == node and _is_ready(pod) else ""
    return "publish" if share.waits else ""


class ShareManagers:
    """Threads: reflectors' and the pool's; one step at a time for one volume."""

    def __init__(self, world: LonghornWorld) -> None:
        self._world, self._busy = world, Busy()
        for kind in ("volumes", "tickets", "shares"):
            world.listen(kind, lambda _, raw: self._look(str(raw["metadata"]["name"])))
        world.listen("pods", self._on_pod)
        world.listen("nodes", self._on_node)

    def _on_pod(self, _verb: str, pod: Raw) -> None:
        if served_volume(pod) and pod["metadata"].get("namespace") == self._world.options.namespace:
            self._look(served_volume(pod))

    def _on_node(self, _verb: str, node: Raw) -> None:
        for pod in self._world.stores["pods"].snapshot().values():
            if pod["spec"].get("nodeName") == node["metadata"]["name"]:
                self._on_pod("MODIFIED", pod)

    def _look(self, name: str) -> None:
        """Begin what is due, as far as the informers show it; it is looked at again once that is done."""
        self._begin(name, self._shown(name))

    def _begin(self, name: str, share: Share) -> None:
        step = next_step(share)
        if step and self._busy.begin("step", name):
            if step in DELAYS:
                self._world.after(DELAYS[step], self._do, name, step)
            else:
                self._world.timers.now(self._do, name, step)

    def _do(self, name: str, step: str) -> None:
        try:
            share = self._live(name)
            if next_step(share) == step:
                getattr(self, f"_{step}")(name, share)
        finally:
            self._busy.end("step", name)
        self._begin(name, self._live(name))  # the informers may not show yet what was done

    # What is there

    def _shown(self, name: str) -> Share:
        stores, key = self._world.stores, f"{self._world.options.namespace}/{name}"
        pod = stores["pods"].get(f"{self._world.options.namespace}/{pod_name(name)}")
        return self._share(self._world.volume(name), stores["shares"].get(key), stores["tickets"].get(key), pod)

    def _live(self, name: str) -> Share:
        world = self._world
        plurals = ("volumes", "sharemanagers", "volumeattachments")
        volume, manager, attachment = (world.api.get_or_none(world.longhorn(plural, name)) for plural in plurals)
        return self._share(volume, manager, attachment, world.api.get_or_none(self._pod_path(name)))

    def _share(self, volume: Raw | None, manager: Raw | None, attachment: Raw | None, pod: Raw | None) -> Share:
        node = str(((pod or {}).get("spec") or {}).get("nodeName") or "")
        is_ready = not node or owners.is_ready(self._world.nodes().get(node))
        waiting = [name for name in tickets.of_kind(attachment, tickets.CSI) if self._is_waiting(name)]
        return Share(volume, manager, attachment, pod, is_ready, bool(waiting))

    def _is_waiting(self, name: str) -> bool:
        raw = self._world.stores["attachments"].get(name)
        return raw is not None and not (raw.get("status") or {}).get("attached") and not locality.is_deleting(raw)

    def _pod_path(self, name: str) -> str:
        return paths.pod(self._world.options.namespace, pod_name(name))

    # Steps

    def _make(self, name: str, share: Share) -> None:
        owner = str((((share.volume or {}).get("status")) or {}).get("ownerID") or "")
        body = paths.longhorn_object("ShareManager", name, self._world.options.namespace, spec={"image": IMAGE})
        ensure(self._world.api, self._world.longhorn("sharemanagers"), body)
        self._tell(name, "stopped", owner)

    def _remove(self, name: str, share: Share) -> None:
        self._end_pod(name, share)
        self._world.delete(self._world.longhorn("sharemanagers", name))
        self._world.delete(self._world.longhorn("volumeattachments", name))

    def _start(self, name: str, share: Share) -> None:
        assert share.manager is not None
        self._tell(name, "starting")
        ensure(self._world.api, f"/api/v1/namespaces/{self._world.options.namespace}/pods", self._pod(name, share))

    _restart = _start

    def _pod(self, name: str, share: Share) -> Raw:
        assert share.manager is not None
        owner: Raw = {"apiVersion": f"{paths.GROUP}/{paths.VERSION}", "kind": "ShareManager", "name": name}
        owner |= {"uid": share.manager["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}
        labels = {
            "longhorn.io/managed-by": "longhorn-manager",
            COMPONENT: "share-manager",
            VOLUME_LABEL: name,
            "longhorn.io/share-manager-image": "imi-12345678",
        }
        container = {
            "name": "share-manager",
            "image": IMAGE,
            "args": ["longhorn-share-manager", "--debug", "daemon", "--volume", name],
            "securityContext": {"privileged": True},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod_name(name), "labels": labels, "ownerReferences": [owner]},
            "spec": {
                "containers": [container],
                "nodeSelector": self._node_selector(name),
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
            },
        }

    def _node_selector(self, name: str) -> dict[str, str]:
        """What the volume's class says, as `key:value;key:value`."""
        pv = self._world.stores["pvs"].get(name) or {"spec": {}}
        text = str(((pv["spec"].get("csi") or {}).get("volumeAttributes") or {}).get("shareManagerNodeSelector") or "")
        return dict(part.split(":", 1) for part in text.split(";") if ":" in part)

    def _attach(self, name: str, share: Share) -> None:
        """The pod's node becomes the volume's, once the volume has left the one before."""
        assert share.pod is not None
        node = str(share.pod["spec"]["nodeName"])
        tickets.hold(self._world, name, _own_ticket(name), tickets.SHARE_MANAGER, node)
        self._tell(name, "starting", node)

        def edit(volume: Raw) -> bool:
            return put(volume["spec"], nodeID=node, disableFrontend=False)

        if (share.volume or {"spec": {}})["spec"].get("nodeID") not in ("", None, node):
            self._detach(name)
        self._world.change(self._world.longhorn("volumes", name), edit)

    def _serve(self, name: str, _share: Share) -> None:
        self._tell(name, "running")

    def _publish(self, name: str, share: Share) -> None:
        for attachment in tickets.of_kind(share.attachment, tickets.CSI):
            self._world.change(f"{paths.ATTACHMENTS}/{attachment}", tickets.set_attached, status=True)

    def _fail(self, name: str, share: Share) -> None:
        self._end(name, share, "error")

    def _stop(self, name: str, share: Share) -> None:
        self._end(name, share, "stopped")

    def _end(self, name: str, share: Share, state: str) -> None:
        self._end_pod(name, share)
        tickets.release(self._world, name, _own_ticket(name))
        self._detach(name)
        self._tell(name, state)

    def _end_pod(self, name: str, share: Share) -> None:
        if share.pod is not None and not locality.is_deleting(share.pod):
            uid = {"uid": share.pod["metadata"]["uid"]}
            try:
                self._world.delete(self._pod_path(name), preconditions=uid)
            except ApiError as error:
                if not error.conflict:  # it is another one by now
                    raise

    def _detach(self, name: str) -> None:
        self._world.change(self._world.longhorn("volumes", name), lambda volume: put(volume["spec"], nodeID=""))
        close(self._world, name)

    def _tell(self, name: str, state: str, owner: str = "") -> None:
        """Write the state where Longhorn shows it: on the ShareManager and on the Volume."""
        endpoint = f"nfs://{name}/{name}" if state == "running" else ""

        def edit_manager(raw: Raw) -> bool:
            status = raw.setdefault("status", {})
            return put(status, state=state, endpoint=endpoint, **({"ownerID": owner} if owner else {}))

        def edit_volume(raw: Raw) -> bool:
            return put(raw.setdefault("status", {}), shareState=state, shareEndpoint=endpoint)

        self._world.change(self._world.longhorn("sharemanagers", name), edit_manager, status=True)
        self._world.change(self._world.longhorn("volumes", name), edit_volume, status=True)


def _own_ticket(name: str) -> str:
    return f"share-manager-controller-{name}"


def _has_ended(pod: Raw) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def _is_ready(pod: Raw) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
