"""`make trial`: the page's own commands install the chart on its cluster, start a workload, and take all away again."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs.authority import LeafSpec, make_authority, sign
from tests.cluster.cache import REPOSITORY, STATE_VARIABLE
from tests.e2e import workloads
from tests.helm.tools import TOOLS
from tests.helm.trial import FIRST
from tests.unit.pages import FENCE, section_of
from tests.waiting import wait_equal, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

READY_SECONDS = 120.0
FOUND_SECONDS = 60.0
PROGRAM = "longhorn-scheduler-extender"
PAGES = ("tasks", "operations", "command", "simulate", "bundle", "status")  # whose commands are run one by one
# What the words of the pages stand for in the trial, the first that matches.
STAND_FOR = {
    r"pod NAMESPACE/NAME|pod NAME\b": "pod example-0 -n default",
    r"claim NAMESPACE/NAME": "claim default/data-example-0",
    r"volume NAME\b": "volume $(kubectl get pvc data-example-0 -o jsonpath='{.spec.volumeName}')",
    r"\bNAMESPACE\b": "default",
    r"\bCLAIM\b": "data-example-0",
    r"shop/data\b": "default/data-example-0",
    r"\bapp\.yaml": "app.yaml -n elsewhere",
}
# Without end, of another shell, of a program or an object that is not here.
NOT_HERE = re.compile(r"--watch|completion (?:zsh|fish)|krew|port-forward|create configmap")
WRITES = re.compile(r"kubectl .*\b(?:patch|label|create) (?!.*--dry-run)")
# A leader that follows another one admits growth after a minute.
HURRIED = "import controller.allocator.verbs.grow as grow\ngrow.UNKNOWN_SECONDS = 1.0"


@pytest.fixture
def trial() -> Iterator[dict[str, str]]:
    """The environment that it tells its user to work in."""
    for tool in TOOLS:
        tool.build()
    with tempfile.TemporaryDirectory(prefix="trial-", dir="/tmp") as folder:  # sockets need a short path
        env = {**os.environ, STATE_VARIABLE: folder, "PYTHONUNBUFFERED": "1", FIRST: HURRIED}
        log = Path(folder, "trial.txt")
        with log.open("wb") as out:
            words = [sys.executable, "-m", "tests.helm.trial"]
            running = subprocess.Popen(words, cwd=REPOSITORY, env=env, stdout=out, stderr=out)

        def exports() -> str:
            assert running.poll() is None, log.read_text()
            return "".join(re.findall(r"^ +export (.*)$", log.read_text(), re.MULTILINE))

        try:
            line = wait_until(exports, "word of how to reach it", READY_SECONDS)
            said = dict(word.split("=", 1) for word in line.split())
            yield {**env, **said, "PATH": said["PATH"].replace("$PATH", env["PATH"])}
            running.send_signal(signal.SIGINT)
            assert 0 == running.wait(60), log.read_text()
        finally:
            if running.poll() is None:
                running.terminate()
                running.wait(60)


class TrialShell:
    """A terminal with the trial's environment, in the clone."""

    def __init__(self, env: dict[str, str]) -> None:
        self._env = env

    def run(self, script: str) -> str:
        """What it says, however it ends."""
        return self._run(script).stdout

    def follow(self, blocks: list[str]) -> str:
        """What a person's commands say, each of which has to succeed."""
        done = self._run("set -euxo pipefail\n" + "".join(blocks))
        assert 0 == done.returncode, done.stdout
        return done.stdout

    def _run(self, script: str) -> subprocess.CompletedProcess[str]:
        script = script.replace(".venv/bin/python", sys.executable)
        words, pipe = ["bash", "-c", script], subprocess.PIPE
        return subprocess.run(
            words,
            cwd=REPOSITORY,
            env=self._env,
            stdout=pipe,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
            check=False,
        )

    def findings(self, seconds: int = 0) -> list[tuple[str, str, str, str]]:
        """The lines of `check` that are not ok: outcome, what, text, hint."""
        lines = json.loads(self.run(f"{PROGRAM} check --wait-seconds {seconds} -o json 2>/dev/null"))
        found = [tuple(line[key] for key in ("outcome", "what", "text", "hint")) for line in lines]
        return [one for one in found if one[0] in ("failure", "warning")]


def blocks_of(heading: str) -> list[str]:
    section = section_of((REPOSITORY / "docs" / "test-cluster.md").read_text(), heading)
    blocks = [re.sub(f"^{indent}", "", body, flags=re.MULTILINE) for indent, _, body in FENCE.findall(section)]
    return [block for block in blocks if "make trial" not in block]


