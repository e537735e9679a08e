"""What a simulation knows of the cluster: the leader over its facts, and raw objects that the leader never reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from controller.allocator.plans.plan import Hold, Plan
from controller.errors import MalformedRequestError
from controller.model.reader import Raw, list_at, mapping_at, read
from controller.model.versions import VERSION_SETTING
from controller.model.workload import FINISHED, Claim, Pod, claim_facts, class_facts
from controller.placement.plan_entries import SHARDS, shard_name
from controller.placement.plan_entries import read as read_entries
from controller.plan.complaints import InputError, Notes
from controller.plan.input import Document, decode_document, given_settings, settings_of
from controller.plan.objects import claim_to_come, flat, settle_cordons
from controller.settings import LEADER, LONGHORN, LiveSettings, ProcessSettings, live_settings
from controller.simulation.cluster import SimulatedCluster
from controller.simulation.kube_rules import NodePlaces, NodeRules, PodRules

IMMEDIATE: Final = "Immediate"
_PLANS: Final = {shard_name(index) for index in range(SHARDS)}
_CONFIG_MAP: Final = ProcessSettings().config_map
_CORE: Final = {"Pod", "Node"}


@dataclass(slots=True)
class SavedCluster:
    """Objects of a cluster, raw, with where they are from and what is missing of them. `origin`: for people."""

    objects: list[object]
    origin: str
    remarks: list[str] = field(default_factory=list)


class State:
    """One simulated cluster. Threads: one. I/O: none."""

    def __init__(self, source: SavedCluster, now_utc: datetime, notes: Notes) -> None:
        document = decode_document({"objects": source.objects}, now_utc, notes)
        self.notes, self.document = notes, document
        self.pods = dict[str, dict[str, Any]]()  # by namespace/name, that are not finished
        self.places = NodePlaces()
        self.modes = dict[str, str]()  # of StorageClasses
        self.longhorn_namespaces = set[str]()
        self.plans, self.holds = list[Plan](), list[Hold]()
        self.lost = dict[str, str]()  # volumes, with the node that had their last copy
        self._config: Mapping[str, str] | None = None
        shards = self._read(source.objects)
        if not shards:
            notes.remark("the leader's plans are not among the objects: what it has promised and not placed is missing")
        self.live = self._live(document)
        self.cluster = SimulatedCluster(document.objects, document.settings, self.live, now_utc, self.plans, self.holds)
        if not self.places.nodes:
            notes.remark("there is no Kubernetes Node among the objects: Longhorn's nodes are taken for all")
            self.places.nodes = {name: NodeRules(name, {}, (), None) for name in self.cluster.world.nodes}
        self._bind_standing()

    def _read(self, objects: list[object]) -> int:
        """Reads what the leader does not follow; the number of ConfigMaps with plans."""
        shards, entries = 0, list[Plan | Hold]()
        for _, raw in flat(objects):
            kind, meta = raw["kind"], raw.get("metadata")
            name = meta.get("name") if isinstance(meta, Mapping) else None
            if not isinstance(meta, Mapping) or not isinstance(name, str):
                continue
            if kind == "ConfigMap" and name in _PLANS:
                shards += 1
                entries += read_entries(raw).entries.values()
            elif kind == "ConfigMap" and name == _CONFIG_MAP:
                self._config = {key: str(value) for key, value in mapping_at(raw, "", "data").items()}
            elif kind == "StorageClass":
                self.modes[name] = str(raw.get("volumeBindingMode") or IMMEDIATE)
            elif raw["apiVersion"] == "v1" and kind in _CORE:
                self._read_core(kind, name, raw)
            elif kind == "Node" and meta.get("namespace"):
                self.longhorn_namespaces.add(str(meta["namespace"]))
        self.plans += [one for one in entries if isinstance(one, Plan)]
        self.holds += [one for one in entries if isinstance(one, Hold)]
        return shards

    def _read_core(self, kind: str, name: str, raw: dict[str, Any]) -> None:
        if kind == "Pod":
            if mapping_at(raw, "", "status").get("phase") not in FINISHED:
                self.pods[f"{raw['metadata'].get('namespace') or 'default'}/{name}"] = raw
            return
        found = read(NodeRules.of, raw)
        if isinstance(found, MalformedRequestError):
            self.notes.remark(f"{InputError(f'Node {name}', found.field, found.problem)}; no pod goes there")
        else:
            self.places.nodes[name] = found

    def _live(self, document: Document) -> LiveSettings:
        if self._config is None:
            return LiveSettings(enabled=True)
        live, _ = live_settings(self._config, document.objects.settings, LiveSettings(enabled=True))
        if live.placement != LEADER or live.allocation_authority != LONGHORN:
            self.notes.remark("copies are placed as the leader would; by its settings somebody else places them")
        if not live.enabled or live.bypass:
            self.notes.remark("the extender is switched off by its settings; the answer is as if it were on")
        return replace(live, enabled=True, bypass=False, placement=LEADER, allocation_authority=LONGHORN)

    def change_settings(self, given: Mapping[str, str]) -> None:
        """Raises InputError for a name that nothing is decided by, and a value that does not parse."""
        if not given:
            return
        objects, values = self.document.objects, given_settings(dict(given), Notes())  # misspelt is no remark
        version = values.get(VERSION_SETTING, objects.settings.get(VERSION_SETTING))
        settings = settings_of(objects, values, version, self.notes)
        self.cluster.leader.configure(self.live, settings)
        nodes = dict(objects.by_kind["node"])
        settle_cordons(objects, settings, self.notes)
        for name, facts in objects.by_kind["node"].items():
            if facts != nodes[name]:
                self.cluster.put_node(facts)

    def _bind_standing(self) -> None:
        for key, raw in self.pods.items():
            node = mapping_at(raw, "", "spec").get("nodeName")
            rules = read(PodRules.of, raw) if node else None
            if isinstance(rules, MalformedRequestError):
                self.notes.remark(f"{InputError(f'Pod {key}', rules.field, rules.problem)}; its requests count as none")
            elif rules is not None:
                self.places.bind(key, rules, str(node))

    # Claims

    def mode_of(self, claim: Claim) -> str:
        """The binding mode of the claim's class; "" where there is no class."""
        found = self.cluster.world.storage_class(claim.class_name)
        return self.modes.get(found.name, IMMEDIATE) if found is not None else ""

    def add_claim(self, raw: Mapping[str, Any]) -> Claim | None:
        """The claim that comes; None if one of that name is there. InputError names claim and field."""
        meta = mapping_at(raw, "", "metadata")
        key = f"{meta.get('namespace') or 'default'}/{meta.get('name')}"
        if key in self.cluster.world.claims:
            return None
        facts = read(claim_facts, raw)
        if isinstance(facts, MalformedRequestError):
            raise InputError(f"PersistentVolumeClaim {key}", facts.field, facts.problem)
        facts = replace(facts, namespace=facts.namespace or "default", uid=facts.uid or _uid(key))
        self.cluster.leader.observe_claim(facts.key, facts)
        return facts

    def add_class(self, raw: Mapping[str, Any]) -> None:
        """The class comes, or takes the place of the one of its name. InputError names class and field."""
        name = str(raw["metadata"]["name"])
        facts = read(class_facts, raw)
        if isinstance(facts, MalformedRequestError):
            raise InputError(f"StorageClass {name}", facts.field, facts.problem)
        self.modes[name] = str(raw.get("volumeBindingMode") or IMMEDIATE)
        self.cluster.leader.observe_class(name, facts)

    def add_ephemeral(self, raw: Raw, pod: Pod) -> list[str]:
        """Makes the claims of the pod's generic ephemeral volumes; what is wrong with those that cannot be made."""
        problems = list[str]()
        for volume in list_at(mapping_at(raw, "", "spec"), "spec", "volumes"):
            if not isinstance(volume, Mapping) or volume.get("ephemeral") is None:
                continue
            key = f"{pod.key}-{volume.get('name') or ''}"
            if key in self.cluster.world.claims:
                continue
            claim = read(partial(claim_to_come, pod), volume)
            if isinstance(claim, MalformedRequestError):
                problems.append(f"ephemeral volume {volume.get('name')}: {claim}")
            else:
                self.cluster.leader.observe_claim(key, replace(claim, uid=_uid(f"{key}/{pod.uid}")))
        return problems

    def nodes_needed(self, names: Iterable[str], flag: str) -> None:
        """InputError for a node that nobody knows."""
        for name in names:
            if name not in self.cluster.world.nodes and name not in self.places.nodes:
                raise InputError("", flag, f"there is no node {name}, neither Longhorn's nor Kubernetes'")

    def volumes_of(self, pod: Pod) -> Iterator[tuple[Claim, str]]:
        """The pod's claims, with the names of their Longhorn volumes, "" for those of others."""
        world = self.cluster.world
        for claim in world.claims_of(pod):
            name = world.volume_of(claim.uid)
            yield claim, name if name in world.volumes else ""


def _uid(key: str) -> str:
    """For a claim that is not there yet; the volume is named after it."""
    return "new-" + key.replace("/", "-")


def counted(texts: Iterable[str]) -> str:
    """The texts with how often each occurs, the most frequent first."""
    return ", ".join(f"{count} {text}" for text, count in Counter(texts).most_common())
