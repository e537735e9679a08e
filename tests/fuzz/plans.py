"""Documents for the planner from random choices, and what must hold for every answer of its command."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import yaml
from hypothesis import strategies as st

from controller.plan import command
from controller.plan.reading import MEMORY_FACTOR
from controller.process.command_line import run_command
from controller.settings import MEBIBYTE
from tests.fakes.plan_documents import QUESTIONS, document
from tests.fuzz.requests import NOISE, body_of, changed, rarely

# Of 200 MiB the program itself has the rest.
_MORE_MEMORY: Final = 150 * MEBIBYTE
_MOST_CHANGES: Final = 4
_REPORTED: Final = 10_000  # runs between two lines about them
_MOST_LINES: Final = 4
_OF_THE_WHOLE: Final = ("the document is not an object", "takes more memory", "is not one of")  # a part called ""
_STATUS: Final = Path("/proc/self/status")
_FORGET_PEAK: Final = Path("/proc/self/clear_refs")
# What a value may become besides anything: the edges of what is read.
_EDGES: Final[tuple[Any, ...]] = (
    "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-01-01T00:00:60Z", "20Gi", "-1Gi", "9Ei", "1e999",
    "strict-local", "True", "\x1b[31m\x07\r\n\x7f\u202e\ud800", "a" * 5_000, 2**63, -(2**63), 10**99, 1e300, 0.5,
    "", " ", "v2", "enabled", "best-effort", "-1", "0x10", "1e3", "\u0663", None, True, 0, -1, 1, 2**53 + 1,
    [], [None], [""], ["x", "x"], [[]], {}, {"": None}, {"a": 1}, {"v1": "3"},
    {"v1": {"v1": {"v1": "3"}}}, [1], [{"type": "Ready", "status": True}],
    {"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "List", "items": []}]},
)  # fmt: skip
# What YAML has and JSON has not.
_SCRAPS: Final = (
    b"&a ", b"*a", b"- &a [*a]\n", b"<<: *a\n", b"? ", b": ", b"!!int ", b"!!binary ", b"!x ", b"---\n", b"...\n",
    b"%YAML 1.1\n", b"{", b"[", b"]", b"}", b"\n", b" ", b"\t", b"'", b'"', b"|\n", b">-\n", b"#", b"9:9:9.9", b"0x_",
    b".nan", b"- " * 300, b"[" * 300, "\u2028\ufeff".encode(), b"&a [x, x]\n- &b [*a, *a]\n- [*b, *b]\n",
)  # fmt: skip


class PlanForm(StrEnum):
    JSON = "json"
    YAML = "yaml"
    LINES = "lines"


@dataclass(frozen=True, slots=True)
class FuzzedPlan:
    """What a file holds, and how the command is asked. `clean`: the documents, where each form has the same answers."""

    form: PlanForm
    data: bytes
    is_lenient: bool
    clean: tuple[Any, ...] = ()


@st.composite
def _documents(draw: st.DrawFn) -> Any:
    found: Any = document()
    question = draw(st.sampled_from(QUESTIONS))
    if draw(rarely(4)):
        del found["question"]
        found["questions"] = [question] * draw(st.integers(0, 3))
    else:
        found["question"] = question
    for _ in range(draw(st.integers(0, _MOST_CHANGES))):
        found = _at_edge(draw, found) if draw(st.booleans()) else changed(draw, found)
    return found


def _at_edge(draw: st.DrawFn, raw: Any) -> Any:
    """With one value below it replaced by an edge."""
    if isinstance(raw, dict) and raw:
        key = draw(st.sampled_from(sorted(raw)))
        return {**raw, key: _at_edge(draw, raw[key])}
    if isinstance(raw, list) and raw and not draw(rarely(8)):
        index = draw(st.integers(0, len(raw) - 1))
        return [*raw[:index], _at_edge(draw, raw[index]), *raw[index + 1 :]]
    return draw(st.sampled_from(_EDGES))


@st.composite
def _yaml_of(draw: st.DrawFn, raw: Any) -> bytes:
    """Block, flow or quoted, with aliases where Python has one object twice; often with scraps in it."""
    style = draw(st.sampled_from(("", '"')))
    data = _as_yaml(raw, default_flow_style=draw(st.booleans()), default_style=style or None)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        cut = draw(st.sampled_from((0, 0, 1, 20)))
        data = data[:at] + draw(st.sampled_from(_SCRAPS) | NOISE) + data[at + cut :]
    return data


def _as_yaml(raw: Any, **how: Any) -> bytes:
    """By the C library where it can: it knows no half characters, and writes wrong tags where all is quoted."""
    if not how.get("default_style"):
        with contextlib.suppress(UnicodeEncodeError, AttributeError):
            return _text(yaml.dump(raw, Dumper=yaml.CSafeDumper, allow_unicode=True, sort_keys=False, **how))
    return _text(yaml.dump(raw, Dumper=yaml.SafeDumper, allow_unicode=True, sort_keys=False, **how))


def _text(given: str) -> bytes:
    return given.encode(errors="surrogatepass")


@st.composite
def plans(draw: st.DrawFn) -> FuzzedPlan:
    form, is_lenient = draw(st.sampled_from(PlanForm)), draw(st.booleans())
    if draw(rarely(20)):
        return FuzzedPlan(form, draw(NOISE), is_lenient)
    if form is PlanForm.LINES:
        documents = draw(st.lists(_documents(), min_size=1, max_size=_MOST_LINES))
        if draw(st.booleans()):
            return FuzzedPlan(form, b"\n".join(map(_compact, documents)), is_lenient, _clean(*documents))
        blanks = st.sampled_from((b"", b"\n", b" \t\n", b"\r\n"))
        return FuzzedPlan(form, b"\n".join(draw(blanks) + body_of(draw, raw) for raw in documents), is_lenient)
    raw = draw(_documents())
    if form is PlanForm.JSON:
        return FuzzedPlan(form, _compact(raw) if draw(st.booleans()) else body_of(draw, raw), is_lenient)
    return FuzzedPlan(form, draw(_yaml_of(raw)), is_lenient)


def _compact(raw: Any) -> bytes:
    return json.dumps(raw).encode()


def _clean(*documents: Any) -> tuple[Any, ...]:
    """The documents, if all can be written in each form: neither NaN nor half a character."""
    try:
        json.dumps(documents, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return ()
    return documents if all(isinstance(raw, dict) for raw in documents) else ()


class PlanTarget:
    """The command, run in this process on files of its own. `runs`, `peak_bytes`: how often, and the most memory that
    one of them took."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name) / "question"
        self.runs, self.peak_bytes = 0, 0

    def throw_all(self, throws: list[FuzzedPlan]) -> None:
        for plan in throws:
            self.throw(plan)

    def throw(self, plan: FuzzedPlan) -> int:
        """Ask and judge the answer; the exit code. AssertionError: something does not hold."""
        code, out, _ = self._ask(plan.data, plan.form, is_lenient=plan.is_lenient)
        if plan.clean and code == 0:
            for raw, line in zip(plan.clean, out.splitlines(), strict=True):
                self._compare(raw, json.loads(line), is_lenient=plan.is_lenient)
        return code

    def _compare(self, raw: Any, answer: Any, *, is_lenient: bool) -> None:
        """One document has one answer, whichever form it stands in; only the time may pass."""
        del answer["line"]
        if "now" not in raw:
            return
        for form, data in ((PlanForm.JSON, _compact(raw)), (PlanForm.YAML, _as_yaml(raw, default_style='"'))):
            code, out, err = self._ask(data, form, is_lenient=is_lenient)
            if "error" in answer:
                same = answer["error"].replace("is not JSON:", f"is not {form.upper()}:")
                assert 2 == code and err.startswith(f"{self._path}: {same}"), f"{form}: {err} {answer}"
            else:
                assert 0 == code, f"{form}: {err}"
                assert answer == json.loads(out), form

    def _ask(self, data: bytes, form: PlanForm, *, is_lenient: bool) -> tuple[int, str, str]:
        self._path.write_bytes(data)
        options = ["--lenient"] * is_lenient + ["--lines"] * (form is PlanForm.LINES)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code, taken = _measured(lambda: run_command(command.command, [*options, str(self._path)]))
        self.runs += 1
        self.peak_bytes = max(self.peak_bytes, taken)
        if self.runs % _REPORTED == 0:
            print(f"{self.runs} runs of the planner, at most {self.peak_bytes >> 10} KiB for one", file=sys.stderr)
        self._judge(data, form, code, out.getvalue(), err.getvalue())
        assert taken <= MEMORY_FACTOR * len(data) + _MORE_MEMORY, f"{taken} bytes of memory for {len(data)}"
        return code, out.getvalue(), err.getvalue()

    def _judge(self, data: bytes, form: PlanForm, code: int, out: str, err: str) -> None:
        assert command.FAULT not in out and command.FAULT not in err, out + err
        assert out.isascii() and out.replace("\n", "").isprintable(), "a control character"
        lines = err.splitlines()
        assert all(line.startswith(f"{self._path}: ") and line.isprintable() for line in lines), err
        if code:
            assert (2, "", 1) == (code, out, err.count("\n")) and form is not PlanForm.LINES, (code, err)
            said = err.removeprefix(f"{self._path}: ")
            assert ": " in said or said.startswith(_OF_THE_WHOLE), f"neither object nor field is named: {said}"
        elif form is PlanForm.LINES:
            numbers = [number for number, line in enumerate(io.BytesIO(data), 1) if line.strip()]
            answers = [json.loads(line) for line in out.splitlines()]
            assert numbers == [answer["line"] for answer in answers]
            assert all(answer.keys() - {"line"} for answer in answers)
        else:
            assert json.loads(out).keys() & {"steps", "admitted", "nodes", "answers"}


def _measured(ask: Callable[[], int]) -> tuple[int, int]:
    """Its result, and how much more memory the process had meanwhile than before."""
    _FORGET_PEAK.write_text("5")
    before = _memory("VmRSS")
    found = ask()
    return found, _memory("VmHWM") - before


def _memory(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


THROWS: Final = st.lists(plans(), min_size=1, max_size=3)
