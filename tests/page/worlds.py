"""What the page is shown with: a small cluster as in the README, one of 500 nodes, and names that mean harm."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from controller.views.documents import (
    DecisionEntry,
    DiskView,
    Explanation,
    Overview,
    Problem,
    TakenView,
    WaitingPod,
)
from tests.fakes import view_documents as documents
from tests.fakes.view_documents import GIB

MARKUP: Final = "<script>alert(1)</script><img src=x onerror=alert(2)>"
RIGHT_TO_LEFT: Final = "\u202egnp.\u05d0\u05d1\u05d2 \u0627\u0644\u0639\u0631\u0628\u064a\u0629"
LONG: Final = "n" * 253
HARMFUL: Final = (MARKUP, RIGHT_TO_LEFT, LONG)


def small() -> Overview:
    """Four nodes with two disks each, nearly full here and over-provisioned there; two pods wait."""
    disks = []
    for node, rows in {
        "worker-1": ((310, 40, 0, 0), (180, 20, 50, 0)),
        "worker-2": ((365, 0, 0, 10), (120, 0, 0, 25)),
        "worker-3": ((392, 0, 0, 0), (240, 60, 0, 0)),
        "worker-4": ((90, 0, 40, 0), (30, 0, 0, 0)),
    }.items():
        for name, (used, planned, held, growth) in zip(("nvme0", "sata0"), rows, strict=True):
            one = documents.disk(node, name, used=used, planned=planned, held=held, growth=growth)
            one = replace(one, tags=("nvme", "fast") if name == "nvme0" else ("sata",))
            disks.append(_doubled(one) if name == "sata0" else one)
    disks[5] = replace(disks[5], closed="below 25 % available")
    plans = (
        TakenView("pvc-7d1e", "shop/orders-0", "worker-1", "plan", 40 * GIB, 12.0),
        TakenView("pvc-9a2f", "shop/orders-1", "worker-1", "answer", 50 * GIB, 3.2),
        TakenView("pvc-1b3c", "bank/ledger", "worker-2", "growth", 25 * GIB, 75.0),
    )
    return documents.overview(
        disks,
        problems=(
            Problem(
                "warning",
                "disks",
                "worker-3/nvme0 is 17 GiB over its limit.",
                "Move a replica away from it, or raise the over-provisioning.",
            ),
        ),
        waiting=(
            _waiting("full", "worker-4/nvme0 lacks 55 GiB, and all other disks with the tag nvme lack more"),
            _waiting("wrong-tag", "no disk has the tag mirrored that the class gold asks for"),
        ),
        plans=plans,
        held_replicas=("pvc-7d1e-r-0a1b2c3d",),
        waiting_replicas={"no-room": 2},
    )


def _waiting(name: str, text: str) -> WaitingPod:
    return replace(documents.waiting_pod(name), text=text)


def _doubled(disk: DiskView) -> DiskView:
    """The disk with an over-provisioning of 200 %."""
    limit = disk.limit_bytes * 2
    return replace(disk, over_percent=200, limit_bytes=limit, free_bytes=disk.free_bytes + disk.limit_bytes)


def crowded(nodes: int = 500, disks: int = 4) -> Overview:
    """So many nodes, with figures as uneven as real ones, so that nothing compresses better than it would there."""
    chance = random.Random(1)
    made = []
    for node in range(nodes):
        for index in range(disks):
            one = documents.disk(f"node-{node:03}.example", f"disk-{index}", gib=chance.randrange(400, 8000))
            used, planned, held, growth = (
                int(one.limit_bytes * share)
                for share in (chance.betavariate(3, 1.5), *(max(0.0, chance.gauss(-0.05, 0.05)) for _ in range(3)))
            )
            made.append(
                replace(
                    one,
                    uuid=str(UUID(int=chance.getrandbits(128))),
                    available_bytes=one.maximum_bytes - used // 2 - chance.randrange(GIB),
                    used_bytes=used,
                    planned_bytes=planned,
                    held_bytes=held,
                    growth_bytes=growth,
                    free_bytes=one.limit_bytes - used - planned - held - growth,
                    closed="the node is cordoned" if node % 50 == 7 else "",
                )
            )
    plans = tuple(
        TakenView(
            f"pvc-{UUID(int=chance.getrandbits(128))}", f"team-{n % 9}/data-{n}", made[n * 7].node, kind, n * GIB, n
        )
        for n, kind in enumerate(("plan", "answer", "growth", "plan") * 25, 1)
    )
    large = documents.large(nodes, 1)
    return documents.overview(made, waiting=large.waiting, more_waiting=large.more_waiting, plans=plans, more_plans=120)


def busy_day(count: int = 2_000) -> list[DecisionEntry]:
    """As many decisions as the leader keeps, of many pods."""
    chance = random.Random(2)
    return [
        replace(
            entry,
            about=f"Pod team-{chance.randrange(20)}/app-{chance.getrandbits(32):08x}-{chance.randrange(9)}",
            text=f"{chance.randrange(500)} of 500 nodes passed",
            reasons={"InsufficientStorage": chance.randrange(1, 300), "DiskTagsNotFulfilled": chance.randrange(1, 300)},
            milliseconds=chance.uniform(1, 40),
        )
        for entry in story(count)
    ]


def story(count: int = 200) -> list[DecisionEntry]:
    """Decisions of an ordinary day; the newest last."""
    entries = [
        ("filter", "Pod shop/orders-1", "offered", {"InsufficientStorage": 1}, "3 of 4 nodes passed", 1.2),
        ("filter", "Pod shop/full", "refused", {"InsufficientStorage": 4}, "0 of 4 nodes passed", 2.1),
        ("place", "Replica pvc-7d1e-r-0a1b2c3d", "placed", {}, "on worker-1/nvme0", 3.4),
        ("growth", "PersistentVolumeClaim bank/ledger", "admitted", {}, "volume pvc-1b3c to 25.0 GiB", 0.8),
        ("wake", "Pod shop/full", "woken", {}, "worker-4/sata0 has 40 GiB more", 0.0),
        ("preempt", "Pod bank/batch-7", "none", {}, "no node has room without its victims", 1.9),
    ]
    return [
        DecisionEntry(n + 1, f"2026-11-28T13:{(n // 60 + 56) % 60:02}:{n % 60:02}Z", *entries[n % len(entries)])
        for n in range(count)
    ]


def hostile() -> Overview:
    """A cluster in which every name is one of those above."""
    names = HARMFUL
    disks = [
        replace(documents.disk(f"{name} {n}", name, used=100 + n), tags=names, closed=name)
        for n, name in enumerate(names)
    ]
    return documents.overview(
        disks,
        identity=MARKUP,
        holder=f"{LONG}_1",
        node=RIGHT_TO_LEFT,
        version=MARKUP,
        longhorn=LONG,
        mode=MARKUP,
        gate=LONG,
        wiring=dict.fromkeys(names, MARKUP),
        problems=[Problem(name, name, name, name) for name in names],
        waiting=[WaitingPod(name, name, name, name, documents.EARLIER, "", name, {name: 1}, name) for name in names],
        plans=[TakenView(name, f"{name}/{name}", name, name, GIB, 1.0) for name in names],
        held_replicas=names,
        left_replicas=names,
        waiting_replicas=dict.fromkeys(names, 1),
        workers=dict.fromkeys(names, MARKUP),
    )


def hostile_decisions() -> Sequence[DecisionEntry]:
    return [
        DecisionEntry(n, name, name, f"Pod {name}/{name}", name, {name: 1}, name, 1.0)
        for n, name in enumerate(HARMFUL, 1)
    ]


def hostile_explanation() -> Explanation:
    return documents.explanation(
        kind=MARKUP,
        namespace=LONG,
        state=MARKUP,
        since=MARKUP,
        cause=LONG,
        text=RIGHT_TO_LEFT,
        change=MARKUP,
        volumes=[
            documents.volume_answer(
                name, volume=name, reason=name, text=name, places=(documents.place(name, why=name),)
            )
            for name in HARMFUL
        ],
        nodes=[
            documents.node_answer(
                name, reason=name, text=name, disk=name, holders=(documents.holder(name, until=name),)
            )
            for name in HARMFUL
        ],
    )
