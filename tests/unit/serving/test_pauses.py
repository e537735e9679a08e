"""What the garbage collector leaves out, and when it looks at everything again."""

from __future__ import annotations

import gc
import subprocess
import sys

from controller.serving.pauses import LONG_SECONDS, Pauses


class Collector:
    """As the module `gc` counts."""

    def __init__(self) -> None:
        self.objects, self.frozen = 100, 0

    def freeze(self) -> None:
        self.frozen += self.objects
        self.objects = 0

    def unfreeze(self) -> None:
        self.objects += self.frozen
        self.frozen = 0

    def get_freeze_count(self) -> int:
        return self.frozen


class Watch:
    def __init__(self) -> None:
        self.time = 0.0
        self.collector = Collector()
        self.pauses = Pauses(lambda: self.time, self.collector)

    def collect(self, generation: int, seconds: float) -> None:
        self.pauses("start", {"generation": generation})
        self.time += seconds
        self.pauses("stop", {"generation": generation, "collected": 0, "uncollectable": 0})


def test_what_outlived_a_slow_look_is_left_out() -> None:
    watch = Watch()
    watch.collect(2, LONG_SECONDS / 2)
    assert watch.collector.frozen == 0
    watch.collect(1, LONG_SECONDS * 2)
    assert watch.collector.frozen == 0
    watch.collect(2, LONG_SECONDS)
    assert watch.collector.frozen == 100


def test_everything_is_looked_at_again_once_twice_as_much_is_left_out() -> None:
    watch = Watch()
    for added, left_out in ((0, 100), (99, 199), (1, 200), (1, 201)):
        watch.collector.objects += added
        watch.collect(2, 2 * LONG_SECONDS)
        assert watch.collector.frozen == left_out
    watch.collect(2, 2 * LONG_SECONDS)
    assert (watch.collector.frozen, watch.collector.objects) == (0, 201)
    watch.collector.objects = 150  # a third was a cycle that nobody needed any more
    watch.collect(2, 2 * LONG_SECONDS)
    assert watch.collector.frozen == 150
    watch.collector.objects = 151
    watch.collect(2, 2 * LONG_SECONDS)
    assert watch.collector.frozen == 301
    watch.collect(2, 2 * LONG_SECONDS)
    assert watch.collector.frozen == 0


PROGRAM = """
import gc, itertools
from controller.serving.pauses import Pauses
ticks = itertools.count()
Pauses(lambda: float(next(ticks))).install()
kept = [[] for _ in range(10_000)]
gc.collect()
assert gc.get_freeze_count() > 10_000, gc.get_freeze_count()
before = gc.get_freeze_count()
del kept
assert gc.get_freeze_count() < before - 10_000, "what nobody refers to ends, left out or not"
"""


def test_pythons_own_collector_does_as_it_is_told() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)
    assert not any(isinstance(callback, Pauses) for callback in gc.callbacks)