def commands_of(page: str) -> list[str]:
    """Those in the blocks of a page of docs/ and those within its text, as they are run here; writes are dry runs."""
    text = (REPOSITORY / "docs" / f"{page}.md").read_text()
    lines = [line for _, kind, body in FENCE.findall(text) if kind == "console" for line in joined(body).splitlines()]
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", FENCE.sub("", text))]
    found = [*lines, *(span for span in spans if re.match(f"{PROGRAM} [a-z]", span))]
    commands = []
    for line in found:
        command = re.sub(r"\s+# .*|^# .*", "", line)
        if not re.match(rf"(?:kubectl|{PROGRAM}|eval) ", command) or NOT_HERE.search(command):
            continue
        for pattern, here in STAND_FOR.items():
            command = re.sub(pattern, here, command)
        commands.append(f"{command} --dry-run=server" if WRITES.match(command) else command)
    return list(dict.fromkeys(commands))


def joined(block: str) -> str:
    return re.sub(r"\\\n *", "", block)


def ended_keys() -> dict[str, str]:
    """Of a kube-scheduler's file: everything ended yesterday."""
    then = datetime.now(UTC) - timedelta(days=2)
    authority = make_authority("ca", timedelta(days=1), then)
    client = sign(authority, LeafSpec("kube-scheduler", timedelta(days=1), is_client=True), then)
    parts = {"caData": authority.certificate, "certData": client.certificate, "keyData": client.key}
    return {name: base64.b64encode(part).decode() for name, part in parts.items()}


def in_a_config_map(name: str, *profiles: str, **tls: str) -> str:
    """The command that puts a kube-scheduler's configuration into a ConfigMap, as some installers do."""
    document = {
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": profile} for profile in profiles],
        "extenders": [{"urlPrefix": "https://longhorn-scheduler-extender:9504", "tlsConfig": tls}],
    }
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "kube-system"}}
    return f"kubectl apply -f - <<'END'\n{json.dumps({**data, 'data': {'config.yaml': json.dumps(document)}})}\nEND\n"


# The leader's pod is deleted, and another copy leads.
CHANGE_OF_LEADER = """
lease=longhorn-manager-disk-scheduler-lock
holder() { kubectl -n longhorn-system get lease $lease -o jsonpath='{.spec.holderIdentity}'; }
former=$(holder)
kubectl -n longhorn-system delete pod "${former%_*}"
until [ -n "$(holder)" ] && [ "$(holder)" != "$former" ]; do sleep 0.5; done
kubectl -n longhorn-system rollout status deployment longhorn-scheduler-extender --timeout 60s
"""
LEADING, STOPPED = " decisions: term decision=leading ", " controller.assembly.lifecycle: stopped"
COMPLAINT = re.compile(r"(\S+Z) (?:WARNING|ERROR|CRITICAL) ")


def logs_of(folder: Path) -> dict[str, str]:
    """Of all copies of the product that there have been."""
    texts = {log.name: log.read_text() for log in folder.glob("longhorn-scheduler-*.log")}
    return {name: text for name, text in texts.items() if " INFO " in text}


def complaints_of(folder: Path, since: datetime) -> list[str]:
    """What they have logged since then that asks for a person's attention."""
    found = []
    for name, text in sorted(logs_of(folder).items()):
        for line in text.splitlines():
            said = COMPLAINT.match(line)
            if said is not None and datetime.fromisoformat(said[1]) >= since:
                found.append(f"{name}: {line}")
    return found


PLACEMENT, GATE = "longhorn-scheduler-extender-placement", "longhorn-scheduler-extender-gate"
RIGHTS = f"rolebinding/{PLACEMENT} clusterrolebinding/{PLACEMENT}"
# The leader makes the binding again at once, unless it has lost the right to.
BREAK = f"""
kubectl -n longhorn-system get {RIGHTS} -o json > $TRIAL/rights.json
kubectl delete -f $TRIAL/rights.json
kubectl delete validatingadmissionpolicybinding {GATE}
kubectl -n longhorn-system scale deployment longhorn-scheduler-webhook --replicas=0
.venv/bin/python -m tests.cluster scheduler --name trial
kubectl apply -f $TRIAL/asks.json
"""
MEND = """
kubectl create -f $TRIAL/rights.json
kubectl -n longhorn-system scale deployment longhorn-scheduler-webhook --replicas=2
kubectl -n kube-system delete configmap batch old
kubectl delete pod asks --now
.venv/bin/python -m tests.cluster scheduler --name trial "$TRIAL/scheduler-extender.yaml"
"""
# Outcome, subject, and a part of text and of hint.
FINDINGS = (
    ("failure", "gate", f"there is no ValidatingAdmissionPolicyBinding {GATE}", "its rights"),
    ("failure", "rights", "the account longhorn-scheduler-extender may not", "docs/security.md"),
    ("failure", "webhook copies", "there is no pod of longhorn-scheduler-webhook", "describe deployment"),
    ("failure", "growth", "the API server does not reach the webhook", "webhook copies"),
    ("failure", "wiring", "default-scheduler does not ask the extender", "docs/kube-scheduler.md"),
    ("warning", "profiles", "has the profile batch, which --scheduler-names does not list", "schedulerNames"),
    ("failure", "certificate", "has ended: it is valid from", "docs/kube-scheduler.md"),
)


