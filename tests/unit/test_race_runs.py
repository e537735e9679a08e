"""What the comparison of bursts makes of a history's verdict."""

from __future__ import annotations

from bench.race_runs import EXACT, OURS, POLICY, STOCK, Case, Run, ample_verdict, exact_verdict, run_of, table, times_of
from tests.e2e.checker import PodRecord, Report, Violation

AMPLE = Case("ample", 2)


def record(key: str, created: float, bound: float | None) -> PodRecord:
    return PodRecord(key, created, node="n1" if bound is not None else "", bound_at=bound)


def over(place: str, rv: int) -> Violation:
    return Violation(place, rv, 0.0, 400, 500, ())


def run(way: str, seconds: float, *, case: str = "ample", pods: int = 2, bound: int | None = None) -> Run:
    return Run(case, way, pods, pods if bound is None else bound, seconds, 0)


def test_a_run_counts_its_own_pods_from_the_first_one_made_to_the_last_one_bound() -> None:
    report = Report(
        pods={
            "a": record("race-1/a", 10.0, 12.0),
            "b": record("race-1/b", 10.5, 13.25),
            "c": record("race-10/c", 1.0, 99.0),
        }
    )
    assert Run("ample", OURS, 2, 2, 3.25, 0) == run_of(report, AMPLE, OURS, "race-1", 5, 50)


def test_a_run_in_which_a_pod_was_never_bound_has_no_time_until_all_were() -> None:
    report = Report(pods={"a": record("race-1/a", 10.0, 12.0), "b": record("race-1/b", 10.0, None)})
    found = run_of(report, AMPLE, POLICY, "race-1", 5, 50)
    assert (1, 2.0, None) == (found.bound, found.last_bound_seconds, found.all_bound_seconds)
    assert [] == times_of([found], "ample", POLICY)


def test_a_run_answers_for_each_place_that_was_over_while_it_lasted() -> None:
    violations = [over("node n1", 4), over("node n1", 5), over("node n2", 30), over("node n2", 31), over("node n3", 50)]
    found = run_of(Report(violations=violations), AMPLE, OURS, "race-1", 5, 50)
    assert 2 == found.places_over


def test_with_ample_room_the_larger_of_a_tenth_and_three_tenths_of_a_second_is_allowed() -> None:
    def verdict(ours: float, stock: float) -> bool:
        return ample_verdict([run(OURS, ours), run(STOCK, stock)], "ample").endswith(": met")

    assert (True, False) == (verdict(1.25, 1.0), verdict(1.35, 1.0))
    assert (True, False) == (verdict(10.95, 10.0), verdict(11.05, 10.0))


def test_medians_are_compared() -> None:
    runs = [run(OURS, seconds) for seconds in (1.0, 2.0, 90.0)] + [run(STOCK, seconds) for seconds in (1.9, 2.0, 2.1)]
    assert ample_verdict(runs, "ample").startswith("ample: 1.00 times")


def test_nothing_is_said_of_runs_that_no_pods_came_through() -> None:
    stuck = run(OURS, 2.0, bound=1)
    assert "not judged" in ample_verdict([stuck, run(STOCK, 1.0)], "ample")
    assert "not judged" in exact_verdict([run(STOCK, 1.0, case=EXACT.name)])[0]


def test_the_other_policy_is_measured_against_ours_also_when_it_leaves_pods_behind() -> None:
    ours, stock = run(OURS, 4.0, case=EXACT.name), run(STOCK, 4.0, case=EXACT.name)
    slow = run(POLICY, 160.0, case=EXACT.name, bound=1)
    first, second = exact_verdict([ours, stock, slow])
    assert first.startswith("exact: 1.00 times") and first.endswith(": met")
    assert second.startswith("exact: 40 times faster") and "pods never bound: 1 " in second and second.endswith(": met")
    assert exact_verdict([ours, stock, run(POLICY, 100.0, case=EXACT.name)])[1].endswith(": NOT MET")
    assert exact_verdict([run(OURS, 5.1, case=EXACT.name), stock])[0].endswith(": NOT MET")


def test_the_table_has_a_line_for_each_case_and_way() -> None:
    lines = table([run(OURS, 1.0), run(OURS, 3.0), run(STOCK, 2.0, bound=1)]).splitlines()
    assert 3 == len(lines)
    assert ["2", "2", "2.00", "s", "1.00", "s", "3.00", "s", "0"] == lines[1].split()[-9:]
    assert ["1", "0", "-", "-", "-", "0"] == lines[2].split()[-6:]
