"""The objects of the cluster on the stage, and the lines of a transcript that change them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from controller.model.longhorn import Disk, SpacePolicy
from controller.model.workload import PersistentVolume
from controller.settings import LiveSettings
from tests.fakes import builders
from tests.fakes.builders import EPOCH, GIB, LATER, LATEST, TestCluster, observe

_LIVE: Final = {field.name for field in fields(LiveSettings)}
_SPACE: Final = {field.name for field in fields(SpacePolicy)}


class StageObjects:
    """A made-up cluster, and what is known of it that its objects do not tell."""

    def __init__(self) -> None:
        self.cluster = TestCluster(live=LiveSettings(enabled=True))
        self.world = self.cluster.allocator._world
        self.room: dict[str, int] = {}  # the largest that the node has had
        self.disks: dict[str, list[Disk]] = {}
        self.kinds: dict[str | None, tuple[str, int]] = {"longhorn": ("best-effort", 1)}
        self.wanted: set[str] = set()  # claims that a pod has used
        self.chosen: dict[str, str] = {}  # nodes by claim
        self.placed: dict[tuple[str, str], str] = {}  # nodes by claim and number of the replica
        self.heirs: dict[str, str] = {}  # claims that were handed another one's volume, by that one

    # The cluster, and what its objects say

    def do_node(self, name: str, *sizes: str) -> None:
        self.disks[name] = [builders.disk(f"d{index}", float(size)) for index, size in enumerate(sizes, start=1)]
        self.cluster.add_node(name, *self.disks[name])
        self.room[name] = max(sum(int(size) for size in sizes), self.room.get(name, 0))

    def do_press(self, name: str) -> None:
        pressed = [replace(entry, schedulable=False, is_under_pressure=True) for entry in self.disks[name]]
        self.cluster.put_node(builders.node(name, *pressed))

    def do_relieve(self, name: str) -> None:
        self.cluster.put_node(builders.node(name, *self.disks[name]))

    def do_set(self, word: str, value: str) -> None:
        change = {word: _value(value)}
        live, longhorn = self.cluster.live, self.world.settings
        if word in _LIVE:
            live = self.cluster.live = replace(live, **change)
        elif word in _SPACE:
            longhorn = replace(longhorn, space=replace(longhorn.space, **change))
        else:
            longhorn = replace(longhorn, **change)
        self.cluster.allocator.configure(live, longhorn)

    def do_class(self, name: str, locality: str, copies: str = "1", *others: str) -> None:
        said = {"dataLocality": locality, "numberOfReplicas": copies} | dict(other.split("=") for other in others)
        self.cluster.add_class(name, **{key: value for key, value in said.items() if value != "-"})
        self.kinds[name] = locality, int(copies.replace("-", "1"))

    def do_claim(self, name: str, size: str, *words: str) -> None:
        kind = next((word for word in words if word != "shared"), "longhorn")
        self.cluster.add_claim(name, float(size), class_name=kind, shared="shared" in words)

    def do_pod(self, name: str, *claims: str) -> None:
        self.add_pod(name, *claims)

    def do_again(self, name: str, *claims: str) -> None:
        for claim in self.add_pod(name, *claims, uid=f"pod-{name}-again", created=LATEST):
            self.chosen.pop(claim, None)  # for the pod before it

    def do_remove(self, pod: str) -> None:
        self.cluster.drop_pod(pod)

    def do_delete(self, pod: str) -> None:
        self.cluster.delete_volume(pod)
        self.chosen.pop(pod, None)
        self.placed = {key: node for key, node in self.placed.items() if key[0] != pod}

    def do_has(self, claim: str, size: str, node: str, disk: str = "d1") -> None:
        self.do_claim(claim, size)
        self.do_provision(claim)
        self.do_place(claim, node, "1", disk)

    def do_job(self, pod: str, size: str, node: str) -> None:
        claim = self.cluster.add_claim(pod, float(size))
        self.cluster.set_claim(replace(claim, owner_pod_uid=f"pod-{pod}"))
        self.do_pod(pod)
        self.do_run(pod, node)

    def do_lose(self, kind: str, name: str) -> None:
        if kind == "claim":
            self.cluster.drop_claim(name)
            self._inherit(name)
        else:
            observe(self.cluster.allocator, kind, self.key(kind, name), None)

    def _inherit(self, claim: str) -> None:
        """What was known of its volume is known of the claim that has it now."""
        heir = self.heirs.pop(claim, "")
        if heir:
            self.chosen.pop(claim, None)
            self.placed = {(heir if name == claim else name, at): node for (name, at), node in self.placed.items()}

    def do_hand(self, claim: str, to: str) -> None:
        heir = self.cluster.claims[to]
        self.change("pv", claim, claim_uid=heir.uid, claim_key=heir.key)
        self.change("claim", to, volume_name=self.key("volume", claim))
        self.heirs[claim] = to

    def do_change(self, kind: str, name: str, field: str, value: str) -> None:
        self.change(kind, name, **{field: _value(value)})

    def do_touch(self, kind: str, name: str) -> None:
        changes: dict[str, dict[str, Any]] = {
            "pod": {"unschedulable_since_utc": LATER},
            "pv": {"capacity_bytes": 101 * GIB},
            "volume": {"robustness": "unknown"},
            "replica": {"image": "unknown"},
        }
        if kind == "claim":
            changes["claim"] = {"version": 7, "requested_bytes": int(self.size(name) * GIB) - 1}
        self.change(kind, name, **changes[kind])

    def do_resize(self, kind: str, claim: str, size: str) -> None:
        field = {"claim": "requested_bytes", "pv": "capacity_bytes"}.get(kind, "size_bytes")
        self.change(kind, claim, **{field: int(size) * GIB})

    # The scheduler, provisioning and Longhorn

    def do_choose(self, claim: str, node: str) -> None:
        self.cluster.select_node(claim, _node(node))
        self.chosen[claim] = node

    def do_nominate(self, pod: str, node: str) -> None:
        self.cluster.change_pod(pod, nominated_node=_node(node))

    def do_see(self, kind: str, claim: str, late: str = "") -> None:
        facts, name = self.cluster.claims[claim], self.key("volume", claim)
        if kind == "claim":
            self.cluster.set_claim(replace(facts, volume_name=name))
        elif kind == "pv":
            size = facts.requested_bytes
            created = LATEST if late else LATER
            pv = PersistentVolume(
                name, "driver.longhorn.io", name, facts.uid, facts.key, size, created, len(self.world.pvs) + 1
            )
            self.cluster.allocator.observe_pv(name, pv)
        elif kind == "volume":
            self.do_attach(claim, "-")
        else:
            for number in range(1, self.kinds[facts.class_name][1] + 1):
                self.do_place(claim, "-", str(number))

    def do_provision(self, claim: str, late: str = "") -> None:
        for kind in ("volume", "replica", "pv", "claim"):
            self.do_see(kind, claim, late)

    def do_bind(self, pod: str, node: str) -> None:
        self.cluster.bind(pod, node)

    def do_attach(self, claim: str, node: str, state: str = "attaching", **other: Any) -> None:
        facts = self.cluster.claims[claim]
        locality, copies = self.kinds[facts.class_name]
        other |= {
            "frontend": "blockdev",
            "locality": locality,
            "replica_count": copies,
            "access_mode": "rwx" if facts.is_shared else "rwo",
        }
        if node != "-":
            other["state"] = state
        self.cluster.attach(self.key("volume", claim), _node(node), self.size(claim), **other)

    def do_refuse(self, claim: str, node: str) -> None:
        self.do_attach(claim, node, scheduled=False)

    def do_place(self, claim: str, node: str, number: str = "1", disk: str = "d1") -> None:
        name = self.key("replica", f"{claim}/{number}")
        facts = builders.replica(name, self.key("volume", claim), self.size(claim), on=_node(node), disk_name=disk)
        self.cluster.allocator.observe_replica(name, replace(facts, healthy_at="" if node == "-" else EPOCH))
        self.placed[claim, number] = node

    def do_run(self, claim: str, node: str) -> None:
        self.do_choose(claim, node)
        self.do_provision(claim)
        self.do_bind(self.users(claim)[0], node)
        self.do_attach(claim, node)
        self.do_place(claim, node)

    # What is known

    def key(self, kind: str, name: str) -> str:
        """The name under which the kind's objects of that claim, or node, are known."""
        if kind in ("node", "kube_node"):
            return name
        claim, _, number = name.partition("/")
        volume = f"pvc-{self.cluster.claims[claim].uid}"
        return f"{volume}-r-{number or 1}" if kind == "replica" else volume

    def size(self, claim: str) -> float:
        return self.cluster.claims[claim].requested_bytes / GIB

    def change(self, kind: str, name: str, **changes: Any) -> None:
        if kind == "pod":
            self.cluster.change_pod(name, **changes)
        elif kind == "claim":
            self.cluster.set_claim(replace(self.cluster.claims[name], **changes))
        else:
            key = self.key(kind, name)
            facts: dict[str, Mapping[str, Any]] = {
                "node": self.world.nodes,
                "pv": self.world.pvs,
                "volume": self.world.volumes,
                "replica": self.world.replicas_of(key.partition("-r-")[0]),
            }
            observe(self.cluster.allocator, kind, key, replace(facts[kind][key], **changes))

    def add_pod(self, name: str, *claims: str, **other: Any) -> list[str]:
        """The claims that it uses."""
        used = [volume.claim for volume in self.cluster.add_pod(name, *claims, **other).volumes]
        self.wanted.update(used)
        return used

    def users(self, claim: str) -> list[str]:
        """The pods that use it."""
        return [pod.name for pod in self.cluster.pods.values() if claim in {volume.claim for volume in pod.volumes}]


def _node(word: str) -> str:
    return "" if word == "-" else word


def _value(word: str) -> Any:
    return int(word) if word.isdigit() else {"true": True, "false": False, "-": ""}.get(word, word)
