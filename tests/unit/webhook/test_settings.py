"""The webhook's flags: what cannot work is named, and ends the program with code 2."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from controller.errors import ConfigError
from webhook.cli import EXIT_CONFIG, main, webhook_settings
from webhook.settings import WebhookSettings


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
