"""How the stand-in asks the disk scheduler."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from certs.authority import LeafSpec
from controller.rpc import disk_scheduler_pb2 as pb
from tests.longhorn.asked import AskedScheduler, GivenDisk
from tests.unit.rpc.leaders import NAME, Chain
from tests.unit.serving.tls_files import DAY


class LeaderBehindService(grpc.GenericRpcHandler):
    """The first connection leads to one that serves and does not lead, every other one to the leader."""

    def __init__(self) -> None:
        self.peers = list[str]()  # of each call

    def service(self, call: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            self._answer, pb.ScheduleReplicaRequest.FromString, pb.ScheduleReplicaReply.SerializeToString
        )

    def _answer(self, request: Any, context: grpc.ServicerContext) -> pb.ScheduleReplicaReply:
        self.peers.append(context.peer())
        if context.peer() == self.peers[0]:
            context.abort(grpc.StatusCode.UNAVAILABLE, "this process does not lead")
        return pb.ScheduleReplicaReply(allocation=pb.Allocation(name=request.replica_name, node="n1", disk_uuid="u1"))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[LeaderBehindService, AskedScheduler]]:
    chain, handler = Chain(), LeaderBehindService()
    client = chain.leaf(LeafSpec("manager", DAY, is_client=True))
    for name, content in (("tls.crt", client.certificate), ("tls.key", client.key), ("ca.crt", client.client_ca)):
        (tmp_path / name).write_bytes(content)
    server = grpc.server(futures.ThreadPoolExecutor(2), [handler])
    pair = (chain.server.key, chain.server.certificate)
    credentials = grpc.ssl_server_credentials([pair], chain.ca.certificate, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    told = tmp_path / "asked.json"
    told.write_text(json.dumps({"address": f"127.0.0.1:{port}", "name": NAME, "folder": str(tmp_path)}))
    yield handler, AskedScheduler(str(told))
    server.stop(None).wait(20)


def test_one_that_does_not_lead_is_left_by_a_new_connection(
    served: tuple[LeaderBehindService, AskedScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, asked = served
    monkeypatch.setattr("tests.longhorn.asked.PATIENCE_SECONDS", 10.0)
    for _ in range(2):  # it stays with the leader then
        assert GivenDisk("n1", "u1") == asked.schedule_replica("v", "v-r-1")
    assert (3, 2) == (len(handler.peers), len(set(handler.peers)))
