"""Level-triggered promises: the present choices in the cluster are derived again from the facts at every event.

Nothing here remembers an event (what has to be remembered stands in `Memory`). Whatever order watches deliver in,
whatever was missed, the same facts lead to the same promises, for a follower and for a new leader alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from controller.allocator.promises.assume import Assuming
from controller.allocator.promises.choice import Choice, choice_of
from controller.allocator.promises.claims import CLAIM, ClaimPromises
from controller.allocator.promises.growths import Growths
from controller.allocator.promises.holds import Holds
from controller.allocator.promises.journal import SCHEDULING_WAIT, Journal
from controller.allocator.promises.ledger import Ledger
from controller.allocator.promises.memory import Memory
from controller.allocator.promises.own import OWN, own_copies, roaming_places
from controller.allocator.promises.promise import NOWHERE, Kind, OneOf, Places, Promise, Roams, Source, State, Verb
from controller.allocator.promises.users import Users
from controller.allocator.world.suitable import takes_all_now, takes_now
from controller.allocator.world.world import World
from controller.model.longhorn import LOCALITY_BEST_EFFORT
from controller.model.workload import Claim, Pod
from controller.rules.demand import VolumeDemand, demand_of_claim, demand_of_volume
from controller.settings import LiveSettings


class Settler:
    """Brings the ledger's assumptions in line with the world. Threads: none of its own; the allocator's lock guards
    it."""

    def __init__(
        self,
        world: World,
        ledger: Ledger,
        memory: Memory,
        journal: Journal,
        live: Callable[[], LiveSettings] = LiveSettings,
    ) -> None:
        self._world, self._ledger, self._memory, self._journal = world, ledger, memory, journal
        self._assuming = Assuming(world, ledger, memory, journal)
        self.claims = ClaimPromises(world, ledger, memory, journal, self._assuming, live)
        self.holds = Holds(world, ledger, memory)
        self.users = Users(world, ledger, memory)
        self.growths = Growths(world, ledger, memory, journal, self.claims.cap_bytes)

    # Choices

    def choice(self, pod: Pod) -> Choice | None:
        """The present choice for the pod."""
        memory = self._memory
        return choice_of(
            pod,
            self._world.claims_of(pod),
            self._world.pv,
            is_used_by_others=self.claims.is_shared,
            is_superseded=lambda claim: (
                memory.is_superseded(pod.uid, claim.uid, claim.selected_node)
                or not self.claims.is_chosen_for(claim, pod)
            ),
            is_old_nomination=lambda name: memory.is_old_nomination(pod.uid, name),
        )

    def home_of(self, promise: Promise) -> str:
        """The node that is chosen for the promise's pod; "" where none is known."""
        pod = self._world.pods.get(promise.claimant)
        choice = self.choice(pod) if pod is not None else None
        claim = self._world.claim_by_uid(promise.volume)
        return choice.node if choice is not None else claim.selected_node if claim is not None else ""

    def pod_changed(self, pod: Pod, now: float) -> None:
        """The pod came or changed: a claim that it uses may now be shared, or no longer."""
        for claim in self._world.claims_of(pod):
            has_own = self._ledger.get(claim.uid, CLAIM) is not None
            if claim.selected_node and (has_own or not claim.volume_name):
                self.claims.settle(claim, now)
        self.settle_pod(pod, now)
        self._settle_users(pod, now)

    def _settle_users(self, pod: Pod, now: float) -> None:
        """Other pods of its claims, to whose nodes a volume may go now."""
        for claim in self._world.claims_of(pod):
            for other in self.users.next_of(claim) if self.claims.is_used_by_others(claim, pod) else ():
                if other.uid != pod.uid:
                    self.settle_pod(other, now)

    def pod_refused(self, pod: Pod, now: float) -> None:
        """Nobody is about to bind the pod, whatever its claims say."""
        self._memory.refused.add(pod.uid)
        self.settle_own(pod, now)

    def settle_own(self, pod: Pod, now: float) -> None:
        """What the pod's claims are promised by themselves, after a change of whose word their node is."""
        for claim in self._world.claims_of(pod):
            if claim.selected_node and self._ledger.get(claim.uid, CLAIM) is not None:
                self.claims.settle(claim, now)

    def settle_pod(self, pod: Pod, now: float) -> None:
        if pod.is_over:
            self.pod_gone(pod, now)
            return
        if pod.node_name:  # perhaps by hand, while it waited to be let through
            self.holds.release(pod.uid, Source.KEPT_ROOM, Source.WAKE_PLAN)
        choice = self.choice(pod)
        if choice is not None and choice.is_unclear:
            return  # until the other volume is seen
        demands, unknown = self._assuming.demands(self._world.claims_of(pod))
        self.holds.settle_nomination(pod, demands, now)
        records = {promise.volume: promise for promise in self._ledger.of_claimant(pod.uid)}
        for promise in records.values():
            self._ledger.bind(promise)
        stands = choice is not None and choice.is_bound
        was_offered = choice is not None and choice.node in self._memory.offered(pod.uid)
        falls_back = self._memory.falls_back(pod.uid)
        if falls_back is None and choice is not None:  # the leader before answered it
            falls_back = not takes_all_now(self._world, choice.node, demands)
        for demand in demands:
            record = records.pop(demand.key, None)
            if choice is not None and choice.is_bound and not self.users.may_follow(pod, demand, choice.node):
                if record is not None:
                    self._assuming.drop(Verb.FORGET, record, now)
            elif choice is not None and _speaks_of(choice, demand, record, was_offered=was_offered):
                stands = True
                until = self.claims.until(self._world.claim_by_uid(demand.key), pod, choice.node, now)
                self._assuming.assume(pod.uid, demand, choice.node, now, falls_back=bool(falls_back), until=until)
            elif record is not None:
                self._withdraw(record, demand, now)
        for record in records.values():
            if record.volume not in unknown:
                self._assuming.drop(self._assuming.verb_for(record), record, now)
            elif choice is None and record.state is State.ASSUMED:
                self._doubt(self._given_back(record), now)
        if stands and not any(one.state is State.HELD for one in self._ledger.of_claimant(pod.uid)):
            waited = self._memory.answers.chosen(pod.uid, now)
            if waited is not None:
                self._journal.record(SCHEDULING_WAIT, waited, True)

    def _withdraw(self, record: Promise, demand: VolumeDemand, now: float) -> None:
        """No choice stands for that volume: an assumption goes, in doubt after a while, and a hold stays until its end,
        as far as it still stands for something. While what was given by name may come to nothing it counts less, and
        ends not."""
        record = self._given_back(record.as_asked)
        places: Places = record.places
        may_lapse = bool(self._world.allocated.lapsing(demand.volume))
        if record.kind is Kind.ROAMING or not isinstance(places, OneOf):
            still_asks = demand.is_roaming if record.kind is Kind.ROAMING else not demand.placed_nodes
            if may_lapse and demand.is_roaming and isinstance(places, Roams):  # for those that were given no disk
                places = roaming_places(self._world, demand, demand.copies)
        elif places.nodes is None:
            still_asks = True
            places = replace(places, excluded=demand.home_nodes)
        else:
            left = places.nodes - demand.home_nodes
            still_asks, places = bool(left), places if left == places.nodes else OneOf(left)
        if not (still_asks or may_lapse):
            self._assuming.drop(Verb.CONFIRM, record, now)
            return
        size = max(record.size_bytes, demand.size_bytes)  # it may grow
        asked = record.places if may_lapse else None
        found = replace(record, places=places if still_asks else NOWHERE, size_bytes=size, asked=asked)
        if record.state is State.ASSUMED:
            self._doubt(found, now)
        elif found != self._ledger.get(record.volume, record.claimant):
            self._ledger.put(Verb.HOLD, found)

    def _given_back(self, record: Promise) -> Promise:
        """With all that our last answer had offered, where a choice that stands no more has narrowed that: it may have
        been an older one, seen late."""
        again = self._memory.offered(record.claimant) if record.state is State.ASSUMED else None
        return replace(record, places=OneOf(record.nodes | again)) if again and record.nodes else record

    def _doubt(self, record: Promise, now: float) -> None:
        """A choice may be under way that our stores do not show yet, so the promise stays until it would be seen."""
        if record.state is State.ASSUMED:
            held = replace(record, state=State.HELD, source=Source.FILTER, since=now, chance_at=None, until=None)
            self._ledger.put(Verb.HOLD, held)
        self._memory.answers.doubted(record.claimant, now)

    # Claims, volumes, nodes

    def settle_claim(self, key: str, now: float) -> None:
        """After a change of a claim, its volume or its replicas: the claim's own promise, and those of its pods, the
        ones that are gone included."""
        claim = self._world.claims.get(key)
        if claim is not None:
            self.claims.settle(claim, now)
            self._settle_doubts(claim, now)
        for pod in self._world.pods_of_claim(key):
            self.settle_pod(pod, now)

    def settle_growth(self, name: str, now: float, *, ends_hold: bool = False) -> None:
        """How large the volume may become, and what that means for what it is promised."""
        if self.growths.settle(name, now, ends_hold=ends_hold):
            for claim in self._world.claims_of_volume(name):
                self.settle_claim(claim.key, now)

    def settle_volume(self, name: str, now: float) -> None:
        """What Longhorn has to place of that volume by itself."""
        demand = self._demand_of_volume(name)
        keys = {name, *(claim.uid for claim in self._world.claims_of_volume(name))}
        former = {
            (one.volume, one.claimant): one
            for key in keys
            for one in self._ledger.of_volume(key)
            if one.source is Source.LONGHORN
        }
        yielded = set[str]()
        for own in own_copies(self._world, demand) if demand is not None else ():
            claimant = OWN + own.node
            yielded.add(claimant)
            record = former.pop((own.demand.key, claimant), None)
            if self._memory.is_spent(own.demand.key, claimant, own.situation):
                continue
            if record is not None and record.situation != own.situation:  # other copies: their time starts again
                self._ledger.drop(Verb.FORGET, record.volume, claimant)
            self._assuming.put(claimant, own.demand, own.kind, own.places, now, own.situation, now)
        for record in former.values():
            self._ledger.drop(Verb.FORGET, record.volume, record.claimant)
        for key in keys:
            for claimant in self._memory.spent_claimants(key):
                if claimant.startswith(OWN) and claimant not in yielded:
                    self._memory.forget_spent(key, claimant)

    def settle_all(self, now: float) -> None:
        """Every volume's growth, every claim, and what Longhorn has to place."""
        for name in self._world.growing:
            self.growths.settle(name, now)
        for key in self._world.claims:
            self.settle_claim(key, now)
        for name in self._world.volumes_to_place():
            self.settle_volume(name, now)

    def is_asked_for(self, name: str) -> bool:
        """Whether anybody but Longhorn is promised room for that volume, wherever."""
        keys = {name, *(claim.uid for claim in self._world.claims_of_volume(name))}
        promises = (one for key in keys for one in self._ledger.of_volume(key))
        return any(one.source is not Source.LONGHORN and one.kind is not Kind.GROWTH for one in promises)

    def _demand_of_volume(self, name: str) -> VolumeDemand | None:
        for claim in self._world.claims_of_volume(name):
            found = demand_of_claim(claim, self._world, self._world.settings)
            if isinstance(found, VolumeDemand) and found.volume == name:
                return found
        volume = self._world.volume(name)
        return None if volume is None else demand_of_volume(volume, self._world, self._world.settings)

    def settle_node(self, name: str, now: float) -> None:
        """A node's disks changed: what was chosen for it may fall back to any node, or come back; and a growth may be
        possible that was not, or no more."""
        node = self._world.nodes.get(name)
        if node is not None and self._world.growing:
            here = {one.volume for disk in node.disks for one in self._world.replicas_on(disk.uuid)}
            for volume in here & self._world.growing:
                self.settle_growth(volume, now)
        for key in self._assuming.take_possible(name):
            found = self._world.claim_by_uid(key)
            if found is not None:
                self.settle_claim(found.key, now)
            self.settle_volume(self._world.volume_of(key), now)
        for promise in self._ledger.placed_by_choice(name):
            facts = self._world.volumes.get(self._world.volume_of(promise.volume))
            if facts is not None and facts.data_locality != LOCALITY_BEST_EFFORT:
                continue  # what is strict waits for its node; many may, and what they ask for takes long to work out
            is_bound = isinstance(promise.places, OneOf)
            demand = self._world.demand_of(promise.volume)
            if demand is None:
                demand = self._demand_of_volume(promise.volume)
            if demand is None or demand.facts.data_locality != LOCALITY_BEST_EFFORT:
                continue
            if takes_now(self._world, name, demand) is not is_bound:
                claim = self._world.claim_by_uid(promise.volume)
                if claim is not None:
                    self.settle_claim(claim.key, now)
                self.settle_volume(demand.volume, now)

    def settle_candidates(self, names: Collection[str], now: float) -> None:
        """These nodes became ones that Longhorn looks at, or none: what roams may go to their zones, or no more."""
        for volume in set[str]().union(*map(self._world.placed.volumes_at, names)):
            claims = self._world.claims_of_volume(volume)
            if any(self._ledger.roams(key) for key in (volume, *(claim.uid for claim in claims))):
                for claim in claims:
                    self.settle_claim(claim.key, now)
                self.settle_volume(volume, now)

    def claim_gone(self, claim: Claim, now: float) -> None:
        for record in self._ledger.of_volume(claim.uid):
            self._assuming.drop(Verb.FORGET, record, now)
        self._memory.forget_spent(claim.uid)
        self._assuming.forget(claim.uid)
        self._memory.unproven_until.pop(claim.uid, None)

    def node_came(self, node: str, now: float) -> None:
        """Pods, claims and volumes that chose a node before it could be seen."""
        for claim in list(self._world.claims.values()):
            if claim.selected_node == node:
                self.settle_claim(claim.key, now)
        for pod in list(self._world.pods.values()):
            if node in (pod.node_name, pod.nominated_node):
                self.settle_pod(pod, now)
        for name in {replica.volume for replica in self._world.unplaced.values()}:
            volume = self._world.volumes.get(name)
            replicas = self._world.replicas_of(name).values()
            if volume is not None and node in (volume.node_id, *(entry.hard_node_affinity for entry in replicas)):
                self.settle_volume(name, now)

    def node_gone(self, node: str, now: float) -> None:
        for record in self._ledger.placed_by_choice(node):
            if not record.nodes:  # it had fallen back from there
                self._assuming.drop(Verb.FORGET, record, now)
        for record in self._ledger.on_node(node):
            left = record.nodes - {node}
            if left:
                verb = Verb.HOLD if record.state is State.HELD else Verb.ASSUME
                self._ledger.put(verb, replace(record, places=OneOf(left)))
            else:
                self._assuming.drop(Verb.FORGET, record, now)

    def pod_gone(self, pod: Pod, now: float) -> None:
        """The pod left, finished, or goes without having been bound: its claims stand on their own from now on.

        Where a choice may be under way that our stores do not show yet (kinds are watched apart, and kube-scheduler
        writes the selected node late), the promise is kept as a hold in doubt, until that is seen or would have been.
        """
        for record in self._ledger.of_claimant(pod.uid) if pod.node_name else ():
            if record.state is State.HELD:  # chosen, and what its claim was bound to was not seen
                self._ledger.put(Verb.HOLD, replace(record, situation=pod.node_name))
        self._outlive(self._ledger.of_claimant(pod.uid), now, was_bound=bool(pod.node_name))
        if not self._ledger.of_claimant(pod.uid):
            self.end_answer(pod.uid, now, "pod_gone")
        self._memory.forget_pod(pod.uid, now)
        for record in self._ledger.of_claimant(pod.uid):
            self._ledger.bind(record)
        self.holds.release(pod.uid)
        for claim in self._world.claims_of(pod):
            self._memory.forget_spent(claim.uid, pod.uid)
            self.claims.settle(claim, now)
        self._settle_users(pod, now)

    def _outlive(self, records: Iterable[Promise], now: float, *, was_bound: bool = True) -> None:
        """Promises of pods that are gone: each stays while its claim, as we see it, says nothing of a choice that may
        have been made, or nothing of what became of it, and as far as its volume still asks for room."""
        for record in records:
            claim = self._world.claim_by_uid(record.volume)
            if claim is not None and claim.volume_name:
                is_told = not (was_bound and self._may_be_up(record))
            else:
                is_told = claim is None or bool(claim.selected_node)
            if is_told:
                self._assuming.drop(Verb.FORGET, record, now)
                continue
            self._doubt(record, now)
            demand = self._world.demand_of(record.volume)
            held = self._ledger.get(record.volume, record.claimant)
            if held is None or demand is None:
                continue
            if self._world.allocated.lapsing(demand.volume) and demand.placed_nodes:  # nobody moves it any more
                self._ledger.put(Verb.HOLD, replace(held, places=NOWHERE, asked=held.as_asked.places))
            else:
                self._withdraw(held, demand, now)

    def _may_be_up(self, record: Promise) -> bool:
        """Whether the volume that was chosen for a node may have been attached and placed there, and our stores show
        neither yet: pods, volumes and replicas are watched apart."""
        if record.situation is None:
            return False  # chosen by nobody
        demand = self._world.demand_of(record.volume)
        if demand is None or self._world.allocated.lapsing(demand.volume):
            return True
        return not (demand.facts.node_id or demand.placed_nodes)

    def _settle_doubts(self, claim: Claim, now: float) -> None:
        """What is held for pods that are gone, after a change of the claim, its volume or its replicas."""
        doubted = [
            one
            for one in self._ledger.of_volume(claim.uid)
            if one.source in (Source.FILTER, Source.FORMER) and one.claimant not in self._world.pods
        ]
        self._outlive(doubted, now)
        for uid in {one.claimant for one in doubted}:
            if not self._ledger.of_claimant(uid):
                self.end_answer(uid, now, "pod_gone")

    # Ends

    def end_answer(self, pod_uid: str, now: float, how: str) -> None:
        waited = self._memory.answers.ended(pod_uid, now)
        if waited is not None:
            self._journal.record(SCHEDULING_WAIT, waited, False)
            self._journal.counters[f"holds_ended_{how}"] += 1

    def end_holds(self, pod_uid: str, verb: Verb, now: float, how: str) -> bool:
        """End what the pod holds without having been chosen; whether there was anything."""
        self.end_answer(pod_uid, now, how)
        held = [record for record in self._ledger.of_claimant(pod_uid) if record.state is State.HELD]
        for record in held:
            self._assuming.drop(verb, record, now)
        return bool(held)

    def expire(self, promise: Promise, now: float) -> None:
        """Its time is over, and it is not made again in the same situation."""
        self._memory.spend(promise)
        self._assuming.drop(Verb.EXPIRE, promise, now)


def _speaks_of(choice: Choice, demand: VolumeDemand, record: Promise | None, *, was_offered: bool) -> bool:
    """Whether the choice is one of that volume's node: by itself, or because it narrows a hold that names the node, or
    did (`was_offered`) until an older choice that was told late narrowed it to another one.

    The leader before us may have answered anew since a claim was bound, and preemption nominates on its own: what it
    may have offered is narrowed by nothing but what the scheduler writes after its choice.
    """
    if choice.is_bound:
        return True
    if record is not None and record.source is Source.FORMER and not (choice.is_current and choice.about):
        return False
    if demand.key in choice.about:
        return True
    if record is not None and isinstance(record.places, Roams) and record.places.fell_from not in ("", choice.node):
        return False  # it was offered that other node alone
    return record is not None and (was_offered or record.places.includes(choice.node))
