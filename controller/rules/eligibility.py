"""Whether one node or one disk is eligible for a replica by Longhorn's rules, as pure functions on facts.

The rules and their arithmetic are those of Longhorn's replica scheduler (`scheduler/replica_scheduler.go`): signed
64-bit sums that wrap around, 64-bit floats, truncation toward zero, strict `>` for the minimal available space and `<=`
for over-provisioning.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from controller.model.longhorn import Disk, DiskNeeds, EngineImage, InstanceManager, LonghornNode, Replica, SpacePolicy
from controller.model.quantity import bytes_text
from controller.model.workload import KubeNode
from controller.rules.reasons import Reason, Rejection

EXT_LIMIT_BYTES: Final = 16 * 1024**4  # a v1 replica is one sparse file: it must be smaller than this on ext*
XFS_LIMIT_BYTES: Final = 8 * 1024**6 - 1
_INT64_MOST: Final = 2**63 - 1
_INT64_LEAST: Final = -(2**63)
_NO_IMAGES: Final[Mapping[str, int]] = {}


def wrapped(value: int) -> int:
    """Return `value` as a signed 64-bit integer that overflowed silently."""
    return value if _INT64_LEAST <= value <= _INT64_MOST else (value - _INT64_LEAST) % 2**64 + _INT64_LEAST


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """What is left of a disk that accepts replicas. `free_bytes`: by over-provisioning; negative if it is overdrawn."""

    name: str
    uuid: str
    type: str
    filesystem: str
    tags: frozenset[str]
    limit_bytes: int
    free_bytes: int
    written_limit_bytes: int  # the bytes that are copied to a new replica have to stay below this
    kind: Hashable  # equal for disks that suit the same volumes, room aside, whatever their node
    beyond_bytes: int = 0  # by which what is available and not reserved exceeds the limit


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What a Longhorn node can take, plans and holds aside; nothing of any volume if there is a `rejection`."""

    name: str
    tags: frozenset[str]
    rejection: Rejection | None
    disks: tuple[DiskRoom, ...]
    space_bytes: int  # of the disks that take replicas, without what is reserved; 0 when the node is rejected
    left_bytes: int  # what no replica takes of that, by over-provisioning
    left_share: float  # the same as a share of `space_bytes`, between 0 and 1
    plain_disks: tuple[DiskRoom, ...] = ()  # those that take a new volume without selectors, room aside
    over: tuple[tuple[str, int], ...] = ()  # its disks over their limit, whether they take replicas or not, by how much


@dataclass(frozen=True, slots=True)
class Engines:
    """The engine images and instance managers on the nodes. None: such objects are not known, and the rule is off."""

    images: Mapping[str, EngineImage] | None = None  # by image reference
    managers: Mapping[str, tuple[InstanceManager, ...]] | None = None  # by node
    manager_image: str = ""  # setting default-instance-manager-image; "": any serves

    @classmethod
    def of(
        cls, images: Iterable[EngineImage] | None, managers: Iterable[InstanceManager] | None, manager_image: str = ""
    ) -> Engines:
        by_node: dict[str, tuple[InstanceManager, ...]] = {}
        for manager in managers or ():
            by_node[manager.node] = (*by_node.get(manager.node, ()), manager)
        return cls(
            images=None if images is None else {image.image: image for image in images},
            managers=None if managers is None else by_node,
            manager_image=manager_image,
        )


NO_ENGINES: Final = Engines()


def provisioning_limit(disk: Disk, space: SpacePolicy) -> int:
    """Return the bytes that replicas on `disk` may sum up to; negative if more is reserved than there is. A product
    beyond 64 bits has no defined integer in Go: the disk takes nothing then."""
    product = float(wrapped(disk.maximum_bytes - disk.reserved_bytes)) * float(space.over_provisioning_pct) / 100
    return int(product) if -(2.0**63) <= product < 2.0**63 else _INT64_LEAST


def minimal_available(disk: Disk, space: SpacePolicy) -> int:
    """Return the bytes than which more has to stay available on `disk`."""
    product = float(disk.maximum_bytes) * float(space.minimal_available_pct) / 100
    return int(product) if product < 2.0**63 else _INT64_MOST


