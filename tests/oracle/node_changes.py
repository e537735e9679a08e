"""What may be wrong with nodes, or be asked of them: one function each, which changes a world at random."""

from __future__ import annotations

from typing import Final

from tests.longhorn_rules.objects import LONG_AGO, Raw, longhorn, replica
from tests.oracle.worlds import SOURCE, TAGS, ZONES, OracleWorld, set_condition

REGIONS: Final = ("r1", "r2", "")
V2_LABEL: Final = "node.longhorn.io/disable-v2-data-engine"


def some_nodes(world: OracleWorld, probability: float = 0.4) -> list[Raw]:
    return world.dice.some(world.nodes, probability)


def unready_nodes(world: OracleWorld) -> None:
    for node in some_nodes(world):
        set_condition(node["status"], "Ready", world.dice.one(("False", "Unknown", None)))


def unschedulable_nodes(world: OracleWorld) -> None:
    for node in some_nodes(world):
        set_condition(node["status"], "Schedulable", world.dice.one(("False", "Unknown", None)))


def closed_nodes(world: OracleWorld) -> None:
    for node in some_nodes(world):
        if world.dice.chance(0.7):
            node["spec"]["allowScheduling"] = False
        else:
            node["spec"].pop("allowScheduling", None)


def evicting_nodes(world: OracleWorld) -> None:
    """Which nobody asks of a node; it goes with scheduling that is not allowed, most of the time."""
    for node in some_nodes(world):
        node["spec"]["evictionRequested"] = True
        node["spec"]["allowScheduling"] = world.dice.chance(0.3)


def deleted_nodes(world: OracleWorld) -> None:
    for node in some_nodes(world):
        node["metadata"]["deletionTimestamp"] = LONG_AGO


def second_engine(world: OracleWorld) -> None:
    """A volume of the v2 engine; Kubernetes nodes may be missing or say that they do not run it."""
    dice = world.dice
    world.volume["spec"]["dataEngine"] = "v2"
    for raw in world.replicas:
        raw["spec"]["dataEngine"] = "v2"
    for _, _, spec, status in world.disks():
        if dice.chance(0.85):
            spec["diskType"] = "block"
            status["filesystemType"] = ""
    if dice.chance(0.6):
        for node in world.nodes:
            if dice.chance(0.85):
                world.others.append(_kube_node(world, node["metadata"]["name"]))


def _kube_node(world: OracleWorld, name: str) -> Raw:
    labels = {"kubernetes.io/hostname": name}
    if world.dice.chance(0.3):
        labels[V2_LABEL] = world.dice.one(("true", "true", "false", "True", ""))
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}, "status": {}}


def first_engine_label(world: OracleWorld) -> None:
    """The label of the v2 engine on the nodes of a v1 volume."""
    world.others += [_kube_node(world, node["metadata"]["name"]) for node in some_nodes(world, 0.8)]


def zones(world: OracleWorld) -> None:
    for node in world.nodes:
        node["status"]["zone"] = world.dice.one(ZONES)
        node["status"]["region"] = world.dice.one(REGIONS)
        if not node["status"]["zone"] and world.dice.chance(0.5):
            del node["status"]["zone"]


def topology(world: OracleWorld) -> None:
    dice, terms = world.dice, []
    for _ in range(dice.one((1, 1, 1, 2))):
        term = {}
        if dice.chance(0.7):
            term["zone"] = dice.one(ZONES)
        if dice.chance(0.5):
            term["region"] = dice.one((*REGIONS, "r3"))
        terms.append(term)
    world.volume["spec"]["topologyRequirement"] = terms


def hard_affinity(world: OracleWorld) -> None:
    names = [node["metadata"]["name"] for node in world.nodes]
    for raw in world.new:
        if world.dice.chance(0.8):
            raw["spec"]["hardNodeAffinity"] = world.dice.one(names) if world.dice.chance(0.9) else "nowhere"


def locality(world: OracleWorld) -> None:
    """A volume attached somewhere; best-effort ones are to have a replica there."""
    dice, spec = world.dice, world.volume["spec"]
    spec["dataLocality"] = dice.one(("best-effort",) * 5 + ("strict-local", "disabled"))
    spec["nodeID"] = dice.one([*(node["metadata"]["name"] for node in world.nodes)]) if dice.chance(0.95) else ""
    if spec["dataLocality"] == "strict-local":
        spec["numberOfReplicas"] = 1  # Longhorn's webhook takes no other
    if spec["dataLocality"] == "strict-local" and dice.chance(0.7):
        for raw in world.new:
            raw["spec"]["hardNodeAffinity"] = spec["nodeID"]


