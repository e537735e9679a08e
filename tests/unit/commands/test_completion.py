"""What shells and kubectl are told when words are to be completed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import controller.cli
from controller.commands.completion import SHELLS, complete_for_kubectl
from controller.errors import UnavailableError
from controller.kube.api import ClientKubeApi
from controller.kube.resources import PODS
from tests.fakes.apiserver import FakeApiServer
from tests.unit.pages import ROOT


@pytest.fixture(autouse=True)
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApiServer:
    made = FakeApiServer()
    for name in ("orders-0", "orders-1", "billing"):
        made.create(PODS, "shop", {"metadata": {"name": name, "namespace": "shop"}, "spec": {}})
    monkeypatch.setattr(ClientKubeApi, "load", lambda *_: made)
    return made


def completed(*words: str) -> list[str]:
    *before, last = words
    return [str(one.value) for one in ShellComplete(controller.cli.program, {}, "x", "X").get_completions(before, last)]


def test_commands_flags_and_choices_are_completed() -> None:
    assert ["capacity", "certs", "check", "completion"] == completed("c")
    assert ["claim", "pod", "volume"] == sorted(completed("explain", ""))
    assert ["--kubeconfig"] == completed("status", "--kubec")
    assert ["json"] == completed("status", "-o", "j")
    assert "check-installation" not in completed("check")


def test_pods_are_completed_by_namespace_or_behind_one(api: FakeApiServer) -> None:
    assert ["shop/orders-0", "shop/orders-1"] == completed("explain", "pod", "shop/o")
    assert ["billing"] == completed("explain", "pod", "-n", "shop", "b")
    api.fail_with(UnavailableError("away"))
    assert [] == completed("explain", "pod", "shop/o")


def test_kubectl_gets_a_candidate_per_line_and_what_else_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    found = complete_for_kubectl(controller.cli.program, ["explain", "po"])
    assert "pod\tSay why a pod waits, or where its data lies.\n:4" == found
    assert "shop/billing\n:4" == complete_for_kubectl(controller.cli.program, ["explain", "pod", "shop/b"])
    assert complete_for_kubectl(controller.cli.program, []).endswith("\n:4")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The program in the path, as it is installed."""
    path = tmp_path / "longhorn-scheduler-extender"
    lines = (f"#!{sys.executable}", f"import sys; sys.path.insert(0, {str(ROOT)!r})")
    path.write_text("\n".join((*lines, "from controller.cli import main", "sys.exit(main())\n")))
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_by_the_script_that_is_printed(
    shell: str, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == controller.cli.main(["completion", shell])
    script = capsys.readouterr().out
    assert "_LONGHORN_SCHEDULER_EXTENDER_COMPLETE" in script
    if shell != "bash":
        return
    complete = "_longhorn_scheduler_extender_completion longhorn-scheduler-extender"
    call = f"{script}\nCOMP_WORDS=(longhorn-scheduler-extender cap); COMP_CWORD=1; {complete}\n"
    bash, path = shutil.which("bash"), f"{program.parent}:{os.environ['PATH']}"
    assert bash is not None
    done = subprocess.run(
        [bash, "--norc", "-c", call + 'echo "${COMPREPLY[@]}"'],
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ("capacity", 0) == (done.stdout.strip(), done.returncode), done.stderr


def test_the_plugin_names_itself_as_kubectl_calls_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl-longhorn_scheduling", "explain", "pode"])
    assert 2 == controller.cli.plugin()
    assert "Try 'kubectl longhorn_scheduling explain --help' for help." in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-longhorn_scheduling", "stat"])
    assert 0 == controller.cli.complete_plugin()
    assert "status\tShow what the leader sees, problems first.\n:4\n" == capsys.readouterr().out
