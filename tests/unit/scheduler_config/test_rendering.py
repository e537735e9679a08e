"""What `render-scheduler-config` prints for each distribution, whole; and what single options change in it."""

from __future__ import annotations

import base64
import re
import shlex
import textwrap
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization

from certs.authority import LeafSpec, make_authority, sign
from controller.cli import main
from controller.errors import ConfigError, NotFoundError, UnavailableError
from controller.kube.resources import Resource
from controller.scheduler_config import from_cluster
from controller.scheduler_config.command import printed
from controller.scheduler_config.options import FILES
from controller.settings import LIVE_FIELDS
from tests.e2e.scheduling import with_changes
from tests.unit.pages import yaml_blocks
from tests.unit.scheduler_config.asking import CASES, CLUSTER_IP, ask, cluster, config, golden, secret, whole

ROOT = Path(__file__).resolve().parents[3]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ON_HOSTS = ("kubeadm", "k3s", "rke2")
ADDRESS = ("--service-address", "10.96.0.7")
OFFLINE = ("--certificate-dir", "/etc/extender")


def wiring(platform: str, *words: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(ask("--for", platform, *ADDRESS, "--part", "wiring", *words).text))


def extender(*words: str) -> Any:
    (entry,) = config(*words)["extenders"]
    return entry


# Whole files


@pytest.mark.parametrize("platform", CASES)
def test_the_output_is_what_was_looked_at(platform: str) -> None:
    assert golden(platform) == whole("--for", platform, *CASES[platform])


def test_plain_is_the_configuration_of_kubeadm_without_what_is_around_it() -> None:
    document = golden("kubeadm").split("---\n")[0]
    assert document[document.index("apiVersion") :] == whole("--for", "plain", "--service-address", CLUSTER_IP)


def test_k3s_has_the_configuration_of_rke2_with_its_own_paths() -> None:
    text = golden("rke2").split("---\n")[0].replace("RKE2", "K3s").replace("/lib/rancher/rke2", "/lib/rancher/k3s")
    text = text.replace("/etc/rancher/rke2/scheduler-extender/config.yaml", "/etc/rancher/k3s/scheduler-extender.yaml")
    assert text == whole("--for", "k3s", "--part", "config", *CASES["rke2"])


@pytest.mark.parametrize("platform", ["talos", "talos-document"])
def test_talos_gets_the_configuration_as_a_part_of_its_own(platform: str) -> None:
    whose = {
        "talos": "cluster:\n  scheduler:\n    config:\n",
        "talos-document": "apiVersion: v1alpha1   # of Talos\nkind: KubeSchedulerConfig\nconfig:\n",
    }
    head, body = whole("--for", platform).split(whose[platform])
    assert golden("talos") == head
    expected = whole("--for", "k3s", "--part", "config").replace("K3s", "Talos")
    lines = expected[expected.index("apiVersion") :].splitlines(keepends=True)
    assert "kubeconfig: " in lines[4]  # Talos writes its own there
    assert "".join(lines[:3] + lines[5:]) == textwrap.dedent(body)


@pytest.mark.parametrize("words", [[], ["--insecure-plain-http", "--large-cluster"], [*CASES["rke2"]]])
def test_every_line_of_the_configuration_is_explained(words: list[str]) -> None:
    lines = ask("--for", "k3s", *words, "--part", "config").text.splitlines()
    # Parents are explained by their children; the first line of an entry has its comment beside it.
    bare = [
        line.strip()
        for before, line in zip(["", *lines], lines, strict=False)
        if ":" in line and not line.lstrip().startswith("#") and "#" not in line + before and not line.endswith(":")
    ]
    first = ["apiVersion: kubescheduler.config.k8s.io/v1", "kind: KubeSchedulerConfiguration"]
    assert [line for line in bare if line not in first and not line.startswith("- ")] == []


def test_the_page_shows_the_same_configuration() -> None:
    (sample,) = [
        found
        for block in yaml_blocks((ROOT / "docs" / "kube-scheduler.md").read_text())
        if (found := yaml.safe_load(block)).get("kind") == "KubeSchedulerConfiguration"
    ]
    (entry,) = sample["extenders"]
    host = entry["urlPrefix"].split("//")[1].partition(":")[0]
    folder = str(Path(entry["tlsConfig"]["caFile"]).parent)
    assert sample == config("--for", "plain", "--service-address", host, "--certificate-dir", folder)


