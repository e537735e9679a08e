"""The stand-in's arithmetic: both formulas a byte either side, floats that blur, sums that wrap, growth."""

from __future__ import annotations

import pytest

from tests.longhorn.space import growth_problem, int64, share, space_problem
from tests.longhorn.state import State
from tests.unit.longhorn.worlds import GIB, Raw, disk


def state(**settings: str) -> State:
    return State(nodes={}, replicas=(), settings={name.replace("_", "-"): value for name, value in settings.items()})


def has_room(entry: tuple[Raw, Raw], size: int, *, required: int = 0, fresh: int = 0, **settings: str) -> bool:
    return space_problem(state(**settings), *entry, size, required, fresh) is None


@pytest.mark.parametrize(("size", "expected"), [(400 * GIB - 1, True), (400 * GIB, True), (400 * GIB + 1, False)])
def test_scheduled_bytes_may_reach_the_limit(size: int, expected: bool) -> None:
    assert expected == has_room(disk(400 * GIB), size)


@pytest.mark.parametrize(("available", "expected"), [(25, False), (26, True)])
def test_available_bytes_must_stay_above_the_minimum(available: int, expected: bool) -> None:
    assert expected == has_room(disk(100, available=available), 1)


@pytest.mark.parametrize(("required", "expected"), [(0, True), (4, True), (5, False)])
def test_the_volumes_real_bytes_come_off_the_available_ones(required: int, expected: bool) -> None:
    assert expected == has_room(disk(100, available=30), 1, required=required)


@pytest.mark.parametrize(("size", "expected"), [(70, True), (71, False)])
def test_reserved_bytes_lower_the_limit_alone(size: int, expected: bool) -> None:
    assert expected == has_room(disk(100, reserved=30, available=26), size)


@pytest.mark.parametrize(("size", "expected"), [(30, True), (31, False)])
def test_scheduled_and_fresh_bytes_add_up(size: int, expected: bool) -> None:
    assert expected == has_room(disk(100, scheduled=50), size, fresh=20)


@pytest.mark.parametrize(("size", "expected"), [(199, True), (200, False)])
def test_percentages_are_truncated(size: int, expected: bool) -> None:
    # 133 * 150 / 100 = 199.5
    assert expected == has_room(disk(133), size, storage_over_provisioning_percentage="150")


@pytest.mark.parametrize(("available", "expected"), [(33, False), (34, True)])
def test_the_minimum_is_truncated(available: int, expected: bool) -> None:
    # 133 * 25 / 100 = 33.25: 33 is not above 33
    assert expected == has_room(disk(133, available=available), 0)


def test_a_disk_that_reserves_more_than_it_has_takes_nothing() -> None:
    assert not has_room(disk(100, reserved=101), 0)
    assert has_room(disk(100, reserved=100), 0)


@pytest.mark.parametrize(("maximum", "available"), [(0, 0), (0, 10), (10, 0), (-1, 10), (10, -1)])
def test_a_disk_without_figures_takes_nothing(maximum: int, available: int) -> None:
    assert not has_room(disk(maximum, available=available), 0, storage_minimal_available_percentage="0")


def test_floats_lose_the_last_bits_above_2_to_53() -> None:
    exact = 2**53 + 1
    assert 2**53 == share(exact, 100)
    assert not has_room(disk(exact), exact)
    assert has_room(disk(exact), exact - 1)
    assert 2**53 - 1 == share(2**53 - 1, 100)


def test_floats_may_also_round_up() -> None:
    exact = 2**53 + 3
    assert exact + 1 == share(exact, 100)
    assert has_room(disk(exact), exact + 1)
    assert not has_room(disk(exact), exact + 2)


def test_a_negative_limit_is_truncated_toward_zero() -> None:
    assert 0 == share(-1, 50)
    assert -1 == share(-3, 50)


def test_sums_wrap_at_64_bits() -> None:
    assert -(2**63) == int64(2**63)
    assert 2**63 - 1 == int64(-(2**63) - 1)
    assert has_room(disk(100, scheduled=2**63 - 1), 1)  # unchecked in Longhorn too
    assert not has_room(disk(100, scheduled=2**63 - 2), 1)


