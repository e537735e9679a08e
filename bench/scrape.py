"""Figures from Prometheus pages: what counters and histograms gained between two looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isinf

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Samples:
    """Values by name and labels."""

    values: Mapping[tuple[str, Labels], float]

    def since(self, before: Samples) -> Samples:
        """What each gained; what was not there before counts from zero."""
        return Samples({key: value - before.values.get(key, 0.0) for key, value in self.values.items()})

    def value(self, name: str) -> float:
        """The sum of all samples of that name; 0 without any."""
        return sum(value for (known, _), value in self.values.items() if known == name)

    def by_label(self, name: str, label: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for (known, labels), value in self.values.items():
            if known == name:
                text = dict(labels).get(label, "")
                found[text] = found.get(text, 0.0) + value
        return found


def samples_of(page: str) -> Samples:
    return Samples(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }
    )


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative counts by upper bound, in the metric's unit."""

    buckets: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, samples: Samples, name: str, **labels: str) -> Histogram:
        """All series of that name that carry these labels, taken together."""
        sums: dict[float, float] = {}
        for (known, having), value in samples.values.items():
            if known == f"{name}_bucket" and labels.items() <= set(having):
                bound = float(dict(having)["le"])
                sums[bound] = sums.get(bound, 0.0) + value
        return cls(tuple(sorted(sums.items())))

    @property
    def count(self) -> int:
        return int(self.buckets[-1][1]) if self.buckets else 0

    def quantile(self, part: float) -> float | None:
        """Interpolated within its bucket, as Prometheus does; None without observations."""
        rank, lower, below = part * self.count, 0.0, 0.0
        if not self.count:
            return None
        for bound, total in self.buckets:
            if total >= rank:
                return lower if isinf(bound) else lower + (bound - lower) * (rank - below) / max(total - below, 1e-9)
            lower, below = bound, total
        return lower


def most_in_window(samples: Sequence[tuple[float, float]], seconds: float) -> float:
    """The most that a running total gained within any stretch of that length, as far as its samples (time, total)
    tell: from a stretch that is up to two sampling intervals shorter."""
    most, first = 0.0, 0
    for index, (at, total) in enumerate(samples):
        while samples[first][0] < at - seconds and first < index:
            first += 1
        most = max(most, total - samples[first][1])
    return most
