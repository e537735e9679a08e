"""Processes of a cluster: how they are started, that they are found again, and that only ours are ended."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.components import Layout, scheduler_config
from tests.cluster.control import ControlError, ControlServer, call
from tests.cluster.process import Record, find_marked, is_alive, send, spawn, start_ticks, stop_all, wait_ended
from tests.cluster.state import ClusterState, end, find_all, inspect, own_record, write_state
from tests.cluster.supervisor import ClusterError, Supervisor, tidy_up

WAITS = "import signal; signal.pause()"
IGNORES = "import signal; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); signal.pause()"


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Record]:
    env = {**os.environ, "TEST_MARK": str(tmp_path)}
    record, child = spawn("sleeper", [sys.executable, "-c", WAITS], tmp_path / "log", env=env, cwd=tmp_path)
    yield record
    child.kill()
    child.wait()


def test_a_pid_that_now_belongs_to_another_process_is_left_alone(sleeper: Record) -> None:
    other = replace(sleeper, start_ticks=sleeper.start_ticks - 1)
    assert not is_alive(other)
    assert wait_ended(other, 0)
    send(other, signal.SIGKILL)
    assert stop_all([other], timeout=0) == []
    assert is_alive(sleeper)


def test_a_process_that_will_not_end_is_killed(tmp_path: Path) -> None:
    record, child = spawn("x", [sys.executable, "-c", IGNORES], tmp_path / "log", env=os.environ, cwd=tmp_path)
    while "ready" not in (tmp_path / "log").read_text():
        assert not wait_ended(record, 0.02)
    assert stop_all([record], timeout=0.05) == [record]
    assert child.wait() == -signal.SIGKILL


def test_a_program_with_parentheses_in_its_name_has_a_start_time(tmp_path: Path) -> None:
    program = tmp_path / "a) S (b"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    record, child = spawn("x", [str(program), "60"], tmp_path / "log", env=os.environ, cwd=tmp_path)
    try:
        assert record.start_ticks >= (start_ticks(os.getpid()) or 0) > 0
        assert is_alive(record)
    finally:
        child.kill()
        child.wait()


def test_processes_are_found_by_the_mark_in_their_environment(sleeper: Record, tmp_path: Path) -> None:
    assert find_marked("TEST_MARK", str(tmp_path)) == [sleeper.pid]
    assert find_marked("TEST_MARK", str(tmp_path / "other")) == []


def cluster_at(folder: Path, *processes: Record, kept: bool = False, owner: Record | None = None) -> Path:
    folder.mkdir()
    write_state(folder, ClusterState(folder.name, owner or own_record(), kept=kept, processes=processes))
    return folder


DEAD = Record("etcd", 2**22, 1, "")  # above the highest pid that Linux gives out


def test_what_is_left_of_a_cluster_is_told_apart(tmp_path: Path, sleeper: Record) -> None:
    cluster_at(tmp_path / "a", sleeper, kept=True)
    cluster_at(tmp_path / "b", sleeper, DEAD, kept=True)
    cluster_at(tmp_path / "c", DEAD, kept=True)
    cluster_at(tmp_path / "d", sleeper)
    cluster_at(tmp_path / "e", sleeper, owner=DEAD)
    cluster_at(tmp_path / "f", DEAD, owner=DEAD)
    (tmp_path / "unrelated").mkdir()
    conditions = {found.state.name: found.condition for found in find_all(tmp_path)}
    assert conditions == {"a": "running", "b": "damaged", "c": "dead", "d": "in use", "e": "orphaned", "f": "dead"}
    damaged = inspect(tmp_path / "b")
    assert damaged is not None
    assert f"running: sleeper (pid {sleeper.pid}); ended: etcd" in damaged.describe()


SERVES_ON_SECOND_TRY = """
import pathlib, signal, sys
folder, port = pathlib.Path(sys.argv[1]), sys.argv[2]
if not list(folder.glob("tried-*")):
    (folder / f"tried-{port}").touch()
    sys.exit("bind: address already in use")
