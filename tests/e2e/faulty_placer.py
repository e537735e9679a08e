"""The product with faults in how it places. Which one a Replica meets goes by its size.

`python -m tests.e2e.faulty_placer run ...` takes the product's own arguments.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from typing import Any

from controller.allocator.verbs import place
from controller.errors import MalformedRequestError
from controller.model import parse
from controller.model.longhorn import LonghornSettings, Replica, Volume
from controller.placement.unplaced import News, Unplaced
from controller.rules.placing import NotYet, check_time

GIB = 2**30
FAULT_GIB = 13  # the decision fails
UNREAD_GIB = 17  # the Replica cannot be read, as one of a kind that nobody knew when this was written
HANG_GIB = 19  # the thread that decides stops for ever as soon as it hears of the Replica
read, take = parse.replica_facts, Unplaced.take
hanging: set[str] = set()  # names of Replicas


def read_most(raw: dict[str, Any]) -> Replica:
    facts = read(raw)
    if facts.size_bytes == UNREAD_GIB * GIB:
        raise MalformedRequestError("spec.dataEngine", "is v3")
    if facts.size_bytes == HANG_GIB * GIB:
        hanging.add(facts.name)
    return facts


def check_most(volume: Volume, replica: Replica, settings: LonghornSettings) -> NotYet | None:
    if volume.size_bytes == FAULT_GIB * GIB:
        raise LookupError("a fault of ours")
    return check_time(volume, replica, settings)


def take_or_hang(unplaced: Unplaced) -> News:
    news = take(unplaced)
    if hanging & news.waiting.keys():
        threading.Event().wait()
    return news


if __name__ == "__main__":
    vars(parse)["replica_facts"], vars(place)["check_time"] = read_most, check_most
    Unplaced.take = take_or_hang  # type: ignore[method-assign, assignment]
    sys.exit(import_module("controller.cli").main())  # what reads Replicas is imported from here on