@pytest.mark.parametrize("platform", ON_HOSTS)
def test_the_page_shows_the_same_wiring(platform: str) -> None:
    shown = [yaml.safe_load(block) for block in yaml_blocks((ROOT / "docs" / "kube-scheduler.md").read_text())]
    assert wiring(platform)[0] in shown


@pytest.mark.parametrize("platform", ["kubeadm", "rke2"])
def test_the_parts_together_are_the_whole(platform: str) -> None:
    words = ["--for", platform, *CASES[platform]]
    parts = [ask(*words, "--part", part).text for part in ("config", "wiring")]
    assert printed(ask(*words), "") == "---\n".join(parts)


def test_the_name_of_the_setting_in_the_comments_is_one() -> None:
    text = ask("--for", "plain", "--large-cluster").text
    assert [name for name in LIVE_FIELDS if name in text] == ["scheduler-extender-max-offers"]


# Wiring


def test_another_path_stands_wherever_the_usual_one_does() -> None:
    usual, own = "/etc/kubernetes/scheduler-extender.yaml", "/etc/kubernetes/ks.yaml"
    assert golden("kubeadm").replace(usual, own) == whole("--for", "kubeadm", "--config-path", own)


@pytest.mark.parametrize("platform", ["kubeadm", "talos", "talos-document"])
def test_a_file_with_a_key_says_so(platform: str) -> None:
    for words, is_told in (((), True), (("--insecure-plain-http",), False)):
        text = ask("--for", platform, *ADDRESS, *words).text
        assert is_told == ("holds a private key:" in text)


# Options


def test_numbers_and_names_that_are_given_are_taken() -> None:
    words = [
        "--qps",
        "70",
        "--burst",
        "90",
        "--scheduler-name",
        "mine",
        "--scheduler-kubeconfig",
        "/x/y",
        "--no-leader-elect",
    ]
    found = config("--for", "plain", *words)
    assert {"kubeconfig": "/x/y", "qps": 70, "burst": 90} == found["clientConnection"]
    assert {"leaderElect": False} == found["leaderElection"]


@pytest.mark.parametrize(
    ("given", "written"), [("4s", "4s"), ("4", "4s"), ("2500ms", "2500ms"), ("3000ms", "3s"), ("1s", "1s")]
)
def test_timeouts_are_written_as_go_reads_them(given: str, written: str) -> None:
    assert written == extender("--for", "plain", "--http-timeout", given)["httpTimeout"]


def test_a_longer_timeout_has_to_be_asked_for() -> None:
    words = ["--for", "plain", "--http-timeout", "4001ms"]
    with pytest.raises(ConfigError, match=r"^--http-timeout: is more than 4s"):
        ask(*words)
    assert "4001ms" == extender(*words, "--allow-long-timeout")["httpTimeout"]


@pytest.mark.parametrize(("address", "host"), [("10.0.0.1", "10.0.0.1"), ("fd00::1", "[fd00::1]"), ("a.org", "a.org")])
def test_addresses_of_all_kinds_make_a_url(address: str, host: str) -> None:
    assert f"https://{host}:9504" == extender("--for", "kubeadm", "--service-address", address)["urlPrefix"]


# Certificates


@pytest.fixture(scope="module")
def pem() -> dict[str, bytes]:
    """What the options for files name, and a key that belongs to none of them."""
    ca = make_authority("ca", timedelta(days=900), NOW)
    other = sign(ca, LeafSpec("other", timedelta(days=800), is_client=True), NOW)
    return {**{name: secret()[file] for name, file in FILES.items()}, "other": other.key}


