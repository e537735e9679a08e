"""The webhook's flags: what cannot work is named, and ends the program with code 2; and what it reads live."""

from __future__ import annotations

import threading
from dataclasses import fields
from typing import Any

import pytest

from controller.errors import ConfigError
from controller.kube.store import Store
from controller.model.workload import ConfigMapFacts, config_map_named, data_of
from controller.process.command_line import EXIT_MISUSE, EXIT_WELL
from controller.settings import ENABLED, MEBIBYTE, UNREAD, flag_of
from tests.waiting import wait_until
from webhook.cli import main, webhook_settings
from webhook.expansion import POLICY
from webhook.settings import LiveSettingsReader, WebhookSettings

NUMBERS = ("threads", "live_reads_per_second", "drain_seconds", "tls_handshake_seconds", "tls_handshakes")


@pytest.mark.parametrize(
    "numbers", [(1, 1, 0, 1, 1), (256, 1000, 60, 60, 900)], ids=["the smallest numbers", "the largest numbers"]
)
def test_what_can_work_is_taken(numbers: tuple[int, ...]) -> None:
    assert WebhookSettings() == webhook_settings({}, {})
    chosen: dict[str, Any] = {**dict(zip(NUMBERS, numbers, strict=True)), "body_limit_bytes": MEBIBYTE}
    assert WebhookSettings(**chosen) == webhook_settings(chosen, {})


def test_flags_come_before_the_environment() -> None:
    environment = {"POD_NAMESPACE": "storage"}
    assert "storage" == webhook_settings({}, environment).namespace
    assert "here" == webhook_settings({"namespace": "here"}, environment).namespace
    assert "longhorn-system" == webhook_settings({}, {"POD_NAMESPACE": ""}).namespace


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("namespace", ""),
        ("port", 0),
        ("metrics_port", 65_536),
        ("status_port", 0),
        ("threads", 0),
        ("live_reads_per_second", 0),
        ("body_limit_bytes", 1000),
        ("drain_seconds", -1),
        ("tls_mode", "on"),
        ("tls_secret", ""),
        ("tls_secret", "longhorn-scheduler-webhook-client-tls"),
        ("tls_cert_dir", "/certificates"),
        ("tls_client_cert_dir", "/certificates"),
        ("tls_handshake_seconds", 0),
        ("tls_handshakes", 10_000),
        ("scheduler_names", " , "),
        ("log_level", "loud"),
        ("log_format", "xml"),
    ],
)
def test_what_cannot_work_is_named(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{flag_of(name)}: "):
        webhook_settings({name: value}, {})


def test_without_tls_no_certificate_can_be_demanded() -> None:
    with pytest.raises(ConfigError, match=f"^{flag_of('client_ca_file')}: "):
        webhook_settings({"client_ca_file": "/ca.crt", "tls_mode": "off"}, {})


def test_the_program_ends_with_code_2(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # Else the log of later tests would go to this one's captured output.
    monkeypatch.setattr("webhook.cli.configure_logging", lambda *_: None)
    assert EXIT_MISUSE == main(["run", "--port", "0"])
    assert "error: --port: is not a port: 0\n" == capsys.readouterr().err
    assert EXIT_MISUSE == main(["run", "--kubeconfig", "/nowhere"])
    assert "error: kubeconfig /nowhere: No such file or directory\n" == capsys.readouterr().err


def test_every_flag_has_a_help_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert EXIT_WELL == main(["run", "--help"])
    text = capsys.readouterr().out
    assert [] == [field.name for field in fields(WebhookSettings) if f"--{field.name.replace('_', '-')}" not in text]


def test_nothing_is_used_unread_and_a_slow_reading_undoes_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    config_maps: Store[ConfigMapFacts] = Store("configmap", config_map_named("settings"))
    longhorn: Store[str] = Store("setting", lambda raw: str(raw["value"]))
    reader = LiveSettingsReader(config_maps, longhorn)
    assert (UNREAD, [ENABLED]) == (reader.current, [problem.name for problem in reader.problems])
    is_read, go_on = threading.Event(), threading.Event()

    def items() -> dict[str, str]:
        """The first one is held up."""
        if not is_read.is_set():
            is_read.set()
            assert go_on.wait(30)
        return {}

    def write(policy: str) -> None:
        config_maps.apply("MODIFIED", {"metadata": {"name": "settings"}, "data": {POLICY: policy}})

    write("allow")
    monkeypatch.setattr(longhorn, "items", items)
    slow = threading.Thread(target=reader.read)
    slow.start()
    assert is_read.wait(30)
    later = threading.Thread(target=write, args=("deny",))
    later.start()
    wait_until(lambda: data_of(config_maps.values()) == {POLICY: "deny"})
    go_on.set()
    slow.join(30)
    later.join(30)
    assert "deny" == reader.current.expansion_policy
