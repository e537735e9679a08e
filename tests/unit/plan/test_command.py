"""`plan` as a command: files, standard input, JSON lines, exit codes, what is said to people."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.plan import command as plan
from controller.process.command_line import run_command
from tests.fakes.saved import Raw, ask, core, longhorn, node, places, replica, setting, volume

QUESTION = {"schedule": {"volume": "v", "replicas": ["r1"]}}
ROOT = Path(__file__).parents[3]


def document(*more: Raw, **parts: Any) -> Raw:
    return {"objects": [node("n1"), volume(), replica("r1"), *more], "question": QUESTION, **parts}


def saved(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8", errors="surrogatepass")  # half of a pair is no UTF-8
    return str(path)


def chosen(output: str | bytes) -> str:
    scheduled = json.loads(output)["steps"][0]["scheduled"]
    return f"{scheduled['node']}/{scheduled['disk']}"


OF_W = {"expand": {"volume": "w"}}
AskFile = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AskFile:
    """Ask about a file with that text or document. Exit code, output, and standard error, where `FILE` is its name."""

    def asked(given: str | Raw, *arguments: str) -> tuple[int, str, str]:
        path = saved(tmp_path / "question", given if isinstance(given, str) else json.dumps(given))
        code, said = run_command(plan.command, [*arguments, path]), capsys.readouterr()
        return code, said.out, said.err.replace(path, "FILE")

    return asked


def test_the_process_answers_a_file_on_standard_output(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "controller", "plan", saved(tmp_path / "question.json", json.dumps(document()))]
    done = subprocess.run(words, capture_output=True, check=False, timeout=120, cwd=ROOT)
    assert (0, b"", "n1/d1") == (done.returncode, done.stderr, chosen(done.stdout))


def test_a_reader_that_has_enough_is_no_error() -> None:
    given = json.dumps(document()) + "\n"
    pipe, words = subprocess.PIPE, [sys.executable, "-m", "controller", "plan", "--lines", "-"]
    process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT)
    with process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdout.close()
        process.stdin.write(given.encode() * 50)
        process.stdin.close()
        assert (0, b"") == (process.wait(60), process.stderr.read())


@pytest.mark.parametrize("arguments", [(), ("-",), ("--lines",), ("--strict",)])
def test_standard_input_is_read_without_a_file(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = yaml.safe_dump(document()) if arguments == ("-",) else json.dumps(document())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert 0 == run_command(plan.command, arguments)
    out, err = capsys.readouterr()
    assert ("n1/d1", "") == (chosen(out), err)


def test_bad_input_ends_with_2_and_names_file_object_and_field(ask_file: AskFile) -> None:
    code, out, err = ask_file(document(volume("w", size="10Gi"), question=OF_W))
    assert (2, "", 1) == (code, out, err.count("\n"))
    assert err.startswith("FILE: Volume longhorn-system/w: spec.size: ")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the document is not an object"),
        ("[]", "the document is not an object"),
        ("{", "is not JSON"),
        ('{"objects": NaN}', "is not JSON"),
        ('{"objects": 1e999}', "objects: is not a list"),
        ('{"now": ' + "9" * 5000 + "}", "is not JSON"),
        ("{" + '"a":[' * 100_000, "is not JSON"),
        ("- " * 100_000, "is not YAML"),
        ("a: b: c", "is not YAML: mapping values are not allowed"),
        ("a: 2026-99-99\n", "a: is not one of"),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "is not JSON: 'b' stands there twice"),
        ("now: " + ":".join("9" * 400) + ".5\n", "objects: is missing"),
        ('{"' + "x" * 10_000 + '": 1}', "x...: is not one of"),
        ("\ud8ff", "is not UTF-8 text"),
    ],
)
def test_what_is_no_document_is_refused(ask_file: AskFile, text: str, problem: str) -> None:
    code, out, err = ask_file(text)
    assert (2, "") == (code, out)
    assert err.startswith("FILE: ") and problem in err


def test_strict_is_the_default(ask_file: AskFile) -> None:
    complaint = "FILE: settings.log-level: nothing is decided by it\n"
    for arguments, code in (((), 2), (("--strict",), 2), (("--lenient",), 0)):
        found, out, err = ask_file(document(settings={"log-level": "x"}), *arguments)
        assert (code, code == 0, complaint) == (found, bool(out), err)


EVIL = "w\x1b]0;x\x07\r\n\x7f\u009b31m\u202e"


@pytest.mark.parametrize(
    "parts",
    [
        {"objects": [volume(EVIL, size="x")]},
        {"objects": [{"apiVersion": "v1", "kind": EVIL, "metadata": {"name": "a"}}, *document()["objects"]]},
        {"objects": [node(EVIL), volume(), replica("r1")]},
        {"objects": [node("n1", disks={EVIL: {}}), volume(), replica("r1")]},
        {"settings": {EVIL: "x"}},
        {"longhornVersion": EVIL},
        {EVIL: 1},
        {"question": {EVIL: {}}},
        {"question": {"schedule": {"volume": EVIL, "replicas": []}}},
    ],
)
def test_no_control_character_reaches_a_terminal(ask_file: AskFile, parts: Raw) -> None:
    for arguments in ((), ("--lenient",), ("--lines",), ("--lines", "--lenient")):
        _, out, err = ask_file({**document(), **parts}, *arguments)
        assert out.replace("\n", "").isprintable() and out.isascii()
        assert err.replace("\n", "").isprintable() and all(line.startswith("FILE: ") for line in err.splitlines())
        assert not any(line.startswith("FILE: 2") for line in err.splitlines())


def test_nor_does_one_of_a_files_name_or_an_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = run_command(plan.command, [str(tmp_path / EVIL)]), capsys.readouterr().err
    assert (2, 1) == (code, err.count("\n")) and err.strip().isprintable()
    assert 2 == run_command(plan.command, ["a", EVIL])
    assert capsys.readouterr().err.replace("\n", "").isprintable()


def test_remarks_have_an_end(ask_file: AskFile) -> None:
    kinds = [{"apiVersion": "x/v1", "kind": f"K{index}", "metadata": {"name": "a"}} for index in range(1_200)]
    settings = {f"setting-{index}": "x" for index in range(1_200)}
    code, _, err = ask_file(document(*kinds, settings=settings), "--lenient")
    lines = err.splitlines()
    assert (0, 1_002) == (code, len(lines))
    assert "more than 1000 remarks" in lines[-2] and lines[-1].endswith("1180 more kinds")


# Each in the middle of others. What stands behind an error of ours would be our fault.
BAD_LINES: list[tuple[str, str]] = [
    (json.dumps(document(now="0001-01-01T00:00:00+14:00")), "now"),
    (
        json.dumps(document(volume("w", nodeID="@"), question=OF_W)).replace('"@"', "[" * 900 + "]" * 900),
        "is not a string: a list",
    ),
    ("[" * 100_000, "is not JSON"),
    (json.dumps(document()).encode().decode() + " x", "is not JSON: Extra data: line 1"),
    (json.dumps(document(question={"expand": {"volume": "v", "size": 10**300}})), "is not JSON: a number of too many"),
    ("null", "the document is not an object"),
    ("{", "is not JSON"),
    (json.dumps(document(question={})), "question: is not exactly one of"),
    ("\udcff", "is not UTF-8 text"),
]


def test_a_bad_line_ends_no_other(ask_file: AskFile) -> None:
    good = json.dumps(document(node("n0")))
    lines = [text for bad, _ in BAD_LINES for text in (bad, "", good)]
    code, out, err = ask_file("\r\n".join(lines), "--lines")
    answers = {entry["line"]: entry for entry in map(json.loads, out.splitlines())}
    assert (0, 1) == (code, err.count("\n"))  # which tells of the one that is left out
    for index, (_, problem) in enumerate(BAD_LINES):
        assert problem in answers[3 * index + 1]["error"]
        assert plan.FAULT not in answers[3 * index + 1]["error"]
        assert "n0" == answers[3 * index + 3]["steps"][0]["scheduled"]["node"]


def test_a_fault_of_ours_is_one_line_too(ask_file: AskFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("by\n0")

    monkeypatch.setattr(plan, "decode_document", fail)
    problem = f"{plan.FAULT}: ZeroDivisionError: by\\n0"
    assert (2, "", f"FILE: {problem}\n") == ask_file("{}")
    assert {"line": 1, "error": problem} == json.loads(ask_file("{}", "--lines")[1])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path / "absent", tmp_path):
        assert 2 == run_command(plan.command, [str(path)])
        assert ("", True) == ((said := capsys.readouterr()).out, said.err.startswith(f"{path}: "))


@pytest.mark.parametrize(
    "text", [yaml.safe_dump(document()) + "now: 2026-01-01T12:00:00Z\n", "\ufeff" + json.dumps(document())]
)
def test_a_time_without_quotes_and_a_byte_order_mark_are_no_errors(ask_file: AskFile, text: str) -> None:
    code, out, _ = ask_file(text)
    assert (0, "n1/d1") == (code, chosen(out))


def test_what_was_not_read_is_said_once_at_the_end(ask_file: AskFile) -> None:
    engine = longhorn("Engine", "e")
    pod_list = {"apiVersion": "apps/v1", "kind": "DeploymentList", "items": [{"metadata": {"name": "a"}}] * 2}
    line = json.dumps(document(engine, pod_list, settings={"replica-soft-antiaffinity": True}))
    code, out, err = ask_file(f"{line}\n{line}\n", "--lenient", "--lines")

    assert (0, 2) == (code, len(out.splitlines()))
    assert [
        "FILE: settings.replica-soft-antiaffinity: nothing is decided by it, replica-soft-anti-affinity is read",
        "FILE: objects of kinds that nothing is decided by: 4 Deployment.apps, 2 Engine.longhorn.io",
    ] == err.splitlines()


@pytest.mark.parametrize(
    ("given", "warning"),
    [
        (document(longhornVersion="v1.8.2"), "not supported: Longhorn v1.8.2 is older than v1.9.0"),
        (document(longhornVersion="v1.9.0"), ""),
        (document(settings={"current-longhorn-version": "master-head"}), "'master-head' is not a version"),
        (document(), ""),
        (document(setting("scheduler-extender-enabled", "true")), "not supported: this Longhorn has a scheduler ext"),
        (document(longhorn("DiskSchedule", "uuid-1")), "not supported: this Longhorn has a disk scheduler of its own"),
    ],
)
def test_a_longhorn_that_is_not_supported_is_warned_of(ask_file: AskFile, given: Raw, warning: str) -> None:
    code, _, err = ask_file(given)
    assert (0, bool(warning), True) == (code, bool(err), warning in err)


def test_the_same_question_has_the_same_answer_whatever_the_order_of_objects() -> None:
    objects = [node(f"n{index}", gib=10 + index) for index in range(20)]
    objects += [volume(numberOfReplicas=3), *(replica(f"r{index}") for index in range(3))]
    question = {"schedule": {"volume": "v", "replicas": ["r0", "r1", "r2"]}}
    answers = [ask(given, question) for given in (objects, objects[::-1])]
    assert answers[0] == answers[1]


def test_a_label_of_a_kubernetes_node_keeps_v2_volumes_away() -> None:
    block = node("n1", disks={"d1": {"spec": {"diskType": "block"}}})
    closed = core("Node", "n1", metadata={"labels": {"node.longhorn.io/disable-v2-data-engine": "true"}})
    for more, expected in ([], ["n1/d1"]), ([core("Node", "n1")], ["n1/d1"]), ([closed], []):
        objects = [block, volume(dataEngine="v2"), replica("r1", dataEngine="v2"), *more]
        assert expected == places(ask(objects, QUESTION)["steps"][0])
