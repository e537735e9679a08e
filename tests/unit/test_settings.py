"""Settings: names, defaults, shapes, and values that are not used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from controller.errors import ConfigError
from controller.process.flags import split_names
from controller.settings import (
    AUTHORITY,
    ENABLED,
    PLACEMENT,
    UNREAD,
    LiveSettings,
    ProcessSettings,
    live_settings,
    places_replicas,
    setting_notes,
)

NAME = "scheduler-extender-pod-scheduling-timeout"
ON = {ENABLED: "true"}


def test_the_enhancements_settings_have_its_names_and_defaults() -> None:
    live, problems = live_settings({ENABLED: "false"}, {})
    assert (LiveSettings(), ()) == (live, problems)
    assert (False, 5, 5) == (live.enabled, live.pod_scheduling_timeout_seconds, live.node_reservation_timeout_seconds)
    data = {**ON, NAME: "0", "scheduler-extender-node-reservation-timeout": "7"}
    expected = LiveSettings(enabled=True, pod_scheduling_timeout_seconds=0, node_reservation_timeout_seconds=7)
    assert (expected, ()) == live_settings(data, {})


def test_scheduler_names_are_split_at_commas_and_named_once() -> None:
    assert ["a", "b"] == split_names(" a, b,,a ")


def test_a_longhorn_setting_of_the_same_name_wins() -> None:
    live, _ = live_settings({**ON, NAME: "6"}, {NAME: "8"})
    assert 8 == live.pod_scheduling_timeout_seconds
    assert (LiveSettings(enabled=True), ()) == live_settings(None, ON)  # all of it, where nothing else is said


@pytest.mark.parametrize("text", ["", " 5", "5s", "-1", "3601", "1e3", "٣", "0x5", "9" * 40])
def test_a_value_that_cannot_be_used_leaves_the_last_good_one_and_is_named(text: str) -> None:
    before = LiveSettings(pod_scheduling_timeout_seconds=9)
    live, (problem,) = live_settings({**ON, NAME: text}, {}, before)

    assert 9 == live.pod_scheduling_timeout_seconds
    assert NAME == problem.name
    assert problem.text.startswith(f"{text[:80]!r} is not ")
    assert problem.text.endswith("; 9 stays in force")


@pytest.mark.parametrize(("text", "expected"), [("T", True), ("f", False), ("tRue", None)])
def test_booleans_are_read_as_go_reads_them(text: str, expected: bool | None) -> None:
    name = "scheduler-extender-bypass"
    live, problems = live_settings({**ON, name: text}, {})
    assert (bool(expected), [name] if expected is None else []) == (live.bypass, [entry.name for entry in problems])


MOST_OF_IT = ("bypass", "expansion-policy", "remote-fallback-after", "placement")
ALL_ODD = {ENABLED: "odd", **{f"scheduler-extender-{name}": "odd" for name in MOST_OF_IT}}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (None, "is not set because there is no ConfigMap; "),
        ({}, "is not set; "),
        ({"enabled": "true"}, "is not set; "),
        ({ENABLED: "maybe"}, "'maybe' is not a boolean; "),
        (ALL_ODD, "'odd' is not a boolean; "),
    ],
)
def test_a_mistake_opens_nothing(data: Mapping[str, str] | None, problem: str) -> None:
    """What was read last stays in force; where nothing was, the value of each setting that lets nothing through."""
    for last, text in ((LiveSettings(enabled=True), "true stays in force"), (UNREAD, "every call is answered by an")):
        live, problems = live_settings(data, {}, last)
        assert last.enabled is live.enabled
        (told,) = [entry.text for entry in problems if entry.name == ENABLED]
        assert told.startswith(problem)
        assert text in told
    if data in (None, ALL_ODD):
        assert UNREAD == live_settings(data, {})[0]
    closed = {"enabled": None, "bypass": False, "expansion_policy": "deny", "remote_fallback_after_seconds": 0}
    assert closed == {name: getattr(UNREAD, name) for name in closed}


def test_a_config_map_that_goes_takes_no_setting_with_it() -> None:
    last = LiveSettings(enabled=True, strategy="pack", bypass=True)
    assert last == live_settings(None, {}, last)[0]
    assert LiveSettings(enabled=True) == live_settings(ON, {}, last)[0]  # what is taken away by itself has its default


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scheduler-extender-enable", "is not a setting of this version"),
        ("max-offers", "is ignored: the name of the setting is scheduler-extender-max-offers"),
        ("Scheduler_Extender_Bypass", "is ignored: the name of the setting is scheduler-extender-bypass"),
        ("scheduler-extender-replica-placement", f"has no effect: {PLACEMENT} says it now"),
        ("other", None),
    ],
)
def test_a_misspelt_or_former_name_is_told_and_foreign_keys_are_not(name: str, text: str | None) -> None:
    live, problems = live_settings({**ON, name: "x"}, {})
    assert LiveSettings(enabled=True) == live
    assert [(name, f"'x' {text}")] * (text is not None) == [(entry.name, entry.text) for entry in problems]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"renew_deadline_seconds": 15}, "--renew-deadline-seconds"),
        ({"retry_period_seconds": 10}, "--retry-period-seconds"),
        ({"extender_port": 0}, "--extender-port"),
        ({"pod_ip": "localhost"}, "--pod-ip or POD_IP"),
        ({"pod_name": ""}, "--pod-name or POD_NAME"),
        ({"threads": 0}, "--threads"),
        ({"log_format": "xml"}, "--log-format"),
        ({"status_tls_port": 65_536}, "--status-tls-port"),
        ({"status_tls_cert_dir": "/certs", "status_tls_port": 0}, "--status-tls-cert-dir"),
        ({"tls_mode": "on"}, "--tls-mode"),
        ({"tls_mode": ""}, "--tls-mode"),
        ({"tls_mode": "self", "tls_cert_dir": "/certs"}, "--tls-cert-dir"),
        ({"tls_mode": "off"}, "--tls-mode"),
        ({"tls_mode": "insecure-plain-http", "tls_cert_dir": "/certs"}, "--tls-cert-dir"),
        ({"tls_mode": "self", "tls_secret": ""}, "--tls-secret"),
        ({"tls_mode": "self", "tls_secret": "a", "tls_ca_secret": "a"}, "--tls-secret"),
        ({"tls_handshake_seconds": 0}, "--tls-handshake-seconds"),
        ({"tls_handshake_seconds": 61}, "--tls-handshake-seconds"),
        ({"tls_handshakes": 0}, "--tls-handshakes"),
    ],
)
def test_a_process_that_cannot_work_is_told_which_setting(fields: dict[str, object], named: str) -> None:
    good = ProcessSettings(pod_name="p", pod_ip="10.0.0.1", tls_mode="self").checked()
    with pytest.raises(ConfigError, match=f"^{named}: "):
        replace(good, **fields).checked()  # type: ignore[arg-type]


def test_a_site_with_the_former_name_and_the_other_authority_is_told_what_to_set() -> None:
    data = {**ON, "scheduler-extender-replica-placement": "true", AUTHORITY: "disk-scheduler"}
    live, (problem,) = live_settings(data, {})
    assert not places_replicas(live)
    told = f"'true' has no effect: set {AUTHORITY} to longhorn; {PLACEMENT} then says who places"
    assert told == problem.text


@pytest.mark.parametrize("name", ["allow-stranding", "roaming-overcommit-percent", "namespace-cap-percent"])
@pytest.mark.parametrize("text", ["true", "0", "junk"])
def test_a_setting_that_does_nothing_any_more_is_noted_and_is_no_problem(name: str, text: str) -> None:
    data = {**ON, f"scheduler-extender-{name}": text}
    assert (LiveSettings(enabled=True), ()) == live_settings(data, {})
    (note,) = setting_notes(data)
    assert f"scheduler-extender-{name}" == note.name
    assert note.text.startswith(f"{text!r} has no effect any more: ")


@pytest.mark.parametrize("data", [None, {}, {**ON, "scheduler-extender-max-offers": "7", "allow-stranding": "true"}])
def test_nothing_else_is_noted(data: Mapping[str, str] | None) -> None:
    assert () == setting_notes(data)


@pytest.mark.parametrize("text", ["leader", "audit", "longhorn"])
def test_who_places_has_no_effect_under_the_other_authority_and_that_is_told(text: str) -> None:
    given = {PLACEMENT: text}
    for config_map, longhorn in (({**ON, **given}, {}), (ON, given)):
        assert () == live_settings(config_map, longhorn)[1]
        live, (problem,) = live_settings({**config_map, AUTHORITY: "disk-scheduler"}, longhorn)
        assert not places_replicas(live)
        told = f"{text!r} has no effect while {AUTHORITY} is disk-scheduler"
        assert (PLACEMENT, told) == (problem.name, problem.text)
    assert () == live_settings({**ON, AUTHORITY: "disk-scheduler"}, {})[1]  # nobody says it


def test_who_places_stays_as_it_was_where_it_cannot_be_read_and_is_longhorn_where_it_never_could() -> None:
    data = {**ON, PLACEMENT: "nobody"}
    for last in (UNREAD, LiveSettings(placement="audit")):
        live, (problem,) = live_settings(data, {}, last)
        assert last.placement == live.placement
        assert problem.text == f"'nobody' is not one of leader, audit, longhorn; {last.placement} stays in force"
    assert ("longhorn", "leader") == (UNREAD.placement, live_settings(ON, {})[0].placement)
