"""`certs` on Secrets in memory: what it says, what it writes, and its exit codes."""

from __future__ import annotations

import pytest

from certs.authority import read_authorities
from certs.cli import Tools, command
from certs.secret import data_of
from controller.errors import ClusterError, ConfigError, ForbiddenError
from controller.kube.api import KubeApi
from controller.kube.resources import NAMESPACES, SECRETS, SERVICES
from controller.process.command_line import (
    EXIT_FINDING,
    EXIT_MISUSE,
    EXIT_UNREACHABLE,
    EXIT_WELL,
    run_command,
)
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.fakes.secrets import publish, spoil_secret

SPACE = "longhorn-system"
NAME = "longhorn-scheduler-extender"
SERVER, WEBHOOK, LEADER = f"{NAME}-tls", "longhorn-scheduler-webhook-tls", "longhorn-replica-scheduler-tls"
DAY_SECONDS = 86_400


class Shell:
    def __init__(self) -> None:
        self.api, self.clock = FakeApiServer(), VirtualClock()
        self.lines: list[str] = []
        self.api.create(NAMESPACES, None, {"metadata": {"name": SPACE}})

    def run(self, *arguments: str) -> int:
        self.lines.clear()
        if not {"--chain", "--everything"} & {*arguments}:
            arguments = (*arguments, "--chain", "extender")
        return run_command(command, arguments, obj=Tools(self._connect, self.clock, self.lines.append))

    def _connect(self, _kubeconfig: str, _context: str) -> KubeApi:
        return self.api

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    def data(self, name: str) -> dict[str, bytes]:
        return dict(data_of(self.api.get(SECRETS, SPACE, name)) or {})

    def publish(self) -> None:
        """The API server's configurations carry the webhook's bundle."""
        publish(self.api, self.data(WEBHOOK)["ca.crt"])


@pytest.fixture
def shell() -> Shell:
    return Shell()


@pytest.fixture
def made(shell: Shell) -> Shell:
    assert EXIT_WELL == shell.run("renew")
    return shell


def test_renew_makes_all_that_is_missing_and_then_nothing(shell: Shell) -> None:
    assert EXIT_FINDING == shell.run("check")
    assert "its Secret does not exist" in shell.said
    assert EXIT_WELL == shell.run("renew")
    assert ["make the authority", "sign server", "sign client"] == [line.split(":")[0] for line in shell.lines]
    version = shell.api.version
    assert EXIT_WELL == shell.run("renew")
    assert ["nothing is due"] == shell.lines
    assert version == shell.api.version
    assert EXIT_WELL == shell.run("check")
    assert ["all certificates are in order"] == shell.lines


def test_show_names_every_certificate_and_no_key_and_what_cannot_be_read(made: Shell) -> None:
    assert EXIT_WELL == made.run("show")
    assert ["NAME", "ca", "server", "client"] == [line.split()[0] for line in made.lines]
    assert f"{NAME}.{SPACE}.svc.cluster.local" in made.said
    assert "90 d" in made.said
    assert "PRIVATE" not in made.said
    spoil_secret(made.api, SPACE, SERVER, {"tls.key": b"garbage"})
    assert EXIT_WELL == made.run("show")
    assert "problem: server: its key is not" in made.said


@pytest.mark.parametrize(
    ("days", "finding"),
    [(77, "server: ends in 13 d"), (88.5, "server: ends in 36.0 h"), (91, "server: is not valid now")],
)
def test_check_finds_what_ends(made: Shell, days: float, finding: str) -> None:
    made.clock.advance(days * DAY_SECONDS)
    assert EXIT_FINDING == made.run("check")
    assert finding in made.said
    assert "overdue, and not yet done by the leader: sign server" in made.said


def test_check_warns_as_early_as_asked(made: Shell) -> None:
    made.clock.advance(40 * DAY_SECONDS)
    assert EXIT_WELL == made.run("check")
    assert EXIT_FINDING == made.run("check", "--warn-days", "60")


@pytest.mark.parametrize(
    ("name", "key", "finding"),
    [
        ("ca", "tls.key", "authority: its key is not"),
        ("tls", "tls.crt", "server: is not a PEM certificate"),
        ("tls", "ca.crt", "server: its ca.crt is not the bundle"),
        ("client", "tls.key", "client: its key is not"),
    ],
)
def test_check_finds_damage(made: Shell, name: str, key: str, finding: str) -> None:
    spoil_secret(made.api, SPACE, f"{NAME}-{name}", {key: b"garbage"})
    assert EXIT_FINDING == made.run("check")
    assert finding in made.said


def test_check_finds_an_address_that_the_server_lacks(made: Shell) -> None:
    made.api.create(SERVICES, SPACE, {"metadata": {"name": NAME}, "spec": {"clusterIP": "10.96.0.9"}})
    assert EXIT_FINDING == made.run("check")
    assert "server: lacks the names 10.96.0.9" in made.said


@pytest.mark.parametrize(("leaf", "changes"), [("server", "tls"), ("client", "client")])
def test_a_leaf_is_renewed_when_asked(made: Shell, leaf: str, changes: str) -> None:
    before = {name: made.data(f"{NAME}-{name}") for name in ("ca", "tls", "client")}
    assert EXIT_WELL == made.run("renew", f"--{leaf}")
    assert [changes] == [name for name in before if before[name] != made.data(f"{NAME}-{name}")]
    assert EXIT_WELL == made.run("check")