@dataclass
class Brought:
    """Certificates for the three files: those of an authority and its client, less what a case spoils."""

    begins: timedelta = timedelta(0)
    lasts: timedelta = timedelta(days=800)
    is_client: bool = True
    ca_lasts: timedelta = timedelta(days=900)
    another_ca: bool = False
    leaf_as_ca: bool = False
    ca_as_leaf: bool = False
    passphrase: bytes = b""

    def files(self) -> dict[str, bytes]:
        now = NOW + self.begins
        ca = make_authority("ca", self.ca_lasts, now)
        leaf = sign(ca, LeafSpec("c", self.lasts, ("c",) * (not self.is_client), is_client=self.is_client), now)
        shown = make_authority("ca", self.ca_lasts, NOW) if self.another_ca else ca
        leaf, shown = (ca if self.ca_as_leaf else leaf), (leaf if self.leaf_as_ca else shown)
        key = leaf.key
        if self.passphrase:
            lock = serialization.BestAvailableEncryption(self.passphrase)
            pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
            key = serialization.load_pem_private_key(key, None).private_bytes(pem, form, lock)
        return {"ca": shown.certificate, "cert": leaf.certificate, "key": key}


def files(folder: Path, pem: dict[str, bytes], **exchanged: bytes) -> list[str]:
    words = []
    for name in FILES:
        path = folder / f"{name}.pem"
        path.write_bytes(exchanged.get(name, pem[name]))
        words += [f"--{name}-file", str(path)]
    return words


def test_what_is_not_given_is_read_from_the_cluster(tmp_path: Path, pem: dict[str, bytes]) -> None:
    text = ask("--for", "kubeadm", "--namespace", "storage").text
    assert text == ask("--for", "kubeadm", "--namespace", "storage", *files(tmp_path, pem)).text
    (entry,) = yaml.safe_load(text)["extenders"]
    assert (f"https://{CLUSTER_IP}:9504", True) == (entry["urlPrefix"], entry["enableHTTPS"])
    tls = entry["tlsConfig"]
    assert ["insecure", "caData", "certData", "keyData", "serverName"] == list(tls)
    assert list(secret().values()) == [base64.b64decode(tls[f"{name}Data"]) for name in FILES]
    assert (False, "longhorn-scheduler-extender.storage.svc") == (tls["insecure"], tls["serverName"])
    assert "https://longhorn-scheduler-extender.longhorn-system.svc:9504" == extender("--for", "plain")["urlPrefix"]


def test_nothing_is_read_from_the_cluster_when_all_is_given(tmp_path: Path, pem: dict[str, bytes]) -> None:
    for words in (files(tmp_path, pem), ["--certificate-dir", "/c"], ["--insecure-plain-http"]):
        assert ask("--for", "kubeadm", *ADDRESS, *words, get=unreachable).text


@pytest.mark.parametrize("platform", ON_HOSTS)
def test_the_wiring_alone_reads_nothing_as_it_says_neither_whom_to_ask_nor_with_what(platform: str) -> None:
    words = ("--for", platform, "--part", "wiring")
    assert ask(*words).text == ask(*words, get=unreachable).text


def unreachable(resource: Resource, namespace: str, name: str) -> dict[str, Any]:
    raise UnavailableError(f"no answer about {resource.kind} {namespace}/{name}")


def test_a_cluster_that_cannot_be_read_is_an_error_that_names_the_option() -> None:
    with pytest.raises(ConfigError, match=r"^--client-secret: .* no answer about Secret"):
        ask("--for", "plain", get=unreachable)
    with pytest.raises(ConfigError, match=r"^--service-address: .* no answer about Service"):
        ask("--for", "kubeadm", "--insecure-plain-http", get=unreachable)
    with pytest.raises(ConfigError, match=r"^--service-address: is required: the Service .* has no ClusterIP"):
        ask("--for", "kubeadm", "--insecure-plain-http", get=lambda *_: {"spec": {"clusterIP": "None"}})


