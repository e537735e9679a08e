"""Directed scenes for faults that random worlds seldom show. Each drives a world by hand, and has it judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tests.fakes import builders
from tests.places.judge import WorldJudge
from tests.places.process import ProcessLags
from tests.places.world import PlacesWorld, WorldBuild, WorldShape


def _choose(world: PlacesWorld, name: str, gib: float, node: str) -> None:
    """A pod asks, is let through, and its node is chosen; its claim is provisioned later, or never."""
    claim, pod = builders.claim(name, gib, "local"), builders.pod(name, name)
    world.api.write("claim", claim.key, claim)
    world.api.write("pod", pod.key, pod)

    def answer() -> None:
        leader = world.answering
        assert leader is not None
        assert [node] == list(leader.filter(pod, [node]))
        world.api.write("claim", claim.key, replace(claim, selected_node=node), "scheduler")

    world.timeline.after(0.5, answer)


def _provision(world: PlacesWorld, name: str, node: str) -> None:
    world.longhorn.provision(f"ns/{name}")
    world.timeline.after(1.0, lambda: world.longhorn.attach(f"pvc-uid-{name}", node))


def held_bytes(build: WorldBuild) -> WorldJudge:
    """All bytes are planned, and a volume that nobody asked for comes: Longhorn sees room where there is none."""
    world = PlacesWorld(1, WorldShape([[100]]), build)
    world.timeline.after(1.0, lambda: _choose(world, "a", 80, "n1"))
    world.timeline.after(3.0, lambda: world.restore(60, 1))
    return world.run(100.0)


def loaded_plans(build: WorldBuild) -> WorldJudge:
    """A plan stands where nobody would put it by now; then the leader dies before anything is placed."""
    world = PlacesWorld(1, WorldShape([[100, 150]]), build)
    world.reserve("n1", 1, 100)
    world.timeline.after(50.0, lambda: _choose(world, "a", 80, "n1"))
    world.timeline.after(55.0, lambda: world.reserve("n1", 1, 0))
    world.timeline.after(58.0, world.kill)
    return world.run(100.0)


def _displace(build: WorldBuild, provisioned_after: float) -> WorldJudge:
    """A copy fails, and the only bytes for another one are planned for somebody else. That one's volume comes so many
    seconds after the choice."""
    world = PlacesWorld(1, WorldShape([[100], [100], [100]]), build)
    world.timeline.after(1.0, lambda: world.restore(70, 2))

    def choose() -> None:
        (node,) = {"n1", "n2", "n3"} - {one.node for one in world.api.all("replica")}
        _choose(world, "a", 60, node)
        world.timeline.after(3.0, lambda: world.longhorn.fail(world.api.all("replica")[0].name))
        world.timeline.after(provisioned_after, lambda: _provision(world, "a", node))

    world.timeline.after(20.0, choose)
    return world.run(110.0)


def displaced_plan(build: WorldBuild) -> WorldJudge:
    """That plan goes after eight seconds, and its own copy must not come beside."""
    return _displace(build, provisioned_after=25.0)


def lasting_plan(build: WorldBuild) -> WorldJudge:
    """The volume in use must not wait until the gate opens."""
    return _displace(build, provisioned_after=80.0)


def late_write(build: WorldBuild) -> WorldJudge:
    """Writes are on their way when the leader stops, and arrive under the next one."""
    world = PlacesWorld(1, WorldShape([[100], [100], [100]], ProcessLags(slow_writes=1.0)), build)
    for _ in range(4):
        world.timeline.after(5.0, lambda: world.restore(10, 3))
    world.timeline.after(5.6, world.release)
    return world.run(40.0)


def second_copy(build: WorldBuild) -> WorldJudge:
    """A volume in use misses a copy for which there is no room: Longhorn must be free to try."""
    world = PlacesWorld(1, WorldShape([[100], [50]]), build)
    world.timeline.after(1.0, lambda: world.restore(70, 2))
    return world.run(60.0)


def leaderless(build: WorldBuild) -> WorldJudge:
    """Volumes come while nobody leads, and are all old by the clock when somebody does again."""
    world = PlacesWorld(1, WorldShape([[100], [100]]), build)
    world.timeline.after(5.0, lambda: world.black_out(38.0))
    for _ in range(3):
        world.timeline.after(6.0, lambda: world.restore(60, 1))
    return world.run(100.0)


def unasked_volume(build: WorldBuild) -> WorldJudge:
    """A volume that nobody asked for, and room for it."""
    world = PlacesWorld(1, WorldShape([[100]]), build)
    world.timeline.after(1.0, lambda: world.restore(20, 1))
    return world.run(200.0)


SCENES: Final[Mapping[str, Callable[[WorldBuild], WorldJudge]]] = {
    scene.__name__: scene
    for scene in (
        held_bytes,
        loaded_plans,
        displaced_plan,
        lasting_plan,
        late_write,
        second_copy,
        leaderless,
        unasked_volume,
    )
}