def observed_scheduled(disk: Disk, replicas: Iterable[Replica], images: Mapping[str, int] = _NO_IMAGES) -> int:
    """Return the scheduled bytes as the cluster shows them: the disk's figure, and what it lacks of `replicas` and of
    backing `images`, bytes by name. A Replica object has its disk seconds before the Node's figures list it."""
    listed = disk.scheduled_replicas
    extra = 0
    for replica in replicas:
        counted = listed.get(replica.name, 0)
        if replica.size_bytes > counted:
            extra += replica.size_bytes - counted
    extra += sum(max(0, size - disk.scheduled_images.get(name, 0)) for name, size in images.items())
    return disk.scheduled_bytes + extra


def unlisted_bytes(disk: Disk, replicas: Iterable[Replica]) -> int:
    """Return the bytes of those replicas that the disk's figure does not list at all."""
    return sum(one.size_bytes for one in replicas if one.name not in disk.scheduled_replicas)


# Nodes


def check_node(node: LonghornNode, *, must_be_ready: bool = True) -> Rejection | None:
    """Return why `node` takes no replica of any volume, or None. A backing image does not ask for condition Ready."""
    if node.deleting:
        return Rejection(Reason.NODE_DELETING, f"{node.name}: Longhorn node is being deleted")
    if must_be_ready and not node.ready:
        return Rejection(Reason.NODE_NOT_READY, f"{node.name}: {node.not_ready}")
    if not node.schedulable:
        return Rejection(Reason.NODE_UNSCHEDULABLE, f"{node.name}: {node.not_schedulable}")
    if not node.allow_scheduling:
        return Rejection(Reason.NODE_UNSCHEDULABLE, f"{node.name}: spec.allowScheduling is false")
    return None


def check_v2(name: str, needs: DiskNeeds, kube_nodes: Mapping[str, KubeNode] | None) -> Rejection | None:
    """Return why that node takes no replica of a v2 volume, or None. `kube_nodes` None: Nodes of Kubernetes are not
    known, and the rule is off."""
    if kube_nodes is None or needs.data_engine != "v2":
        return None
    kube_node = kube_nodes.get(name)
    if kube_node is None:
        return Rejection(Reason.V2_DISABLED, f"{name}: there is no such Kubernetes node")
    if kube_node.disables_v2:
        return Rejection(Reason.V2_DISABLED, f"{name}: a label of the Kubernetes node disables the v2 data engine")
    return None


def check_topology(node: LonghornNode, needs: DiskNeeds) -> Rejection | None:
    """Return why `node` matches none of the volume's topology terms, or None; without terms every node does."""
    terms = needs.topology
    if not terms or any(one.zone in ("", node.zone) and one.region in ("", node.region) for one in terms):
        return None
    wanted = ", ".join(f"zone {term.zone!r} region {term.region!r}" for term in terms)
    text = f"{node.name}: zone {node.zone!r}, region {node.region!r} match none of {wanted}"
    return Rejection(Reason.TOPOLOGY, text)


def check_engine(name: str, needs: DiskNeeds, engines: Engines) -> Rejection | None:
    """Return why that node cannot run a replica, or None: no instance manager of the data engine runs, or, for v1, the
    engine image is not ready there. While `needs.engine_image` is empty it is not known, and any image serves."""
    engine = needs.data_engine
    if engines.managers is not None:
        of_image = engines.manager_image if engine == "v1" else ""
        if not any(_runs(manager, engine, of_image) for manager in engines.managers.get(name, ())):
            return Rejection(Reason.ENGINE_NOT_READY, f"{name}: no instance manager for {engine} volumes is running")
    if engine != "v1" or engines.images is None:
        return None
    wanted = needs.engine_image
    images = [engines.images.get(wanted)] if wanted else engines.images.values()
    if any(image is not None and image.is_ready_on(name) for image in images):
        return None
    return Rejection(Reason.ENGINE_NOT_READY, f"{name}: engine image {wanted!r} is not ready there")


def _runs(manager: InstanceManager, data_engine: str, image: str) -> bool:
    is_of_engine = (manager.type, manager.data_engine) == ("aio", data_engine)
    return is_of_engine and manager.is_running and image in ("", manager.image)


