"""What every program of the product does with a command line or a file that is wrong: a text that names it, code 2."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import controller.cli
import webhook.cli
from controller.errors import BugError, ConfigError, ForbiddenError, MalformedRequestError, NotLeaderError
from controller.kube.api import ClientKubeApi
from controller.process.command_line import LaterCommand, run_command
from controller.process.flags import everywhere, namespace
from tests.unit.pages import ROOT

Main = Callable[[Sequence[str]], int]
PROGRAMS: list[Main] = [controller.cli.main, webhook.cli.main]
CLUSTER = {"server": "https://127.0.0.1:1"}
GOOD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "clusters": [{"name": "k", "cluster": CLUSTER}],
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    "users": [{"name": "u", "user": {}}],
}


@pytest.fixture(autouse=True)
def as_in_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else the log of later tests would go to this one's captured output.
    for program in ("controller.commands.run", "webhook.cli"):
        monkeypatch.setattr(f"{program}.configure_logging", lambda *_: None)
    for name, value in (("POD_NAME", "p"), ("POD_IP", "127.0.0.1"), ("KUBERNETES_SERVICE_HOST", "")):
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("main", PROGRAMS)
def test_every_program_tells_its_version(main: Main, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["--version"])
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("controller.cli run --threads=0", "--threads: is not between 1 and 256"),
        ("controller.cli run --tls-mode=self --kubeconfig=/nowhere", "kubeconfig /nowhere: No such file or directory"),
        ("webhook.cli run --port=0", "--port: is not a port: 0"),
        ("webhook.cli run --log-level=loud", "--log-level: is not one of debug, info, warning, error"),
    ],
)
def test_what_keeps_a_process_from_starting_is_an_error_in_its_log(words: str, problem: str) -> None:
    program, *flags = words.split()
    script = f"import sys, {program}; sys.exit({program}.main())"  # as the package installs it
    command = [sys.executable, "-c", script, *flags, "--log-format=json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    (line,) = map(json.loads, ended.stderr.splitlines())
    assert (2, "error", problem) == (ended.returncode, line["level"], line["message"])


CONNECTING = pytest.mark.parametrize(
    ("main", "command"),
    [
        (controller.cli.main, "run --tls-mode=self"),
        (controller.cli.main, "remove-webhooks"),
        (webhook.cli.main, "run"),
        (controller.cli.main, "certs show"),
    ],
)


@CONNECTING
def test_a_kubeconfig_that_is_none_is_named_with_its_path(
    main: Main, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("just text")
    assert 2 == main([*command.split(), "--kubeconfig", str(path)])
    assert f"kubeconfig {path}: it lacks fields of a kubeconfig\n" in capsys.readouterr().err


@CONNECTING
@pytest.mark.parametrize("given", ["environment", "several", "context"])
def test_the_kubeconfig_of_the_environment_and_a_context_are_taken(
    main: Main,
    command: str,
    given: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("just text" if given != "context" else yaml.safe_dump(GOOD))
    monkeypatch.setenv("KUBECONFIG", f"/nowhere:{path}" if given == "several" else str(path))
    words = command.split() + (["--context", "other"] if given == "context" else [])
    assert 2 == main(words)
    problem = "it has no context other\n" if given == "context" else "lacks fields of a kubeconfig"
    assert problem in capsys.readouterr().err


@CONNECTING
def test_without_a_kubeconfig_and_a_service_account_both_are_told_to_be_missing(
    main: Main, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(command.split())
    told = capsys.readouterr().err
    assert "no --kubeconfig, $KUBECONFIG or ~/.kube/config, and no service account of a pod: " in told


def with_cluster(**fields: Any) -> str:
    return yaml.safe_dump({**GOOD, "clusters": [{"name": "k", "cluster": {**CLUSTER, **fields}}]})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file or directory"),
        (b"\xff", "'utf-8' codec can't decode byte 0xff in position 0"),
        (b"not: [yaml", "while parsing a flow sequence"),
        (b"", "file is empty"),
        (b"[1]", "it lacks fields of a kubeconfig"),
        (yaml.safe_dump({**GOOD, "users": 5}), "it lacks fields of a kubeconfig"),
        (yaml.safe_dump({**GOOD, "clusters": []}), "it has no cluster k"),
        (with_cluster(server="nowhere"), "the server is not an http or https address: 'nowhere'"),
        (with_cluster(server=5), "it lacks fields of a kubeconfig"),
        (with_cluster(**{"certificate-authority": "/nowhere/ca.crt"}), "File does not exist: /nowhere/ca.crt"),
        (with_cluster(**{"certificate-authority-data": "aGVsbG8="}), "its certificates cannot be used: "),
    ],
)
def test_what_is_wrong_with_a_kubeconfig_is_told_in_one_line(
    content: str | bytes | None, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError) as refused:
        ClientKubeApi.load(str(path))
    text = str(refused.value)
    assert text.startswith(f"kubeconfig {path}: ")
    assert problem in text
    assert "\n" not in text


def test_an_api_server_that_cannot_be_reached_has_a_code_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(GOOD))
    assert 3 == controller.cli.main(["remove-webhooks", "--kubeconfig", str(path)])
    told = capsys.readouterr().err
    assert "the webhook configurations were not emptied: the API server: GET http" in told
    assert not [word for word in ("object at", "Errno", "pool", "Error") if word in told]


def test_ports_that_are_none_are_refused_and_nobody_there_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["status", "--status-port", "99999"], ["status", "--status-port", "0"]):
        assert 2 == controller.cli.main(words)
        assert f"'{words[1]}': {words[2]} is not in the range 1<=x<=65535" in capsys.readouterr().err
    for address in ("leader", ":9504", "leader:https", "leader:0"):
        assert 2 == controller.cli.main(["check", "--extender-address", address])
        assert f"error: --extender-address: is not HOST:PORT: {address!r}\n" == capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        assert 3 == controller.cli.main(["status", "--status-port", str(taken.getsockname()[1])])
    assert "/overview: Connection refused. --status-port is for a pod" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConfigError("--x: is wrong"), 2, "error: --x: is wrong\n"),
        (MalformedRequestError("spec", "is wrong"), 2, "error: spec: is wrong\n"),
        (ForbiddenError("403: no\x1b[2J"), 3, "error: the API server: 403: no\\x1b[2J\n"),
        (NotLeaderError("nobody leads"), 3, "error: nobody leads\n"),
        (BrokenPipeError(), 0, ""),
        (KeyboardInterrupt(), 130, ""),
        (BugError("x"), 70, "error: this is a fault of the program: please report it, with the lines above\n"),
        (ZeroDivisionError(), 70, "error: this is a fault of the program: please report it, with the lines above\n"),
    ],
)
def test_each_failure_has_its_code_and_its_line(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # which a broken pipe changes

    @click.command()
    def fail() -> None:
        raise error

    assert code == run_command(fail, [])
    told = capsys.readouterr().err
    assert told.endswith(said) and ("Traceback" in told) == (code == 70)
    assert code == 70 or told == said


def test_the_choices_of_a_missing_flag_are_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == controller.cli.main(["render-scheduler-config"])
    problem = "error: Missing option '--for'. Choose from: kubeadm, k3s, "
    assert capsys.readouterr().err.splitlines()[-1].startswith(problem)


@pytest.mark.parametrize("main", PROGRAMS)
@pytest.mark.parametrize("words", [["runn"], ["run", "--thread", "4"], ["run", "--kubecnofig=x"]])
def test_what_is_misspelt_gets_a_hint(main: Main, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(words)
    assert "Did you mean" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "--kubeconfig {} certs show",
        "certs show --kubeconfig {}",
        "--kubeconfig /elsewhere record check --kubeconfig {}",
    ],
)
def test_flags_for_access_stand_before_or_behind_a_command(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubeconfig"
    assert 2 == controller.cli.main(words.format(path).split())
    assert f"error: kubeconfig {path}: No such file or directory\n" == capsys.readouterr().err


def test_a_flag_that_a_command_has_no_use_for_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == controller.cli.main(["--context", "c", "plan"])
    assert capsys.readouterr().err.endswith("error: plan takes no --context\n")


def test_the_namespace_is_the_flag_s_else_that_of_the_environment_else_longhorns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @click.command()
    @namespace
    def told(namespace: str) -> None:
        asked.append(namespace)

    asked: list[str] = []
    program = click.Group("program", commands=[told], params=everywhere(), callback=lambda **_: None)
    for variable in ("", "of-the-pod"):
        monkeypatch.setenv("POD_NAMESPACE", variable)
        for words in ("told", "--namespace a told", "--namespace a told --namespace b"):
            run_command(program, words.split())
    assert ["longhorn-system", "a", "b", "of-the-pod", "a", "b"] == asked


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("certs", "certs"),
        ("controller.plan", "plan"),
        ("controller.record", "record"),
    ],
)
def test_an_old_program_names_the_new_one(old: str, new: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", old, "--help"], capture_output=True, text=True, check=False, timeout=60, cwd=ROOT
    )
    told = f"note: `python -m {old}` is `longhorn-scheduler-extender {new}` from now on"
    assert (0, True, 1) == (done.returncode, done.stderr.startswith(told), done.stderr.count("\n"))


def test_the_old_name_of_check_answers_and_is_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == controller.cli.main(["check-installation", "--kubeconfig", "/nowhere"])
    told, problem = capsys.readouterr().err.splitlines()
    assert told.startswith(
        "note: `longhorn-scheduler-extender check-installation` is `longhorn-scheduler-extender check`"
    )
    assert "/nowhere" in problem
    assert 0 == controller.cli.main(["--help"])
    assert "check-installation" not in capsys.readouterr().out


def test_a_command_imports_what_it_needs_and_no_server() -> None:
    heavy = {"gunicorn", "grpc", "kubernetes", "flask", "cryptography", "yaml"}
    call = "import sys, controller.cli as c; c.main(['--help']); c.main(['status', '--help'])"
    script = f"{call}; print(*{heavy} & {{*sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60, cwd=ROOT
    )
    assert "" == done.stdout.splitlines()[-1]


@pytest.mark.parametrize("name", sorted(controller.cli.COMMANDS))
def test_the_list_says_of_each_command_what_it_says_itself(name: str) -> None:
    """And its module is there, which otherwise only whoever calls it would find."""
    listed = controller.cli.program.commands[name]
    assert isinstance(listed, LaterCommand)
    assert (name, listed.help) == (listed.real.name, listed.real.get_short_help_str(200))
