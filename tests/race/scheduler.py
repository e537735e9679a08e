"""kube-scheduler's part: it asks, decides, writes what it decided one object after the other, fails, and asks again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from controller.model.workload import Claim, Pod
from tests.race.driver import RaceAnswer
from tests.race.world import Action, RaceWorld, SchedulingRound


class RaceScheduler:
    """Any number of schedulers, since any two steps of theirs may come in any order."""

    def __init__(self, world: RaceWorld) -> None:
        self._world = world

    # Questions

    def askable(self) -> list[SchedulingRound]:
        """Rounds of pods that a scheduler may ask about now."""
        waiting = [one for one in self._world.pending() if not (one[0].is_gated or one[0].picked)]
        # Where several nodes are selected none passes, and nobody asks us.
        return [current for current, pod in waiting if pod.is_opted_in and len(self._pins(pod)) < 2]

    def _pins(self, pod: Pod) -> set[str]:
        """Nodes that unbound claims are bound to by their selected node."""
        claims = self._world.claims_of(pod)
        return {claim.selected_node for claim in claims if claim.selected_node and not claim.volume_name}

    def candidates(self, current: SchedulingRound, mask: int) -> list[str]:
        """The nodes that pass the other rules; every bit of `mask` that is 0 takes one away, but never all."""
        names = list(self._world.nodes)
        found = [name for index, name in enumerate(names) if mask & (1 << index)] or names
        pod = self._world.pods[current.key]
        return sorted(self._pins(pod)) or found

    def ask(self, current: SchedulingRound, candidates: Sequence[str]) -> RaceAnswer | None:
        """One cycle: the nominated node first, all of them if that does not pass."""
        pod = self._world.pods[current.key]
        if pod.nominated_node in candidates and len(candidates) > 1:
            answer = self._ask(current, pod, (pod.nominated_node,))
            if answer is None or answer.passed:
                return answer
        return self._ask(current, pod, candidates)

    def _ask(self, current: SchedulingRound, pod: Pod, candidates: Sequence[str]) -> RaceAnswer | None:
        world = self._world
        if current.was_asked:  # it comes back after a second at least, and watches are not that late
            world.deliver_all("pod", "claim", "pv")
        current.was_asked = True
        answer = world.driver.filter_pod(pod, candidates, world.read)
        current.offered, current.is_evident, current.is_refused = frozenset(), False, False
        if answer is None:
            world.log.append(f"  filter {pod.key} {list(candidates)}: error")
            return None
        world.log.append(f"  filter {pod.key} {list(candidates)}: {answer.decision} {list(answer.passed)}")
        world.told.answered(pod, answer)
        current.offered = frozenset(answer.passed)
        current.is_refused, current.is_evident = answer.is_refused, answer.is_chosen
        return answer

    # What follows from an answer

    def actions(self) -> list[Action]:
        found: list[Action] = []
        for current, pod in self._world.pending():
            if current.picked:
                found += self._steps(current, pod)
            elif current.offered and not current.is_gated:
                found += [
                    (f"{pod.key} goes to {name}", partial(self.pick, current, name)) for name in sorted(current.offered)
                ]
                found.append((f"the answer to {pod.key} is given up", current.give_up))
            elif not pod.is_opted_in and not current.is_gated:
                found += [
                    (f"{pod.key} goes to {name} unasked", partial(self.pick, current, name))
                    for name in sorted(self._pins(pod) or self._world.nodes)
                ]
        return found

    def pick(self, current: SchedulingRound, node: str) -> None:
        current.picked = node

    def _steps(self, current: SchedulingRound, pod: Pod) -> list[Action]:
        following = self.next_step(current, pod)
        found = [following] if following is not None else []
        found.append((f"the scheduler restarts before {pod.key} is bound", current.forget))
        found.append((f"the binding of {pod.key} fails", partial(self._fail, current, pod)))
        return found

    def next_step(self, current: SchedulingRound, pod: Pod) -> Action | None:
        """The next write of the binding cycle; None while it waits for provisioning."""
        world, at = self._world, current.picked
        unbound = [claim for claim in world.claims_of(pod) if not claim.volume_name]
        if unbound and pod.nominated_node != at and not current.is_evident:
            return f"{pod.key} is nominated for {at}", partial(self._nominate, current, pod)
        for claim in unbound:
            if claim.selected_node != at and claim.class_name != "immediate":
                return f"{claim.key} gets selected node {at}", partial(self._select, current, claim)
        if unbound or len(world.claims_of(pod)) < len(pod.volumes):
            return None
        return f"{pod.key} is bound to {at}", partial(self._bind, current, pod)

    def steps_under_way(self) -> list[Action]:
        """The next write of every binding cycle that can go on."""
        steps = [self.next_step(current, pod) for current, pod in self._world.pending() if current.picked]
        return [step for step in steps if step is not None]

    def _nominate(self, current: SchedulingRound, pod: Pod) -> None:
        current.is_evident = True
        self._world.write("pod", pod.key, replace(pod, nominated_node=current.picked))

    def _select(self, current: SchedulingRound, claim: Claim) -> None:
        """Bindings of other users of the claim that wait with another node fail, since none overwrites the choice."""
        for pod in self._world.users_of(claim):
            other = self._world.rounds[pod.key]
            if other.picked not in ("", current.picked) and not pod.node_name:
                other.forget()
        current.is_evident = True
        self._world.write("claim", claim.key, replace(claim, selected_node=current.picked))

    def _bind(self, current: SchedulingRound, pod: Pod) -> None:
        self._world.write("pod", pod.key, replace(pod, node_name=current.picked, nominated_node=""))
        current.give_up()

    def _fail(self, current: SchedulingRound, pod: Pod) -> None:
        current.forget()
        if pod.nominated_node:
            self._world.write("pod", pod.key, replace(pod, nominated_node=""))

    # Preemption

    def nominations(self) -> list[Action]:
        """Nominations of pods that were refused, with or without our word, and their end."""
        found: list[Action] = []
        for current, pod in self._world.pending():
            if current.picked or current.is_gated or not pod.is_opted_in:
                continue
            if pod.nominated_node:
                found.append((f"{pod.key} is nominated no more", partial(self._put_nomination, pod, "")))
            elif current.is_refused:
                found.append((f"pods are evicted for {pod.key}", partial(self._preempt, pod)))
                found += [
                    (f"{pod.key} is nominated for {name} unasked", partial(self._put_nomination, pod, name))
                    for name in self._world.nodes
                ]
        return found

    def _put_nomination(self, pod: Pod, node: str) -> None:
        self._world.write("pod", pod.key, replace(pod, nominated_node=node))

    def _preempt(self, pod: Pod) -> None:
        kept = sorted(self._world.driver.nodes_with_room(pod, list(self._world.nodes), self._world.read))
        self._world.log.append(f"  preempt {pod.key}: {kept}")
        if kept:
            self._put_nomination(pod, kept[0])
