"""Documents of the status port for those who show them: a small healthy cluster, one with thirteen troubles, and ones
of any size. `encoded` is a document as the port serves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from controller.views.documents import (
    Capacity,
    DecisionEntry,
    DiskView,
    Explanation,
    Holder,
    NodeAnswer,
    NodeCapacity,
    Overview,
    PlaceView,
    Problem,
    Rebuild,
    Survival,
    TagCapacity,
    TakenView,
    Totals,
    VolumeAnswer,
    WaitingPod,
)

GIB = 2**30
NOW = "2026-11-28T14:00:00Z"
EARLIER = "2026-11-28T13:48:30Z"
LEADER = "longhorn-scheduler-extender-6c9f7d5b4-x2x7k"


def encoded(document: Any) -> bytes:
    return msgspec.json.encode(document)


def disk(node: str, name: str = "d1", *, gib: int = 500, **more: Any) -> DiskView:
    """A disk of `gib`, a quarter of which is reserved; `used`, `planned`, `held` and `growth` are GiB."""
    taken = {kind: more.pop(kind, 0) * GIB for kind in ("used", "planned", "held", "growth")}
    limit = gib * GIB * 3 // 4
    made = DiskView(
        node=node,
        disk=name,
        uuid=f"00000000-0000-4000-8000-{hash_of(node + name):012x}",
        tags=("ssd",) if name == "d1" else (),
        maximum_bytes=gib * GIB,
        reserved_bytes=gib * GIB // 4,
        available_bytes=gib * GIB - taken["used"],
        limit_bytes=limit,
        over_percent=100,
        used_bytes=taken["used"],
        planned_bytes=taken["planned"],
        held_bytes=taken["held"],
        growth_bytes=taken["growth"],
        free_bytes=limit - sum(taken.values()),
        closed="",
    )
    return replace(made, **more)


def hash_of(text: str) -> int:
    """The same in every process."""
    number = 0
    for letter in text.encode():
        number = (number * 257 + letter) % 2**44
    return number


def totals(disks: Sequence[DiskView]) -> Totals:
    names = (
        "maximum_bytes",
        "limit_bytes",
        "used_bytes",
        "planned_bytes",
        "held_bytes",
        "growth_bytes",
        "free_bytes",
    )
    sums = {name: sum(getattr(one, name) for one in disks) for name in names}
    return Totals(nodes=len({one.node for one in disks}), disks=len(disks), **sums)


def overview(disks: Sequence[DiskView], **more: Any) -> Overview:
    """Of a leader with which all is well; `more` are other fields."""
    made = Overview(
        time=NOW,
        identity=f"{LEADER}_1a2b3c4d",
        node="n1",
        is_leading=True,
        holder=f"{LEADER}_1a2b3c4d",
        term=7,
        since="2026-11-27T08:15:00Z",
        mode="active",
        version="0.1.0",
        longhorn="v1.12.0",
        gate="enforced",
        wiring={"default-scheduler": "wired"},
        problems=(),
        totals=totals(disks),
        disks=disks,
        waiting=(),
        more_waiting=0,
        plans=(),
        more_plans=0,
        held_replicas=(),
        left_replicas=(),
        waiting_replicas={},
        workers=dict.fromkeys(("placer", "sweeper", "teller", "waker", "wiring"), "well"),
        oldest_data_seconds=0.4,
    )
    return replace(made, **more)


def healthy() -> Overview:
    """Three nodes with a disk each, one plan, and nobody who waits."""
    disks = [disk("n1", used=120, planned=20), disk("n2", used=80, held=20), disk("n3", used=200)]
    plan = TakenView("pvc-7d1e", "shop/orders-0", "n1", "plan", 20 * GIB, 12.5)
    return overview(disks, plans=(plan,))


# Thirteen troubles: what each staged situation looks like. The first field of a row is the pod's cause.
WAITS: Mapping[str, tuple[str, Mapping[str, int], str]] = {
    "wrong-tag": (
        "DiskTagsNotFulfilled",
        {"DiskTagsNotFulfilled": 3, "NodeUnschedulable": 1},
        "no disk has the tag nvme that the class fast-nvme asks for; the disks have ssd",
    ),
    "too-few-zones": (
        "NoRoomInCluster",
        {"NoRoomInCluster": 4},
        "three copies need three zones, replica-zone-soft-anti-affinity is off, and there are two zones with room",
    ),
    "degraded-not-allowed": (
        "NoRoomInCluster",
        {"NoRoomInCluster": 4},
        "only 2 of 3 copies find a disk, and allow-volume-creation-with-degraded-availability is false",
    ),
    "pressure": ("DiskPressure", {"DiskPressure": 4}, "every disk has less than 25 % available"),
    "cloned-disks": ("DiskUnschedulable", {"DiskUnschedulable": 2}, "n2/d1 and n3/d1 have the same UUID"),
    "cordoned": ("NodeUnschedulable", {"NodeUnschedulable": 1}, "its data is on n4, which is cordoned"),
    "promised": ("Contended", {"Contended": 4}, "50 GiB are free on n1 once shop/orders-1 is placed"),
    "full": ("InsufficientStorage", {"InsufficientStorage": 4}, "n2/d1 lacks 12 GiB, and all others lack more"),
    "own-volumes-too-large": (
        "InsufficientStorage",
        {"InsufficientStorage": 4},
        "its two volumes ask for 400 GiB together, and the largest disk may take 375 GiB",
    ),
}
TROUBLES: Sequence[Problem] = (
    Problem(
        "failure",
        "gate",
        "Others may place replicas: the ValidatingAdmissionPolicyBinding longhorn-scheduler-extender-gate does not "
        "exist.",
        "Apply the manifest again, or upgrade the Helm release.",
    ),
    Problem(
        "failure",
        "wiring",
        "The scheduler batch does not ask the extender: Insufficient longhorn.io/scheduler-extender.",
        "Give it the configuration that render-scheduler-config prints, on every control-plane node.",
    ),
    Problem(
        "failure",
        "growth",
        "The webhook does not reach the leader: longhorn-replica-scheduler.longhorn-system.svc:9505 timed out.",
        "Let the webhook's pods reach port 9505 of the controller's pods; look at the NetworkPolicies.",
    ),
    Problem(
        "failure",
        "certificate",
        "The certificate longhorn-scheduler-extender-client ended on 2026-11-27 03:00:00 UTC.",
        "Run longhorn-scheduler-extender certs check, and write kube-scheduler's files anew.",
    ),
    Problem("warning", "disks", "n2/d1 and n3/d1 have the same UUID.", "Give one of them a new one."),
)


def waiting_pod(name: str, *, namespace: str = "shop") -> WaitingPod:
    cause, reasons, text = WAITS[name]
    return WaitingPod(
        namespace=namespace,
        name=name,
        uid=f"uid-{name}",
        scheduler="default-scheduler",
        since=EARLIER,
        tried="2026-11-28T13:59:21Z",
        decision=cause,
        reasons=reasons,
        text=text,
    )


def troubled() -> Overview:
    """Thirteen situations at once: four problems of the installation, and a pod for each of the nine others."""
    disks = [
        disk("n1", used=330, planned=40),
        disk("n1", "d2", used=100, held=50, growth=10),
        disk("n2", used=365, closed="shares its UUID with n3/d1"),
        disk("n3", used=300, available_bytes=60 * GIB, closed="below 25 % available"),
        disk("n4", used=390, closed="the node is cordoned"),
    ]
    plans = (
        TakenView("pvc-7d1e", "shop/orders-0", "n1", "plan", 40 * GIB, 75.0),
        TakenView("pvc-9a2f", "shop/orders-1", "n1", "answer", 50 * GIB, 3.2),
        TakenView("pvc-1b3c", "bank/ledger", "n1", "growth", 10 * GIB, 20.0),
    )
    return overview(
        disks,
        gate="missing",
        wiring={"default-scheduler": "wired", "batch": "unwired"},
        problems=TROUBLES,
        waiting=tuple(waiting_pod(name) for name in WAITS),
        more_waiting=3,
        plans=plans,
        held_replicas=("pvc-7d1e-r-0a1b2c3d",),
        left_replicas=("pvc-5555-r-4e5f6071",),
        waiting_replicas={"no-room": 2},
        workers={"placer": "well", "sweeper": "well", "teller": "failed 3 times: timed out", "waker": "well"},
        oldest_data_seconds=2.1,
    )


def following() -> Overview:
    """What a copy says that does not lead."""
    seen = healthy()
    return replace(
        seen, identity="longhorn-scheduler-extender-6c9f7d5b4-q9q9q_9f8e", is_leading=False, term=None, gate="following"
    )


def holder(
    name: str = "shop/orders-0", *, gib: int = 40, kind: str = "plan", until: str = "", count: int = 1
) -> Holder:
    return Holder(kind, name, count, gib * GIB, until)


def node_answer(node: str, *, reason: str = "InsufficientStorage", missing_gib: int = 0, **more: Any) -> NodeAnswer:
    made = NodeAnswer(
        node=node,
        verdict="full",
        reason=reason,
        text=f"{missing_gib} GiB are missing on {node}/d1" if missing_gib else "",
        claim="shop/data-full",
        disk="d1",
        limit_bytes=375 * GIB,
        used_bytes=330 * GIB,
        taken_bytes=40 * GIB,
        free_bytes=5 * GIB,
        missing_bytes=missing_gib * GIB,
        holders=(holder(), holder("", gib=90, count=4, kind="stored")),
    )
    return replace(made, **more)


def place(node: str, *, kind: str = "plan", why: str = "the most usable bytes of the zone's disks") -> PlaceView:
    return PlaceView(node, "d1", f"uuid-{node}", 20 * GIB, kind, why)


def volume_answer(claim: str = "shop/data-full", **more: Any) -> VolumeAnswer:
    made = VolumeAnswer(
        claim=claim, volume="", size_bytes=17 * GIB, copies=1, is_local=True, places=(), reason="", text=""
    )
    return replace(made, **more)


def explanation(name: str = "full", **more: Any) -> Explanation:
    """Why the pod of that trouble waits; four nodes are shown of which n2 lacks least."""
    cause, _, text = WAITS[name]
    nodes = [node_answer(node, missing_gib=gib) for node, gib in (("n2", 12), ("n1", 50), ("n3", 90), ("n4", 120))]
    made = Explanation(
        kind="Pod",
        namespace="shop",
        name=name,
        state="waits",
        since=EARLIER,
        cause=cause,
        text=text[0].upper() + text[1:] + ".",
        change="Make 12 GiB free on n2/d1, or ask for 5 GiB at most.",
        volumes=(volume_answer(f"shop/data-{name}"),),
        nodes=nodes,
        more_nodes=0,
    )
    return replace(made, **more)


def let_through(*, state: str = "let-through") -> Explanation:
    """A pod that found room: each volume with its places."""
    volumes = (
        volume_answer("shop/orders-0", volume="pvc-7d1e", size_bytes=20 * GIB, places=(place("n1"),)),
        volume_answer(
            "shop/logs-0",
            volume="pvc-aaaa",
            copies=2,
            is_local=False,
            places=(place("n2", kind="stored"), place("n3", kind="stored")),
        ),
    )
    return explanation(
        name="full",
        state=state,
        cause="",
        text="The pod was let through, and its volumes have their disks.",
        change="",
        volumes=volumes,
        nodes=(),
    )


def decisions(count: int = 8) -> list[DecisionEntry]:
    """One a second, of all kinds by turns; the newest last."""
    kinds = ("filter", "place", "growth", "wake", "preempt", "term", "mode", "gate")
    return [
        DecisionEntry(
            serial=number + 1,
            time=f"2026-11-28T13:{number // 60 % 60:02}:{number % 60:02}Z",
            kind=kinds[number % len(kinds)],
            about=f"Pod shop/orders-{number}",
            decision="refused" if number % 3 == 0 else "allowed",
            reasons={"InsufficientStorage": 3} if number % 3 == 0 else {},
            text="n2/d1 lacks 12 GiB" if number % 3 == 0 else "",
            milliseconds=1.5,
        )
        for number in range(count)
    ]


def capacity(disks: Sequence[DiskView], **more: Any) -> Capacity:
    """Of the nodes of these disks; the first node is the one that may be lost."""
    nodes = []
    for name in dict.fromkeys(one.node for one in disks):
        own = [one for one in disks if one.node == name]
        taken = sum(one.planned_bytes + one.held_bytes + one.growth_bytes for one in own)
        nodes.append(
            NodeCapacity(
                node=name,
                is_schedulable=not any(one.closed for one in own),
                limit_bytes=sum(one.limit_bytes for one in own),
                used_bytes=sum(one.used_bytes for one in own),
                taken_bytes=taken,
                free_bytes=sum(one.free_bytes for one in own),
                largest_bytes=max(0, *(one.free_bytes for one in own)),
                copies=3 * len(own),
            )
        )
    free = sorted((one.largest_bytes for one in nodes), reverse=True)
    made = Capacity(
        time=NOW,
        totals=totals(disks),
        nodes=nodes,
        disks=disks,
        tags=(TagCapacity("disk", "ssd", 1, 375 * GIB, 100 * GIB, {"1": 100 * GIB, "2": 60 * GIB, "3": 0}),),
        largest_bytes={str(copies): free[copies - 1] if copies <= len(free) else 0 for copies in (1, 2, 3)},
        rebuilds=(Rebuild("pvc-7d1e", "shop/orders-0", 20 * GIB, 1, is_placeable=True),),
        survival=Survival(nodes[0].node, True, 3, 120 * GIB, (), (), 0),
    )
    return replace(made, **more)


def unsurvived() -> Capacity:
    """A cluster that would lose data with its fullest node."""
    lost = Survival("n1", False, 9, 430 * GIB, ("pvc-7d1e",), ("pvc-9a2f", "pvc-1b3c"), 120 * GIB)
    return capacity(troubled().disks, survival=lost, notes=("2 volumes have a setting of their own.",))


def large(nodes: int, disks: int) -> Overview:
    """So many nodes with so many disks each, from empty to over their limit; some wait."""
    made = [
        disk(f"node-{number:04}", f"d{index + 1}", used=(number * 37 + index * 91) % 390, planned=number % 3 * 4)
        for number in range(nodes)
        for index in range(disks)
    ]
    names = list(WAITS)
    waiting = [replace(waiting_pod(names[n % len(names)]), name=f"pod-{n}") for n in range(min(50, nodes))]
    return overview(made, waiting=waiting, more_waiting=max(0, nodes - 50))
