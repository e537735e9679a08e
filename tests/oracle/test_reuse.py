"""Which failed replica is brought back: the product's prediction against the tests' own rules, in random worlds."""

from __future__ import annotations

import json
from collections import Counter
from unittest.mock import patch

from controller.plan import command, questions
from controller.plan.complaints import Notes
from controller.rules.placing import find_reusable
from tests.longhorn import reuse
from tests.longhorn.plan import read
from tests.oracle import disk_changes, scenes, volume_changes
from tests.oracle.compare import BAD_INPUT, ask_product
from tests.oracle.mix import world_of
from tests.oracle.worlds import NOW, Document, OracleWorld

SEED = 11
WORLDS = 1200


def failing_world(index: int) -> OracleWorld | None:
    """Replicas in most places, of which most failed at different times; some disks are under pressure. None: the world
    is not for that."""
    world = world_of(SEED, index)
    dice = world.dice
    if not world.asked or BAD_INPUT in ask_product(world.document()):
        return None
    if dice.chance(0.7):
        scenes.all_nodes_used(world, soft_zone=dice.chance(0.6), soft_node=dice.chance(0.5))
    volume_changes.failed_replicas(world)
    for raw in world.placed:
        if raw["spec"]["failedAt"]:
            raw["spec"]["failedAt"] = f"2026-01-01T00:00:{dice.between(10, 59)}Z"
    for _, status in disk_changes.some_disks(world, 0.3):
        status["conditions"] = [
            {"type": "Ready", "status": dice.one(("True", "True", "False"))},
            {"type": "Schedulable", "status": "False", "reason": dice.one(("DiskPressure", "DiskNotReady"))},
        ]
    world.settings["fast-replica-rebuild-enabled"] = dice.one(
        ('{"v1":"true","v2":"true"}', '{"v1":"true","v2":"false"}')
    )
    return world


def product_choice(document: Document, wanted_node: str) -> str | None:
    """By what the plan command makes of the document."""
    with patch.object(questions, "schedule_replicas", return_value=()) as asked:
        command.answer(document, NOW, Notes(is_lenient=True))
    view, volume, _ = asked.call_args.args
    found = find_reusable(view, volume, wanted_node).replica
    return found.name if found is not None else None


def test_the_same_failed_replica_is_brought_back() -> None:
    counts: Counter[str] = Counter()
    for index in range(WORLDS):
        world = failing_world(index)
        if world is None:
            continue
        document = world.document()
        question = read(document)
        wanted = world.dice.one(("", "", "", *(node["metadata"]["name"] for node in world.nodes)))
        if question.volume["spec"].get("backingImage") and not question.state.backing_images:
            continue
        says = "false" not in world.settings["fast-replica-rebuild-enabled"]  # the setting that exists
        expected = reuse.find_reusable(question.state, question.volume, wanted_node=wanted, v2=says)
        assert expected == product_choice(document, wanted), (index, wanted, json.dumps(document))
        counts["some" if expected else "none"] += 1
    assert min(counts["some"], counts["none"]) > 100, counts
