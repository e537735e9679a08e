"""The webhook's flags: what cannot work is named, and ends the program with code 2; and what it reads live."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest

from controller.errors import ConfigError
from controller.kube.store import Store
from tests.fakes.waiting import wait_until
from webhook.cli import EXIT_CONFIG, main, webhook_settings
from webhook.expansion import POLICY
from webhook.settings import LiveSettingsReader, WebhookSettings


def test_the_defaults_work() -> None:
    assert WebhookSettings() == webhook_settings({}, {})


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
        ("threads", 0),
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
    with pytest.raises(ConfigError, match=f"^{name}: "):
        webhook_settings({name: value}, {})


def test_the_program_ends_with_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert EXIT_CONFIG == main(["run", "--port", "0"])
    assert "configuration: port: is not a port\n" == capsys.readouterr().err
    assert EXIT_CONFIG == main(["run", "--kubeconfig", "/nowhere"])
    assert "kubeconfig" in capsys.readouterr().err


def test_every_flag_has_a_help_text(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    text = capsys.readouterr().out
    assert [] == [field.name for field in fields(WebhookSettings) if f"--{field.name.replace('_', '-')}" not in text]


class Held(Store[str]):
    """A store whose reader is held up once."""

    def __init__(self) -> None:
        super().__init__("setting", lambda raw: str(raw.get("value", "")))
        self.is_held, self.is_read, self.go_on = False, threading.Event(), threading.Event()

    def items(self) -> dict[str, str]:
        found = super().items()
        if self.is_held:
            self.is_held = False
            self.is_read.set()
            assert self.go_on.wait(30)
        return found


def test_a_slow_reading_does_not_undo_a_later_one() -> None:
    config_maps: Store[Mapping[str, str]] = Store("configmap", lambda raw: raw["data"])
    longhorn = Held()
    reader = LiveSettingsReader(config_maps, longhorn)

    def write(policy: str) -> None:
        config_maps.apply("MODIFIED", {"metadata": {"name": "settings"}, "data": {POLICY: policy}})

    write("allow")
    longhorn.is_held = True
    slow = threading.Thread(target=reader.read)
    slow.start()
    assert longhorn.is_read.wait(30)
    later = threading.Thread(target=write, args=("deny",))
    later.start()
    wait_until(lambda: config_maps.values() == [{POLICY: "deny"}])
    longhorn.go_on.set()
    slow.join(30)
    later.join(30)
    assert "deny" == reader.current.expansion_policy
