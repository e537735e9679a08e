"""What a question may cost: ten times its own size and 200 MiB of memory, whatever stands in it."""

from __future__ import annotations

import io
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from controller.plan import reading
from controller.plan.complaints import InputError
from controller.plan.reading import MemoryBound, read_document, read_lines
from controller.settings import MEBIBYTE
from tests.fakes.saved import node, replica, volume

ROOT = Path(__file__).parents[3]
# The most that the process ever had, and not the one that started it.
ASK = """
import sys
from pathlib import Path
from controller.plan.command import command
from controller.process.command_line import run_command
code = run_command(command)
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(status["VmHWM"].split()[0], file=sys.stderr)
sys.exit(code)
"""


def asked(given: bytes, *arguments: str) -> tuple[int, bytes, list[bytes], int]:
    """Exit code, output, lines of standard error, and KiB of memory."""
    command = [sys.executable, "-c", ASK, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=100, cwd=ROOT)
    *lines, peak = done.stderr.splitlines()
    return done.returncode, done.stdout, lines, int(peak)


def nested(levels: int) -> bytes:
    value = '{"v1":' * levels + '"x"' + "}" * levels
    return b'{"objects": [], "settings": {"default-replica-count": ' + value.encode() + b"}}"


QUESTION = {"schedule": {"volume": "v", "replicas": ["r1"] * 100}}
NODES = [{"metadata": {"name": f"n{index}"}} for index in range(20_000)]
NODE_LIST = {"apiVersion": "longhorn.io/v1beta2", "kind": "NodeList", "items": NODES}
INPUTS: dict[str, tuple[bytes, bytes]] = {
    "settings within settings": (nested(24), b"is not a string, number or boolean: an object"),
    "many small lists": (b'{"objects": [' + b"[]," * 8_000_000 + b"[]]}", b"takes more memory"),
    "a YAML of many small values": (b"objects:\n" + b"- {a: b}\n" * 200_000, b"objects[0].apiVersion"),
    "few nodes, many replicas": (
        json.dumps({"objects": [NODE_LIST, volume(), replica("r1")], "question": QUESTION}).encode(),
        b"takes more memory",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.long] * (one == "few nodes, many replicas")) for one in INPUTS]
)
def test_memory_is_bounded_by_the_inputs_size(name: str) -> None:
    given, problem = INPUTS[name]
    code, out, lines, peak_kib = asked(given)
    assert (2, b"", 1) == (code, out, len(lines))
    assert problem in lines[0]
    assert peak_kib * 1024 <= 10 * len(given) + 200 * MEBIBYTE


@pytest.mark.long
@pytest.mark.slow
def test_a_line_that_takes_too_much_ends_no_other() -> None:
    question = {"schedule": {"volume": "v", "replicas": []}}
    document = {"objects": [node("n1"), volume(), replica("r1")], "question": question}
    good = json.dumps(document).encode()
    large = INPUTS["many small lists"][0]
    code, out, lines, peak_kib = asked(b"\n".join([good, large, good, large, good]), "--lines")
    answers = [json.loads(line) for line in out.splitlines()]
    assert (0, []) == (code, lines)
    assert [{"line", "steps"}, {"line", "error"}] * 2 + [{"line", "steps"}] == [entry.keys() for entry in answers]
    assert peak_kib * 1024 <= 10 * len(large) + 200 * MEBIBYTE


def test_the_bound_is_gone_afterwards() -> None:
    bound = MemoryBound()
    with pytest.raises(InputError, match="takes more memory"), bound.of(0):
        raise MemoryError
    assert 400 * MEBIBYTE == len(bytearray(400 * MEBIBYTE))


def test_the_bound_goes_by_the_longest_line_so_far() -> None:
    """What that one took may be free, and still be the process's."""
    bound, limits = MemoryBound(), []
    for length in (0, MEBIBYTE, 0):
        with bound.of(length):
            limits.append(resource.getrlimit(resource.RLIMIT_DATA)[0])
    assert [0, 10 * MEBIBYTE, 10 * MEBIBYTE] == [limit - limits[0] for limit in limits]


def test_what_has_no_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_BYTES", 10)
    assert b"x" * 10 == read_document(io.BytesIO(b"x" * 10))
    with pytest.raises(InputError, match="is longer than"):
        read_document(io.BytesIO(b"x" * 11))
    given = b"a\n\n" + b"b" * 11 + b"\n" + b"c" * 10 + b"\n \n" + b"d" * 30
    assert [(1, b"a\n"), (3, None), (4, None), (6, None)] == list(read_lines(io.BytesIO(given)))
