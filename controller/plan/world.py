"""The allocator's world, filled with saved objects."""

from __future__ import annotations

from controller.allocator.world.world import World
from controller.model.longhorn import LonghornSettings
from controller.plan.objects import Objects


def world_of(objects: Objects, settings: LonghornSettings) -> World:
    """A world that knows nothing but `objects`. A volume that is to grow stands there as Longhorn shows it: what is
    promised beyond that is part of the question."""
    world = World()
    world.put_settings(settings)
    for name, kube_node in objects.kube_nodes.items():
        world.put_kube_node(name, kube_node)
    for name, node in objects.nodes.items():
        world.put_node(name, node)
    for name, image in objects.backing_images.items():
        world.put_backing_image(name, image)
    for name, backup in objects.backups.items():
        world.put_backup(name, backup)
    for name, engine_image in objects.engine_images.items():
        world.put_engine_image(name, engine_image)
    for name, manager in objects.instance_managers.items():
        world.put_instance_manager(name, manager)
    for name, storage_class in objects.classes.items():
        world.put_class(name, storage_class)
    for name, pv in objects.pvs.items():
        world.put_pv(name, pv)
    for key, claim in objects.claims.items():
        world.put_claim(key, claim)
    for name, volume in objects.volumes.items():
        world.put_volume(name, volume)
    for name, replica in objects.replicas.items():
        world.put_replica(name, replica)
    for key, pod in objects.pods.items():
        world.put_pod(key, pod)
    return world