(folder / f"ready-{port}").touch()
signal.pause()
"""


def test_a_process_whose_port_was_taken_is_started_again_on_another(tmp_path: Path) -> None:
    folder = cluster_at(tmp_path / "a")
    supervisor = Supervisor(folder)
    try:
        wait = supervisor.start_serving(
            "x",
            lambda port: [sys.executable, "-c", SERVES_ON_SECOND_TRY, str(tmp_path), str(port)],
            lambda port: (tmp_path / f"ready-{port}").exists(),
        )
        wait()
        port = supervisor.state().ports["x"]
        assert (tmp_path / f"ready-{port}").exists()
        assert not (tmp_path / f"tried-{port}").exists()
    finally:
        supervisor.end_everything(keep_files=False)


def test_a_process_that_ends_while_it_starts_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    supervisor = Supervisor(cluster_at(tmp_path / "a"))
    record = supervisor.spawn("x", [sys.executable, "-c", "import sys; sys.exit('unknown field: bogus')"])
    with pytest.raises(ClusterError, match="unknown field: bogus"):
        supervisor.wait_ready(record, lambda: False)
    with pytest.raises(ClusterError, match="not ready after 0 s"):
        supervisor.wait_ready(supervisor.spawn("y", [sys.executable, "-c", WAITS]), lambda: False, timeout=0.1)
    supervisor.end_everything(keep_files=False)
    assert not (tmp_path / "a").exists()


def test_ending_a_cluster_ends_its_processes_and_removes_its_folder(tmp_path: Path, sleeper: Record) -> None:
    folder = cluster_at(tmp_path / "a", sleeper, DEAD, kept=True)
    assert is_alive(sleeper)
    assert end(folder) == [sleeper]
    assert not is_alive(sleeper)
    assert not folder.exists()
    assert end(folder) == []


def test_a_start_names_leftovers_removes_the_dead_and_refuses_a_place_in_use(tmp_path: Path, sleeper: Record) -> None:
    cluster_at(tmp_path / "test-1", DEAD, owner=DEAD)
    cluster_at(tmp_path / "half", sleeper, DEAD, kept=True)
    cluster_at(tmp_path / "mine", DEAD, kept=True)
    said: list[str] = []
    tidy_up(tmp_path / "mine", said.append)
    assert [line.split(":")[1].strip() for line in said] == ["mine", "half", "test-1"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["half"]

    with pytest.raises(ClusterError, match="half: damaged"):
        tidy_up(tmp_path / "half", said.append)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "file").touch()
    with pytest.raises(ClusterError, match="holds no cluster"):
        tidy_up(tmp_path / "foreign", said.append)


# Command lines and configuration


def test_a_scheduler_configuration_is_completed_and_otherwise_left_alone() -> None:
    given = {"clientConnection": {"qps": 500}, "profiles": [{"schedulerName": "x"}]}
    config = scheduler_config(given, Path("/k"))
    assert config["clientConnection"] == {"qps": 500, "kubeconfig": "/k"}
    assert config["leaderElection"] == {"leaderElect": False}
    assert config["profiles"] == given["profiles"]
    assert "kubeconfig" not in given["clientConnection"]
    elects = {"leaderElect": True}
    assert scheduler_config({"leaderElection": elects}, Path("/k"))["leaderElection"] == elects


def test_a_folder_too_deep_for_a_socket_is_refused_with_its_name() -> None:
    Layout(Path("/" + "a" * 92)).check()
    with pytest.raises(ValueError, match="1 bytes too long"):
        Layout(Path("/" + "a" * 93)).check()


def test_a_helper_answers_and_passes_its_errors_on(tmp_path: Path) -> None:
    def handle(request: dict[str, object]) -> dict[str, object]:
        if request["op"] == "fail":
            raise ValueError("port: not a number")
        return {"echo": request["op"]}

    path = tmp_path / "s"
    server = ControlServer(path, handle)
    server.start()
    try:
        assert call(path, {"op": "hello"}) == {"echo": "hello"}
        with pytest.raises(ControlError, match="port: not a number"):
            call(path, {"op": "fail"})
    finally:
        server.close()
    with pytest.raises(ControlError, match="hello"):
        call(path, {"op": "hello"})