def test_a_share_beyond_64_bits_is_the_lowest_number() -> None:
    assert -(2**63) == share(2**62, 1000)


def test_longhorns_defaults_are_100_and_25() -> None:
    assert has_room(disk(100, available=26), 100)
    assert not has_room(disk(100, available=25), 0)
    assert has_room(
        disk(100, available=11),
        200,
        storage_over_provisioning_percentage="200",
        storage_minimal_available_percentage="10",
    )


@pytest.mark.parametrize("text", ["", " 25", "2_5", "25%", "1e2", "0x10"])
def test_a_percentage_that_is_no_number_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="storage-minimal-available-percentage"):
        has_room(disk(), 1, storage_minimal_available_percentage=text)


# Growth


def may_grow(entry: tuple[Raw, Raw], growth: int, **settings: str) -> bool:
    return growth_problem(state(**settings), *entry, growth) is None


@pytest.mark.parametrize(("growth", "expected"), [(75, True), (76, False)])
def test_growth_must_fit_physically_and_may_reach_the_minimum(growth: int, expected: bool) -> None:
    assert expected == may_grow(disk(100), growth, storage_over_provisioning_percentage="1000")


@pytest.mark.parametrize(("growth", "expected"), [(35, True), (36, False)])
def test_growth_counts_reserved_bytes_as_free(growth: int, expected: bool) -> None:
    # maximum - available - reserved = 40, so 35 more leave 25; the limit of (100 - 10) * 100 % is far away
    assert expected == may_grow(disk(100, available=50, reserved=10), growth)


@pytest.mark.parametrize(("growth", "expected"), [(20, True), (21, False)])
def test_growth_is_also_counted_against_the_scheduled_bytes(growth: int, expected: bool) -> None:
    assert expected == may_grow(disk(100, scheduled=80), growth)


@pytest.mark.parametrize(("growth", "expected"), [(40, True), (41, False)])
def test_used_bytes_after_growth_may_reach_the_limit(growth: int, expected: bool) -> None:
    entry = disk(100, available=90)
    assert expected == may_grow(entry, growth, storage_over_provisioning_percentage="50")


@pytest.mark.parametrize(("available", "expected"), [(25, False), (26, True)])
def test_under_pressure_even_a_smaller_size_is_refused(available: int, expected: bool) -> None:
    assert expected == may_grow(disk(100, available=available), -10)
    assert expected == may_grow(disk(100, available=available), 0)


def test_a_smaller_size_is_not_measured_physically() -> None:
    assert may_grow(disk(100, available=26, scheduled=110), -10)
    assert not may_grow(disk(100, available=26, scheduled=111), -10)


@pytest.mark.parametrize(("growth", "expected"), [(0, True), (1, False)])
def test_no_growth_is_not_measured_physically_either(growth: int, expected: bool) -> None:
    # 74 of 100 are in use already, and the limit is 50.
    assert expected == may_grow(disk(100, available=26), growth, storage_over_provisioning_percentage="50")


@pytest.mark.parametrize("entry", [disk(1), disk(4, available=2)])
def test_the_smallest_disks_are_disks(entry: tuple[Raw, Raw]) -> None:
    assert has_room(entry, 1)


@pytest.mark.parametrize("text", [str(2**63), str(-(2**63) - 1), "9" * 5000, "1e2", "0x10", "", " 5", "1_0"])
def test_settings_are_whole_numbers_of_64_bits(text: str) -> None:
    with pytest.raises(ValueError, match="storage-over-provisioning-percentage"):
        has_room(disk(), 1, storage_over_provisioning_percentage=text)


@pytest.mark.parametrize(
    ("text", "expected"), [("+050", 50), ("-7", -7), ("0" * 30 + "9", 9), (str(2**63 - 1), 2**63 - 1)]
)
def test_settings_may_have_a_sign_and_leading_zeros(text: str, expected: int) -> None:
    assert expected == state(number=text).number("number", 0)
