"""Settings: names, defaults, shapes, and values that are not used."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.errors import ConfigError
from controller.model.longhorn import LonghornSettings, SpacePolicy
from controller.model.versions import UNKNOWN
from controller.settings import LiveSettings, ProcessSettings, live_settings, longhorn_settings, per_engine

NAME = "scheduler-extender-pod-scheduling-timeout"


def test_the_enhancements_settings_have_its_names_and_defaults() -> None:
    live, problems = live_settings({}, {})

    assert (False, 5, 5) == (live.enabled, live.pod_scheduling_timeout_seconds, live.node_reservation_timeout_seconds)
    assert () == problems
    data = {"scheduler-extender-enabled": "true", NAME: "0", "scheduler-extender-node-reservation-timeout": "7"}
    live, _ = live_settings(data, {})
    assert (True, 0, 7) == (live.enabled, live.pod_scheduling_timeout_seconds, live.node_reservation_timeout_seconds)


def test_a_longhorn_setting_of_the_same_name_wins() -> None:
    live, _ = live_settings({NAME: "6"}, {NAME: "8"})
    assert 8 == live.pod_scheduling_timeout_seconds


@pytest.mark.parametrize("text", ["", " 5", "5s", "-1", "3601", "1e3", "٣", "0x5", "9" * 40])
def test_a_value_that_cannot_be_used_leaves_the_last_good_one_and_is_named(text: str) -> None:
    before = LiveSettings(pod_scheduling_timeout_seconds=9)
    live, (problem,) = live_settings({NAME: text}, {}, before)

    assert 9 == live.pod_scheduling_timeout_seconds
    assert NAME == problem.name


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_booleans_are_read_as_go_reads_them(text: str) -> None:
    assert live_settings({"scheduler-extender-bypass": text}, {})[0].bypass


@pytest.mark.parametrize("text", ["", "yes", "tRue", " true"])
def test_other_words_are_no_booleans(text: str) -> None:
    live, problems = live_settings({"scheduler-extender-bypass": text}, {})
    assert not live.bypass
    assert ["scheduler-extender-bypass"] == [problem.name for problem in problems]


def test_a_misspelt_setting_is_a_problem_and_foreign_keys_are_not() -> None:
    _, problems = live_settings({"scheduler-extender-enable": "true", "other": "x"}, {})
    assert ["scheduler-extender-enable"] == [problem.name for problem in problems]


def test_longhorns_settings_have_longhorns_defaults() -> None:
    assert (LonghornSettings(behaviour=UNKNOWN), ()) == longhorn_settings({})


def test_longhorns_settings_are_read_in_both_shapes() -> None:
    values = {
        "storage-over-provisioning-percentage": "200",
        "storage-minimal-available-percentage": "0",
        "allow-empty-disk-selector-volume": "false",
        "default-replica-count": '{"v1":"2"}',
        "default-data-locality": "best-effort",
    }
    found, problems = longhorn_settings(values)

    assert () == problems
    assert SpacePolicy(200, 0, True, False) == found.space
    assert (2, 3) == (found.default_replica_count("v1"), found.default_replica_count("v2"))
    assert 5 == longhorn_settings({"default-replica-count": "5"})[0].default_replica_count("v2")


@pytest.mark.parametrize("text", ['{"v1":', '{"v1": 3}', "x", '{"v1":"21"}', "0"])
def test_a_longhorn_setting_that_does_not_parse_keeps_the_last_one(text: str) -> None:
    before = LonghornSettings(default_replica_count_v1=2)
    found, problems = longhorn_settings({"default-replica-count": text}, before)

    assert 2 == found.default_replica_count("v1")
    assert "default-replica-count" in {problem.name for problem in problems}


def test_a_plain_value_serves_every_engine_and_a_missing_one_has_none() -> None:
    assert ("3", "3", None) == (per_engine("3", "v1"), per_engine("3", "v2"), per_engine('{"v1":"3"}', "v2"))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"renew_deadline_seconds": 15}, "renew_deadline_seconds"),
        ({"retry_period_seconds": 10}, "retry_period_seconds"),
        ({"extender_port": 0}, "extender_port"),
        ({"pod_ip": "localhost"}, "POD_IP"),
        ({"pod_name": ""}, "POD_NAME"),
        ({"threads": 0}, "threads"),
        ({"log_format": "xml"}, "log_format"),
    ],
)
def test_a_process_that_cannot_work_is_told_which_setting(fields: dict[str, object], named: str) -> None:
    good = ProcessSettings(pod_name="p", pod_ip="10.0.0.1").checked()
    with pytest.raises(ConfigError, match=named):
        replace(good, **fields).checked()  # type: ignore[arg-type]
