"""The committed generated code is what the compiler makes of the committed .proto file."""

from __future__ import annotations

from pathlib import Path

import pytest
from grpc_tools import protoc

ROOT = Path(__file__).parents[3]
PROTO = Path("controller/rpc/disk_scheduler.proto")


@pytest.mark.parametrize("name", ["disk_scheduler_pb2.py", "disk_scheduler_pb2.pyi"])
def test_the_generated_code_is_current(name: str, tmp_path: Path) -> None:
    arguments = ["protoc", f"-I{ROOT}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(ROOT / PROTO)]
    assert 0 == protoc.main(arguments)

    expected = (tmp_path / PROTO.parent / name).read_text()
    assert expected == (ROOT / PROTO.parent / name).read_text(), "run `make proto`"