def _has_tags(tags: frozenset[str], selector: tuple[str, ...], allow_empty: bool) -> bool:
    """Whether the tags have the whole selector, exactly. An empty one takes tagged ones only where that is allowed."""
    if not selector:
        return allow_empty or not tags
    return all(tag in tags for tag in selector)


def check_node_tags(tags: frozenset[str], needs: DiskNeeds, space: SpacePolicy) -> bool:
    """Whether a node with those tags suits the volume's selector, and its backing image's."""
    if not _has_tags(tags, needs.node_selector, space.allow_empty_node_selector):
        return False
    return needs.image is None or _has_tags(tags, needs.image.node_selector, space.allow_empty_node_selector)


def node_tags_rejection(node: LonghornNode, needs: DiskNeeds, space: SpacePolicy) -> Rejection | None:
    """Return why the node's tags do not suit the volume, or None."""
    if check_node_tags(node.tags, needs, space):
        return None
    return Rejection(Reason.NODE_TAGS, f"{node.name}: {tags_text(node.tags, needs, is_node=True)}")


def check_node_for(
    node: LonghornNode,
    needs: DiskNeeds,
    space: SpacePolicy,
    *,
    engines: Engines = NO_ENGINES,
    kube_nodes: Mapping[str, KubeNode] | None = None,
    source_nodes: Collection[str] | None = None,
    hard_node_affinity: str = "",
    with_tags: bool = True,
) -> Rejection | None:
    """Return why `node` is no candidate for a replica with these needs, whatever its disks and the volume's other
    replicas; or None. `source_nodes`: the nodes of a linked clone's healthy sources, None for any other volume.
    `with_tags` False leaves the tags out, as Longhorn does in the last step of its search."""
    rejection = check_node(node) or check_v2(node.name, needs, kube_nodes)
    if rejection is not None:
        return rejection
    if source_nodes is not None and node.name not in source_nodes:
        return Rejection(Reason.LINKED_CLONE, f"{node.name}: has no healthy source replica")
    if hard_node_affinity and hard_node_affinity != node.name:
        return Rejection(Reason.HARD_AFFINITY, f"{node.name}: the replica has to go to {hard_node_affinity}")
    rejection = check_topology(node, needs) or check_engine(node.name, needs, engines)
    return rejection or (node_tags_rejection(node, needs, space) if with_tags else None)


# Disks


def check_disk_tags(tags: frozenset[str], needs: DiskNeeds, space: SpacePolicy) -> bool:
    """Whether a disk with those tags suits the volume's selector, and its backing image's."""
    if not _has_tags(tags, needs.disk_selector, space.allow_empty_disk_selector):
        return False
    return needs.image is None or _has_tags(tags, needs.image.disk_selector, space.allow_empty_disk_selector)


def tags_text(tags: frozenset[str], needs: DiskNeeds, *, is_node: bool) -> str:
    """For a person: the tags there are, and those that are asked for."""
    wanted = {"the volume": needs.node_selector if is_node else needs.disk_selector}
    if needs.image is not None:
        wanted["its backing image"] = needs.image.node_selector if is_node else needs.image.disk_selector
    asked = [f"{who} asks for {_named(selector)}" for who, selector in wanted.items() if selector]
    return "; ".join([f"has the tags {_named(sorted(tags))}" if tags else "has no tags", *asked])


def _named(tags: Iterable[str]) -> str:
    return ", ".join(tag or "''" for tag in tags)


def check_disk_state(disk: Disk, *, must_be_ready: bool = False, has_space: bool = False) -> Rejection | None:
    """Return why the disk takes no replica at all, room aside; or None. Only a failed replica that comes back asks for
    the condition Ready, and whether a disk that is not schedulable under pressure `has_space`."""
    if not disk.allow_scheduling:
        problem = "spec.allowScheduling is false"
    elif disk.eviction_requested:
        problem = "its eviction is requested"
    elif must_be_ready and not disk.ready:
        problem = disk.not_ready
    elif not disk.schedulable and not has_space:
        problem = disk.not_schedulable
    elif not disk.uuid:
        problem = "it has no UUID yet"
    else:
        return None
    return Rejection(Reason.DISK_UNSCHEDULABLE, f"{disk.name}: {problem}")