def linked_clone(world: OracleWorld) -> None:
    """A volume that shares its blocks with the replicas of another."""
    dice, spec = world.dice, world.volume["spec"]
    spec["cloneMode"] = dice.one(("linked-clone",) * 8 + ("full-copy", ""))
    spec["dataSource"] = dice.one((f"vol://{SOURCE}", f"snap://{SOURCE}/one"))
    names: list[str] = []
    for _, _, _, status in world.disks():
        if dice.chance(0.6):
            names.append(f"{SOURCE}-r-{len(names) + 1}")
            raw = replica(names[-1], status["diskUUID"], size=world.size, of=SOURCE)
            world.others.append(raw)
            if dice.chance(0.3):
                spoil_source(world, raw)
    for raw in world.new:
        if dice.chance(0.3):
            raw["spec"]["linkedCloneSrcReplicaName"] = dice.one([*names, f"{SOURCE}-r-0"])


def spoil_source(world: OracleWorld, source: Raw) -> None:
    """So that a linked clone cannot use it."""
    spoilt = (("healthyAt", ""), ("failedAt", LONG_AGO), ("nodeID", ""), ("diskID", ""))
    field, value = world.dice.one((*spoilt, ("evictionRequested", True), ("evictionRequested", True)))
    source["spec"][field] = value


def engine_images(world: OracleWorld) -> None:
    dice = world.dice
    world.volume["spec"]["image"] = "engine:one"
    for name in dice.some(("one", "one", "two"), 0.8)[:2]:
        nodes = {node["metadata"]["name"]: dice.chance(0.7) for node in world.nodes if dice.chance(0.9)}
        state = dice.one(("deployed", "deployed", "deploying", "ready", "incompatible", "error"))
        if not any(entry["metadata"]["name"] == f"ei-{name}" for entry in world.others):
            status = {"state": state, "nodeDeploymentMap": nodes}
            world.others.append(longhorn("EngineImage", f"ei-{name}", spec={"image": f"engine:{name}"}, status=status))
    for raw in world.new:
        if dice.chance(0.4):
            raw["spec"]["image"] = dice.one(("engine:one", "engine:two"))


def instance_managers(world: OracleWorld) -> None:
    dice = world.dice
    if dice.chance(0.75):
        world.settings["default-instance-manager-image"] = "manager:one"
    for node in world.nodes:
        for image in dice.some(("one", "two"), 0.65):
            name = node["metadata"]["name"]
            spec = {
                "nodeID": name,
                "type": "aio",
                "image": f"manager:{image}",
                "dataEngine": dice.one(("v1",) * 4 + ("v2",)),
            }
            if world.volume["spec"]["dataEngine"] == "v2" and dice.chance(0.7):
                spec["dataEngine"] = "v2"
            state = dice.one(("running", "running", "running", "stopped", "error", "starting", "unknown"))
            world.others.append(
                longhorn("InstanceManager", f"im-{name}-{image}", spec=spec, status={"currentState": state})
            )


def node_tags(world: OracleWorld) -> None:
    dice = world.dice
    for node in world.nodes:
        node["spec"]["tags"] = dice.some(TAGS, 0.6)
    if dice.chance(0.6):
        world.volume["spec"]["nodeSelector"] = dice.some(TAGS, 0.4)
    if dice.chance(0.4):
        world.settings["allow-empty-node-selector-volume"] = dice.one(("false", "false", "true"))


def backing_image(world: OracleWorld) -> None:
    dice = world.dice
    world.volume["spec"]["backingImage"] = "image"
    spec: Raw = {}
    for name in dice.some(("nodeSelector", "diskSelector"), 0.7):
        spec[name] = dice.some(TAGS, 0.4)
    world.others.append(longhorn("BackingImage", "image", spec=spec, status={"realSize": world.size // 2}))
    for node in world.nodes:
        node["spec"]["tags"] = dice.some(TAGS, 0.7)
        for disk in node["spec"]["disks"].values():
            disk["tags"] = dice.some(TAGS, 0.7)
    for kind in dice.some(("node", "disk"), 0.2):
        world.settings[f"allow-empty-{kind}-selector-volume"] = "false"