def test_the_page_leads_through_a_whole_installation_whose_faults_are_found(trial: dict[str, str]) -> None:
    shell, folder, began = TrialShell(trial), Path(trial["TRIAL"]), datetime.now(UTC)
    *blocks, uninstall = blocks_of("## Install the chart there")
    said = shell.follow(blocks)
    for what in ("leader", "endpoints", "wiring", "extender", "webhook", "growth", "gate", "rights", "status"):
        assert len(re.findall(rf"^ok +{what} ", said, re.MULTILINE)) >= 2, said  # by a person, and by `helm test`
    assert not re.findall(r"^(?:warning|failure) .*", said, re.MULTILINE), said
    assert 3 == len(re.findall(r"filter pod=default/example-\d .*decision=offered", said)), said
    assert [] == re.findall(r"^(?:failure|warning): [a-z-]+: .*", said, re.MULTILINE)  # on a healthy installation
    assert re.search(r"^mode +active, gate (?:unproven|enforced)$", said, re.MULTILINE), said
    assert "allowed unchecked" not in said
    assert "data-example-0 patched" in said, said
    assert re.search(r"to 500 GiB: .* lacks .* The largest size that fits now is \d+ GiB", said), said

    assert re.search(r"default/too-large requests 900 GiB, .* 400 GiB", said), said
    assert [] == failing_commands(shell, folder)

    shell.follow([CHANGE_OF_LEADER])
    wait_until(lambda: sum(text.count(LEADING) for text in logs_of(folder).values()) == 2, "a second leader", 30)
    assert [] == complaints_of(folder, began)

    batch, old = in_a_config_map("batch", "batch"), in_a_config_map("old", "default-scheduler", **ended_keys())
    asks = workloads.pod("asks", opted_in=True)  # which a kube-scheduler that asks nobody cannot place
    Path(trial["TRIAL"], "asks.json").write_text(json.dumps(asks))
    shell.follow([BREAK, batch, old])
    wait_equal([], lambda: missing(shell), FOUND_SECONDS)
    shell.follow([MEND])
    assert [] == shell.findings(60)
    since = datetime.now(UTC)
    assert "no pending pod requests longhorn.io/scheduler-extender" in shell.follow([uninstall])
    leaders = [name for name in logs_of(folder) if "webhook" not in name]
    wait_until(lambda: all(STOPPED in logs_of(folder)[name] for name in leaders), "the end of all copies", 60)
    assert [] == complaints_of(folder, since)


def missing(shell: TrialShell) -> list[tuple[str, str, str, str]]:
    """Which of the findings `check` does not have."""
    lines = shell.findings()
    return [
        (outcome, what, text, hint)
        for outcome, what, text, hint in FINDINGS
        if not any((outcome, what) == line[:2] and text in line[2] and hint in line[3] for line in lines)
    ]


def failing_commands(shell: TrialShell, folder: Path) -> list[str]:
    """Of the pages: those that are misuse, or end by a fault or without the leader, with what they say."""
    workload = (REPOSITORY / "docs" / "examples" / "workload.yaml").read_text()
    (folder / "app.yaml").write_text(workload.replace("  namespace: default\n", ""))
    pages = {page: commands_of(page) for page in PAGES}
    assert all(pages.values()), pages
    failing = []
    for command in dict.fromkeys(command for commands in pages.values() for command in commands):
        said = shell.run(f"cd $TRIAL\n{command}\nprintf '\\nexit code %s\\n' $?")
        good = "01" if command.startswith(PROGRAM) else "0"  # 1: a finding
        if not re.search(f"^exit code [{good}]$", said, re.MULTILINE):
            failing.append(f"{command}: {said}")
    return failing
