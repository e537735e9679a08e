"""`make trial`: the page's own commands install the chart on its cluster, start a workload, and take all away again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cache import REPOSITORY, STATE_VARIABLE
from tests.helm.tools import TOOLS
from tests.unit.pages import FENCE, section_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

READY_SECONDS = 120.0


@pytest.fixture
def trial() -> Iterator[dict[str, str]]:
    """The environment that it tells its user to work in."""
    for tool in TOOLS:
        tool.build()
    with tempfile.TemporaryDirectory(prefix="trial-", dir="/tmp") as folder:  # sockets need a short path
        env = {**os.environ, STATE_VARIABLE: folder, "PYTHONUNBUFFERED": "1"}
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


def test_the_page_leads_through_a_whole_installation(trial: dict[str, str]) -> None:
    section = section_of((REPOSITORY / "docs" / "test-cluster.md").read_text(), "## Install the chart there")
    blocks = [re.sub(f"^{indent}", "", body, flags=re.MULTILINE) for indent, _, body in FENCE.findall(section)]
    script = "".join(block for block in blocks if "make trial" not in block)
    script = script.replace(".venv/bin/python", sys.executable)
    script = script.replace(".venv/bin/longhorn-scheduler-extender", f"{sys.executable} -m controller")
    words = ["bash", "-euxo", "pipefail", "-c", script]
    done = subprocess.run(words, cwd=REPOSITORY, env=trial, capture_output=True, text=True, timeout=240, check=False)
    said = done.stdout + done.stderr
    assert 0 == done.returncode, said
    assert "ok: extender" in said
    assert "SchedulerWired" in said
    assert 3 == len(re.findall(r"filter pod=default/example-\d .*decision=offered", said)), said
    assert [] == re.findall(r"^(?:failure|warning): [a-z-]+: .*", said, re.MULTILINE)  # on a healthy installation
    assert re.search(r"^mode +active, gate (?:unproven|enforced)$", said, re.MULTILINE), said
    assert "allowed unchecked" not in said
    assert "data-example-0 patched" in said, said
    assert re.search(r"to 500 GiB .* lacks .* The largest size that fits now is \d+ GiB", said), said
    assert "no pending pod requests longhorn.io/scheduler-extender" in said
