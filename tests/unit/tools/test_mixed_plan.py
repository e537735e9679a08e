"""The workload of the mixed race: full nodes, all kinds, the same from the same seed."""

from __future__ import annotations

import pytest

from tests.e2e.mixed_plan import FILL_PCT, KINDS, MOST_DISKS, SHARED, make_plan


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pods_of_all_kinds_fill_the_disks_as_far_as_they_should(seed: int) -> None:
    plan = make_plan(200, seed)
    assert make_plan(200, seed) == plan != make_plan(200, seed + 1)
    assert FILL_PCT - 1 < 100 * plan.demand_gib / sum(map(sum, plan.disks_gib)) < FILL_PCT + 1
    assert {1, MOST_DISKS} == {min(map(len, plan.disks_gib)), max(map(len, plan.disks_gib))}
    assert set(KINDS) == {claim.kind.name for claim in plan.claims.values()}
    assert {1, 2, 3} <= {len(pod.claims) for pod in plan.pods}
    assert any(pod.ephemeral_gib for pod in plan.pods)
    shared = [pod.claims[0].name for pod in plan.pods if pod.claims and pod.claims[0].kind.name == SHARED]
    assert len(set(shared)) < len(shared)