def check_disk_open(disk: Disk, *, is_repeated: bool, sources: Collection[str] | None) -> Rejection | None:
    """Return why no replica may lie on the disk, whatever its state; or None. `is_repeated`: another disk of its node
    has its UUID. `sources`: the disks of a linked clone's healthy sources, None for any other volume."""
    if is_repeated:
        return repeated(disk)
    if sources is not None and disk.uuid not in sources:
        return Rejection(Reason.LINKED_CLONE, f"{disk.name}: has no healthy source replica")
    return None


def repeated(disk: Disk) -> Rejection:
    """Return the rejection of a disk whose UUID another one of its node has."""
    return Rejection(Reason.DISK_NOT_FOUND, f"{disk.name}: another disk of the node has the same UUID {disk.uuid}")


def disk_type_of(data_engine: str) -> str:
    """Return the type of disk on which replicas of that data engine lie."""
    return "block" if data_engine == "v2" else "filesystem"


def file_system_limit(data_engine: str, filesystem: str) -> int | None:
    """Return the bytes below which a volume has to stay on that file system; None for no limit."""
    if data_engine != "v1":
        return None
    if filesystem.startswith("ext"):
        return EXT_LIMIT_BYTES
    return XFS_LIMIT_BYTES if filesystem == "xfs" else None


def check_file_system(disk: Disk, data_engine: str, size_bytes: int) -> Rejection | None:
    """Return why a volume of that size is too large for the disk's file system, or None."""
    limit = file_system_limit(data_engine, disk.filesystem)
    if limit is None or size_bytes < limit:
        return None
    text = f"{bytes_text(size_bytes)} is not below {bytes_text(limit)}, the limit of {disk.filesystem}"
    return Rejection(Reason.INCOMPATIBLE_SIZE, f"{disk.name}: {text}")


def check_disk_kind(disk: Disk | DiskRoom, needs: DiskNeeds, size_bytes: int, space: SpacePolicy) -> Reason | None:
    """Return why that kind of disk never takes such a volume, by its type, file system or tags; or None."""
    if disk.type != disk_type_of(needs.data_engine):
        return Reason.DISK_TYPE
    limit = file_system_limit(needs.data_engine, disk.filesystem)
    if limit is not None and size_bytes >= limit:
        return Reason.INCOMPATIBLE_SIZE
    return None if check_disk_tags(disk.tags, needs, space) else Reason.DISK_TAGS


def check_disk_space(
    disk: Disk, size_bytes: int, required_bytes: int, scheduled_bytes: int, space: SpacePolicy
) -> Rejection | None:
    """Return why the disk has no room for a replica of `size_bytes`, of which `required_bytes` are copied; or None."""
    if not disk.shows_space:
        return no_space(disk)
    minimum = minimal_available(disk, space)
    if wrapped(disk.available_bytes - required_bytes) <= minimum:
        left = f"{bytes_text(disk.available_bytes)} available"
        left += f" - {bytes_text(required_bytes)} to copy" if required_bytes else ""
        text = f"{disk.name}: {left} is not above {minimum_text(disk, minimum, space)}"
        return Rejection(Reason.TOO_FULL, text, minimum + 1 - (disk.available_bytes - required_bytes))
    return check_limit(disk, size_bytes, scheduled_bytes, wrapped(size_bytes + scheduled_bytes), space)


def check_limit(
    disk: Disk, more_bytes: int, scheduled_bytes: int, total_bytes: int, space: SpacePolicy, what: str = ""
) -> Rejection | None:
    """Return why `total_bytes`, the sum of the other two, exceed the disk's limit; or None. `what` are `more_bytes`."""
    limit = provisioning_limit(disk, space)
    if total_bytes <= limit:
        return None
    sums = f"{bytes_text(more_bytes)}{what} + {bytes_text(scheduled_bytes)} scheduled"
    text = f"{disk.name}: {sums} {limit_text(disk, total_bytes - limit, limit, space)}"
    return Rejection(Reason.INSUFFICIENT_STORAGE, text, total_bytes - limit)