def test_the_secret_is_waited_for_and_the_person_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_cluster, "LOOK_SECONDS", 0.0)
    looks, told = iter([None, {"data": {"ca.crt": ""}}]), list[str]()

    def late(resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        found = next(looks, cluster(resource, namespace, name))
        if found is None:
            raise NotFoundError(name)
        return found

    assert "keyData" in ask("--for", "plain", get=late, told=told).text
    (note,) = told
    assert note.startswith("there is no Secret longhorn-system/longhorn-scheduler-extender-client yet; waiting up to")
    with pytest.raises(ConfigError, match=r"^--client-secret: there is no Secret .*/other after 0 s"):
        ask("--for", "plain", "--client-secret", "other", "--wait", "0")


def test_a_secret_that_is_not_what_it_should_be_is_named() -> None:
    def damaged(resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        raw = cluster(resource, namespace, name)
        return {"data": {**raw["data"], "tls.crt": base64.b64encode(b"nothing").decode()}}

    with pytest.raises(ConfigError, match=r"^--client-secret: .*-client: tls.crt: is not a PEM certificate"):
        ask("--for", "plain", get=damaged)


def test_a_directory_with_certificates_is_mounted_once() -> None:
    for found in wiring("kubeadm", "--certificate-dir", "/etc/extender"):
        assert ["/etc/kubernetes/scheduler-extender.yaml", "/etc/extender"] == [
            volume["mountPath"] for volume in found["scheduler"]["extraVolumes"]
        ]
    (same,) = wiring("rke2", "--certificate-dir", "/etc/rancher/rke2/scheduler-extender")
    assert 1 == len(same["kube-scheduler-extra-mount+"])


@pytest.mark.parametrize("other", [["--insecure-plain-http"], ["--ca-file", "a"]])
def test_one_way_to_the_certificates_excludes_the_others(other: list[str]) -> None:
    with pytest.raises(ConfigError, match=f"{other[0]}.* exclude each other|exclude each other"):
        ask("--for", "plain", "--certificate-dir", "/c", *other)


def test_the_file_is_written_for_its_owner_alone_and_the_rest_is_printed(tmp_path: Path) -> None:
    path, rendered = tmp_path / "config.yaml", ask("--for", "kubeadm")
    path.write_text("former")
    path.chmod(0o644)
    assert rendered.others == printed(rendered, str(path))
    assert (rendered.text, 0o600) == (path.read_text(), path.stat().st_mode & 0o777)
    assert [path] == list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match=r"^--output: .*: No such file or directory"):
        printed(rendered, str(tmp_path / "nowhere" / "config.yaml"))


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("ca", b"", "--ca-file: .*: holds no PEM certificate"),
        (
            "cert",
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "--cert-file: .*: is not a PEM cert",
        ),
        ("key", b"nothing", "--key-file: .*: its key is not a PEM key"),
        ("key", None, "--key-file: .*: the key does not belong"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_named(
    tmp_path: Path, pem: dict[str, bytes], name: str, content: bytes | None, problem: str
) -> None:
    words = files(tmp_path, pem, **{name: pem["other"] if content is None else content})
    with pytest.raises(ConfigError, match=f"^{problem}"):
        ask("--for", "plain", *words)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            Brought(begins=timedelta(days=-801)),
            "--cert-file: .*: CN=c,.* has ended: .* to 2025-12-31 00:00 UTC",
        ),
        (
            Brought(begins=timedelta(days=2)),
            "--cert-file: .*: CN=c,.* is not valid yet: it is valid from 2026-01-02 23:55 to ",
        ),
        (Brought(begins=-timedelta(days=2), lasts=timedelta(days=3), ca_lasts=timedelta(days=1)), "--c.* has ended: "),
        (Brought(is_client=False), "--cert-file: .*: is not for clients: its extended key usage lacks clientAuth"),
        (Brought(leaf_as_ca=True), "--ca-file: .*: CN=c,.* is not an authority"),
        (Brought(ca_as_leaf=True), "--cert-file: .*: CN=ca,.* is an authority"),
        (Brought(passphrase=b"secret"), "--key-file: .*: its key is not a PEM key without a password"),
    ],
)
def test_certificates_with_which_no_call_can_succeed_are_refused(tmp_path: Path, given: Brought, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^{problem}"):
        ask("--for", "plain", *files(tmp_path, given.files()))


@pytest.mark.parametrize(
    ("given", "note"),
    [
        (Brought(), ""),
        (
            Brought(begins=timedelta(days=-780)),
            "--cert-file: .*: CN=c,.* ends at 2026-01-21 00:00 UTC",
        ),
        (Brought(another_ca=True), "--cert-file: .*: its authority CN=ca,.* is not in --ca-file: "),
    ],
)
def test_what_is_odd_about_certificates_is_told(tmp_path: Path, given: Brought, note: str) -> None:
    told: list[str] = []
    assert "keyData" in ask("--for", "plain", *files(tmp_path, given.files()), told=told).text
    assert bool(note) == len(told)
    assert re.match(note, "".join(told))


def test_the_three_files_go_together_and_are_there(tmp_path: Path, pem: dict[str, bytes]) -> None:
    words = files(tmp_path, pem)
    for missing, option in ((0, "--ca-file"), (2, "--cert-file"), (4, "--key-file")):
        with pytest.raises(ConfigError, match=f"^{option}: is missing"):
            ask("--for", "plain", *words[:missing], *words[missing + 2 :])
    (tmp_path / "cert.pem").unlink()
    with pytest.raises(ConfigError, match=r"^--cert-file: .*cert.pem: No such file"):
        ask("--for", "plain", *words)


# Bad input


REFUSED = {
    "--port": ["plain --port 0", "plain --port 65536"],
    "--namespace": ["plain --namespace a.b", "plain --namespace ''"],
    "--service-address": [
        f"plain --service-address {text}" for text in ("'a b'", "http://x", "10.0.0.256", "fe80::1%eth0")
    ],
    "--certificate-dir": ["plain --certificate-dir relative", "talos --certificate-dir /a"],
    "--http-timeout": ["plain --http-timeout 0", "plain --http-timeout=-1s", "plain --http-timeout 1m"],
    "--qps": ["plain --qps 0"],
    "--burst": ["plain --burst -1", "plain --qps 2000"],
    "--scheduler-name": [f"plain --scheduler-name {name}" for name in ("A", "yes", "off", "n", "0755", "12")],
    "--scheduler-kubeconfig": ["plain --scheduler-kubeconfig relative", "talos --scheduler-kubeconfig /a"],
    "--config-path": [
        "kubeadm --service-address 10.96.0.7 --config-path /a:b",
        "plain --config-path /a",
        "talos --config-path /a",
    ],
    "--part": ["plain --part wiring", "talos --part wiring"],
    "--merge": ["talos --merge x", "plain --merge /does/not/exist"],
}


@pytest.mark.parametrize(("option", "words"), [(option, words) for option in REFUSED for words in REFUSED[option]])
def test_what_cannot_work_is_refused_by_the_name_of_its_option(option: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"^{option}: "):
        ask("--for", *shlex.split(words))


# The process


def run(*words: str) -> int:
    return main(["render-scheduler-config", *words])


def test_the_program_prints_the_text_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run("--for", "plain", *OFFLINE)
    assert (whole("--for", "plain", *OFFLINE), "") == capsys.readouterr()


def test_the_program_ends_with_2_and_prints_nothing_when_it_cannot(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == run("--for", "k3s", "--kubeconfig", "/does/not/exist")
    out, err = capsys.readouterr()
    assert ("", 1, True) == (out, err.count("\n"), "kubeconfig" in err)
    assert 2 == run("--part", "config")  # of which distribution?


@pytest.mark.parametrize(
    "words", [("--for", "plain", "--kubeconfig", "/etc/kubernetes/scheduler.conf", *words) for words in (OFFLINE, ())]
)
def test_a_kubeconfig_that_is_meant_for_kube_scheduler_is_refused_with_a_hint(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == run(*words)
    out, err = capsys.readouterr()
    assert ("", True) == (out, err.endswith("; kube-scheduler's own one is --scheduler-kubeconfig\n"))


def test_notes_about_a_merge_go_to_the_person_and_not_into_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, text = tmp_path / "old.yaml", whole("--for", "plain", *OFFLINE)
    path.write_text(text.replace("qps: 500", "qps: 5"))
    assert 0 == run("--for", "plain", "--merge", str(path), *OFFLINE)
    assert (text, f"note: {path}: clientConnection.qps: was 5, is 500\n") == capsys.readouterr()


# The end-to-end tests run kube-scheduler with what the command prints, less or more some lines


def test_what_the_tests_change_in_it_is_what_the_options_change() -> None:
    words = ["--qps", "60", "--burst", "70", "--http-timeout", "10s", "--allow-long-timeout", "--ignorable"]
    changed = with_changes(config("--for", "plain"), qps=60, burst=70, timeout="10s", ignorable=True)
    assert config("--for", "plain", *words) == changed
    plain = with_changes(config("--for", "plain"), plain_http=True)
    assert config("--for", "plain", "--insecure-plain-http") == plain
