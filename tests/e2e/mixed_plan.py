"""The mixed race's workload: pods of all kinds, and nodes of odd disks that they fill. Pure; a seed repeats it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from tests.cluster.client import Object
from tests.e2e import workloads

FILL_PCT: Final = 92
PODS_PER_NODE: Final = 10
LEAST_NODES: Final = 4
MOST_DISKS: Final = 4
SIZES_GIB: Final = (3, 37)
SHARED, EPHEMERAL = "shared", "ephemeral"


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """A storage class: where its volumes live, in how many copies."""

    name: str
    locality: str
    copies: int


KINDS: Final = {
    kind.name: kind
    for kind in (
        WorkloadKind("one", "best-effort", 1),
        WorkloadKind("strict", "strict-local", 1),
        WorkloadKind("roam", "disabled", 1),
        WorkloadKind("roam2", "disabled", 2),
        WorkloadKind("roam3", "disabled", 3),
        WorkloadKind("two", "best-effort", 2),
        WorkloadKind("three", "best-effort", 3),
        WorkloadKind(SHARED, "disabled", 2),
    )
}
# What a pod is made of, and how many of a hundred are made so.
SHAPES: Final[tuple[tuple[int, tuple[str, ...]], ...]] = (
    (28, ("one",)),
    (12, ("strict",)),
    (10, ("roam",)),
    (5, ("roam2",)),
    (5, ("roam3",)),
    (5, ("two",)),
    (5, ("three",)),
    (8, (SHARED,)),
    (5, ("one", "one")),
    (3, ("one", "one", "one")),
    (3, ("one", "strict")),
    (3, ("roam", "one")),
    (2, ("two", "one", "roam")),
    (6, (EPHEMERAL,)),
)


@dataclass(frozen=True, slots=True)
class PlannedClaim:
    name: str
    kind: WorkloadKind
    gib: int

    @property
    def bytes_gib(self) -> int:
        """Of all copies."""
        return self.gib * self.kind.copies


@dataclass(frozen=True, slots=True)
class PlannedPod:
    """`ephemeral_gib`: the size of its generic ephemeral volume, of kind `one`; 0: it has none."""

    name: str
    claims: tuple[PlannedClaim, ...]
    ephemeral_gib: int = 0


@dataclass(frozen=True, slots=True)
class MixedPlan:
    """`disks_gib`: of each node."""

    pods: tuple[PlannedPod, ...]
    disks_gib: tuple[tuple[int, ...], ...]

    @property
    def claims(self) -> dict[str, PlannedClaim]:
        """Each once, however many pods share it."""
        return {claim.name: claim for pod in self.pods for claim in pod.claims}

    @property
    def demand_gib(self) -> int:
        return sum(claim.bytes_gib for claim in self.claims.values()) + sum(pod.ephemeral_gib for pod in self.pods)


def make_plan(pods: int, seed: int) -> MixedPlan:
    dice = random.Random(seed)
    weights = [weight for weight, _ in SHAPES]
    made: list[PlannedPod] = []
    sharing: list[PlannedClaim] = []
    for number in range(pods):
        (shape,) = dice.choices([names for _, names in SHAPES], weights)
        name = f"p{number:03}"
        if shape == (EPHEMERAL,):
            made.append(PlannedPod(name, (), dice.randint(*SIZES_GIB)))
            continue
        if shape == (SHARED,) and sharing and dice.random() < 0.6:
            made.append(PlannedPod(name, (sharing[-1],)))
            continue
        claims = tuple(
            PlannedClaim(f"{name}-{index}", KINDS[kind], dice.randint(*SIZES_GIB)) for index, kind in enumerate(shape)
        )
        sharing += claims if shape == (SHARED,) else ()
        made.append(PlannedPod(name, claims))
    demand = MixedPlan(tuple(made), ()).demand_gib
    return MixedPlan(tuple(made), make_disks(max(LEAST_NODES, pods // PODS_PER_NODE), demand, dice))


def make_disks(nodes: int, demand_gib: int, dice: random.Random) -> tuple[tuple[int, ...], ...]:
    """Disks of odd sizes that the demand fills to `FILL_PCT`."""
    shares = [[dice.uniform(0.5, 1.5) for _ in range(dice.randint(1, MOST_DISKS))] for _ in range(nodes)]
    unit = demand_gib * 100 / FILL_PCT / sum(map(sum, shares))
    return tuple(tuple(max(SIZES_GIB[1] + 1, round(share * unit)) for share in disks) for disks in shares)


def claim_object(claim: PlannedClaim, class_name: str) -> Object:
    made = workloads.claim(claim.name, class_name, claim.gib)
    if claim.kind.name == SHARED:
        made["spec"]["accessModes"] = ["ReadWriteMany"]
    return made


def ephemeral_volume(pod: PlannedPod, class_name: str) -> Object:
    """An entry of the pod's volumes."""
    template = {"spec": workloads.claim("", class_name, pod.ephemeral_gib)["spec"]}
    return {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