def no_space(disk: Disk) -> Rejection:
    """Return the rejection of a disk that shows no space."""
    text = f"{disk.name}: {bytes_text(disk.available_bytes)} available of {bytes_text(disk.maximum_bytes)}"
    return Rejection(Reason.TOO_FULL, text)


def limit_text(disk: Disk, excess_bytes: int, limit_bytes: int, space: SpacePolicy) -> str:
    """Return by how much something exceeds the disk's limit, and how that is computed."""
    text = f"exceeds the disk's limit of {bytes_text(limit_bytes)} by {bytes_text(excess_bytes)}"
    if space.over_provisioning_pct == 100 and not disk.reserved_bytes:
        return text
    size = f"{bytes_text(disk.maximum_bytes)} - {bytes_text(disk.reserved_bytes)} reserved"
    if space.over_provisioning_pct != 100:
        size = f"{space.over_provisioning_pct} % of ({size})"
    return f"{text} (limit: {size})"


def minimum_text(disk: Disk, minimum_bytes: int, space: SpacePolicy) -> str:
    """Return how much has to stay available on the disk, and how that is computed."""
    share = f"{space.minimal_available_pct} % of {bytes_text(disk.maximum_bytes)}"
    return f"the required minimum of {bytes_text(minimum_bytes)} ({share})"


def check_disk_for(
    disk: Disk, needs: DiskNeeds, size_bytes: int, required_bytes: int, scheduled_bytes: int, space: SpacePolicy
) -> Rejection | None:
    """Return why the disk is no candidate for such a replica, anti-affinity aside; or None. `scheduled_bytes`: the
    disk's figure with whatever the caller adds."""
    rejection = check_disk_state(disk)
    if rejection is not None and disk.is_under_pressure and check_disk_state(disk, has_space=True) is None:
        limit = check_disk_space(disk, size_bytes, required_bytes, scheduled_bytes, space)  # Longhorn gives no figures
        if limit is None:
            return rejection
        return replace(limit, reason=rejection.reason, message=f"{limit.message}; {disk.not_schedulable}")
    if rejection is not None:
        return rejection
    reason = check_disk_kind(disk, needs, size_bytes, space)
    if reason is Reason.DISK_TYPE:
        wanted = f"{needs.data_engine} volumes need a {disk_type_of(needs.data_engine)} disk"
        return Rejection(reason, f"{disk.name}: is a {disk.type} disk; {wanted}")
    if reason is Reason.DISK_TAGS:
        return Rejection(reason, f"{disk.name}: {tags_text(disk.tags, needs, is_node=False)}")
    return check_file_system(disk, needs.data_engine, size_bytes) or check_disk_space(
        disk, size_bytes, required_bytes, scheduled_bytes, space
    )


# Rooms: the same rules, with what does not depend on the volume worked out beforehand


def disk_takes(room: DiskRoom, needs: DiskNeeds, size_bytes: int, required_bytes: int, space: SpacePolicy) -> bool:
    """Whether a replica of `size_bytes`, of which `required_bytes` are copied, may lie on that disk; room by
    over-provisioning (`free_bytes`) is left to the packing."""
    return check_disk_kind(room, needs, size_bytes, space) is None and required_bytes < room.written_limit_bytes


def room_of_disk(
    disk: Disk,
    replicas: Iterable[Replica],
    space: SpacePolicy,
    kind_of_node: tuple[Hashable, ...] = (),
    images: Mapping[str, int] = _NO_IMAGES,
) -> DiskRoom:
    """Return the disk's room beside `replicas` and `images`. `kind_of_node`: what volumes may ask of the disk's
    node."""
    limit = provisioning_limit(disk, space)
    return DiskRoom(
        name=disk.name,
        uuid=disk.uuid,
        type=disk.type,
        filesystem=disk.filesystem,
        tags=disk.tags,
        limit_bytes=limit,
        free_bytes=limit - observed_scheduled(disk, replicas, images),
        written_limit_bytes=disk.available_bytes - minimal_available(disk, space) if disk.shows_space else _INT64_LEAST,
        kind=(disk.type, disk.filesystem, disk.tags, *kind_of_node),
        beyond_bytes=disk.spare_bytes - limit,
    )
