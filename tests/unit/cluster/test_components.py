"""Command lines and configuration of the control plane's processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.components import Layout, scheduler_config
from tests.cluster.control import ControlError, ControlServer, call


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