def test_an_authority_is_changed_in_two_moves_and_nobody_is_forgotten(made: Shell) -> None:
    old = made.data(SERVER)
    assert EXIT_WELL == made.run("renew", "--next-ca")
    assert EXIT_MISUSE == made.run("renew", "--next-ca")  # there is one already
    between = made.data(SERVER)
    assert old["tls.crt"] == between["tls.crt"]
    assert 2 == len(read_authorities(between["ca.crt"], what="x"))
    assert EXIT_WELL == made.run("check")

    assert EXIT_WELL == made.run("renew", "--promote")
    after = made.data(SERVER)
    assert old["tls.crt"] != after["tls.crt"]
    made.run("show")
    assert ["ca", "ca-previous-1", "server", "client"] == [line.split()[0] for line in made.lines[1:]]
    assert set(read_authorities(between["ca.crt"], what="x")) == set(read_authorities(after["ca.crt"], what="x"))
    assert EXIT_WELL == made.run("check")


@pytest.mark.parametrize(
    "arguments",
    [
        ("renew", "--promote"),
        ("renew", "--mode", "provided"),
        ("check", "--tls-extra-names", "x", "--mode", "self", "--tls-ca-secret", ""),
    ],
)
def test_misuse(made: Shell, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert EXIT_MISUSE == made.run(*arguments)
    assert capsys.readouterr().err


def test_options_that_do_not_exist_and_a_kubeconfig_that_cannot_be_read_are_misuse(
    made: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    assert EXIT_MISUSE == made.run("renew", "--everything")
    assert "No such option '--everything'" in capsys.readouterr().err

    def connect(*_: str) -> KubeApi:
        raise ConfigError("kubeconfig: no such file")

    assert EXIT_MISUSE == run_command(command, ["show"], obj=Tools(connect))
    assert "no such file" in capsys.readouterr().err


def test_a_namespace_that_does_not_exist_is_misuse_and_one_that_may_not_be_read_is_not(
    made: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    assert EXIT_MISUSE == made.run("check", "--namespace", "elsewhere")
    assert ("error: --namespace: there is no namespace elsewhere\n", "") == (capsys.readouterr().err, made.said)
    made.api.fail_with(ForbiddenError("403: no"), about=NAMESPACES)
    assert EXIT_WELL == made.run("check")


def test_an_api_server_that_refuses_has_a_code_of_its_own(made: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    made.api.fail_with(ClusterError("403: secrets is forbidden"))
    assert EXIT_UNREACHABLE == made.run("check")
    assert "forbidden" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["cert-manager", "provided"])
def test_certificates_of_others_are_checked_by_their_own_authorities(made: Shell, mode: str) -> None:
    made.api.delete(SECRETS, SPACE, f"{NAME}-ca")
    assert EXIT_WELL == made.run("check", "--mode", mode)
    made.api.delete(SECRETS, SPACE, f"{NAME}-client")
    assert EXIT_WELL == made.run("check", "--mode", mode)
    spoil_secret(made.api, SPACE, SERVER, {"ca.crt": b""})
    assert EXIT_FINDING == made.run("check", "--mode", mode)


@pytest.fixture
def both(shell: Shell) -> Shell:
    """With both chains, and the API server's webhook configurations."""
    assert EXIT_WELL == shell.run("renew", "--chain", "all")
    shell.publish()
    return shell


def test_both_chains_are_shown_and_checked_unless_they_are_off(both: Shell) -> None:
    assert EXIT_WELL == both.run("show", "--chain", "all")
    names = [line.split()[0] for line in both.lines[1:]]
    webhooks = ["webhook-ca", "webhook-client", "replica-scheduler-server", "webhook-server"]
    assert ["ca", "server", "client", *webhooks] == names
    assert f"longhorn-scheduler-webhook.{SPACE}.svc" in both.said
    assert f"longhorn-replica-scheduler.{SPACE}.svc" in both.said
    assert EXIT_WELL == both.run("check", "--chain", "all")
    for key in [key for key in both.api.objects if key[0] == SECRETS.path()]:
        del both.api.objects[key]
    assert EXIT_WELL == both.run("check", "--chain", "all", "--mode", "off", "--webhook-mode", "off")


def test_what_is_asked_for_is_asked_of_one_chain(both: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert EXIT_MISUSE == both.run("renew", "--server", "--chain", "all")
    assert "--chain" in capsys.readouterr().err
    before = both.data(LEADER)
    assert EXIT_WELL == both.run("renew", "--server", "--chain", "webhook")
    assert ["sign webhook-server", "sign replica-scheduler-server"] == [line.split(":")[0] for line in both.lines]
    assert before["tls.crt"] != both.data(LEADER)["tls.crt"]
    assert EXIT_WELL == both.run("check", "--chain", "all")


def test_a_bundle_that_is_not_handed_on_is_found(both: Shell) -> None:
    assert EXIT_WELL == both.run("renew", "--next-ca", "--chain", "webhook")
    assert EXIT_FINDING == both.run("check", "--chain", "webhook")
    assert "caBundle: lacks " in both.said
    both.publish()
    assert EXIT_WELL == both.run("check", "--chain", "webhook")
    publish(both.api, b"garbage")
    assert EXIT_FINDING == both.run("check", "--chain", "webhook")


def test_a_next_authority_that_does_not_sign_in_time_is_found_and_is_not_promoted_by_hand(both: Shell) -> None:
    both.run("renew", "--next-ca", "--chain", "webhook")
    both.publish()
    both.clock.advance(DAY_SECONDS + 60)
    assert EXIT_WELL == both.run("check", "--chain", "webhook")  # the leader may still be waiting
    both.clock.advance(3_600)
    assert EXIT_FINDING == both.run("check", "--chain", "webhook")
    assert "overdue, and not yet done by the leader: sign with the next authority" in both.said
    assert EXIT_WELL == both.run("renew", "--chain", "webhook")
    assert ["nothing is due"] == both.lines
    assert EXIT_WELL == both.run("renew", "--promote", "--chain", "webhook")
    assert EXIT_WELL == both.run("check", "--chain", "webhook")
