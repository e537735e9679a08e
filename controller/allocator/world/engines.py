"""Which nodes can run a replica's engine, by the facts of engine images and instance managers."""

from __future__ import annotations

from collections.abc import Iterable

from controller.model.longhorn import DiskNeeds, EngineImage, InstanceManager
from controller.rules.eligibility import Engines, check_engine


class EngineFacts:
    """Latest facts, and what was worked out from them until one of them changes. A kind of which there is no object at
    all decides nothing."""

    def __init__(self) -> None:
        self.images: dict[str, EngineImage] = {}
        self.managers: dict[str, InstanceManager] = {}
        self._manager_image = ""
        self._engines: Engines | None = None
        self._gaps: dict[tuple[str, str], frozenset[str]] = {}

    def copy(self) -> EngineFacts:
        other = EngineFacts()
        other.images, other.managers, other._gaps = self.images.copy(), self.managers.copy(), self._gaps.copy()
        other._manager_image, other._engines = self._manager_image, self._engines
        return other

    def put_image(self, name: str, image: EngineImage | None) -> frozenset[str] | None:
        """Nodes on which the image became ready or stopped being so; None if nothing changed."""
        old = self.images.pop(name, None)
        if image is not None:
            self.images[name] = image
        if old == image:
            return None
        self.forget()
        before = old.ready_nodes if old is not None else frozenset[str]()
        now = image.ready_nodes if image is not None else frozenset[str]()
        return before ^ now

    def put_manager(self, name: str, manager: InstanceManager | None) -> frozenset[str] | None:
        """The nodes of the manager, before and now; None if nothing changed."""
        old = self.managers.pop(name, None)
        if manager is not None:
            self.managers[name] = manager
        if old == manager:
            return None
        self.forget()
        return frozenset(one.node for one in (old, manager) if one is not None)

    def put_manager_image(self, image: str) -> None:
        """The setting `default-instance-manager-image`; "": any serves."""
        self._manager_image = image
        self.forget()

    def forget(self) -> None:
        """Forget what was worked out: an image, a manager or the nodes changed."""
        self._engines = None
        self._gaps.clear()

    def default_image(self) -> str:
        """The image on most nodes; "" without any."""
        if not self.images:
            return ""
        return max(self.images.values(), key=lambda entry: (len(entry.nodes), entry.image)).image

    @property
    def engines(self) -> Engines:
        if self._engines is None:
            images, managers = self.images.values() or None, self.managers.values() or None
            self._engines = Engines.of(images, managers, self._manager_image)
        return self._engines

    def gaps(self, needs: DiskNeeds, nodes: Iterable[str]) -> frozenset[str]:
        """The Longhorn nodes, of `nodes`, that cannot run a replica with these needs."""
        if not self.images and not self.managers:
            return frozenset()
        key = needs.data_engine, needs.engine_image
        found = self._gaps.get(key)
        if found is None:
            engines = self.engines
            found = frozenset(name for name in nodes if check_engine(name, needs, engines) is not None)
            self._gaps[key] = found
        return found
