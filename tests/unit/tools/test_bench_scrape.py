"""What the benchmarks read from Prometheus pages."""

from __future__ import annotations

import pytest

from bench.scrape import Histogram, most_in_window, samples_of

PAGE = """
# HELP took_seconds How long.
# TYPE took_seconds histogram
took_seconds_bucket{profile="a",result="scheduled",le="0.1"} 10
took_seconds_bucket{profile="a",result="scheduled",le="0.2"} 30
took_seconds_bucket{profile="a",result="scheduled",le="+Inf"} 40
took_seconds_sum{profile="a",result="scheduled"} 9
took_seconds_count{profile="a",result="scheduled"} 40
took_seconds_bucket{profile="b",result="scheduled",le="0.1"} 7
took_seconds_bucket{profile="b",result="scheduled",le="+Inf"} 7
# HELP answers_total Answers.
# TYPE answers_total counter
answers_total{decision="offered"} 5
answers_total{decision="refused"} 2
"""


def test_counters_are_read_by_label_and_as_gains() -> None:
    before = samples_of('# TYPE answers_total counter\nanswers_total{decision="offered"} 3\n')
    gained = samples_of(PAGE).since(before)

    assert {"offered": 2.0, "refused": 2.0} == gained.by_label("answers_total", "decision")
    assert 4.0 == gained.value("answers_total")
    assert 0.0 == gained.value("unknown_total")


def test_a_quantile_is_interpolated_in_its_bucket() -> None:
    found = Histogram.of(samples_of(PAGE), "took_seconds", profile="a", result="scheduled")

    assert 40 == found.count
    assert pytest.approx(0.05) == found.quantile(0.125)
    assert pytest.approx(0.15) == found.quantile(0.5)
    assert pytest.approx(0.2) == found.quantile(0.99)  # beyond the last bound that is a number


def test_series_that_carry_the_labels_are_taken_together() -> None:
    assert 47 == Histogram.of(samples_of(PAGE), "took_seconds", result="scheduled").count


def test_without_observations_there_is_no_quantile() -> None:
    assert Histogram.of(samples_of(PAGE), "took_seconds", profile="c").quantile(0.5) is None


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], 0.0),
        ([(0.0, 5.0)], 0.0),
        ([(0.0, 0.0), (4.0, 1.0), (9.0, 2.0), (20.0, 2.5)], 2.0),
        ([(0.0, 0.0), (6.0, 1.0), (12.0, 3.0), (16.0, 4.0)], 3.0),
    ],
)
def test_the_most_in_a_window_is_that_of_the_worst_stretch(samples: list[tuple[float, float]], expected: float) -> None:
    assert expected == most_in_window(samples, 10.0)
