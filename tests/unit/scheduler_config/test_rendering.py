"""What `render-scheduler-config` prints for each distribution, whole; and what single options change in it."""

from __future__ import annotations

import base64
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from certs.authority import LeafSpec, make_authority, sign
from controller.errors import ConfigError
from controller.model.names import EXTENDER_RESOURCE
from controller.settings import LIVE_NAMES
from tests.unit.scheduler_config.asking import CASES, IMAGE, ask, config, golden_path
from tests.unit.test_docs import yaml_blocks

ROOT = Path(__file__).resolve().parents[3]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ON_HOSTS = ("kubeadm", "k3s", "rke2")
ADDRESS = ("--service-address", "10.96.0.7")


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def extender(*words: str) -> dict[str, Any]:
    (entry,) = config(*words)["extenders"]
    found: dict[str, Any] = entry
    return found


# Whole files


@pytest.mark.parametrize("platform", CASES)
def test_the_output_is_what_was_looked_at(platform: str) -> None:
    assert golden_path(platform).read_text() == ask("--for", platform, *CASES[platform]).text


@pytest.mark.parametrize("platform", CASES)
def test_every_line_of_the_configuration_is_explained(platform: str) -> None:
    lines = ask("--for", platform, *CASES[platform], "--part", "config").text.splitlines()
    # Parents are explained by their children; the first line of an entry has its comment beside it.
    bare = [
        line.strip()
        for before, line in zip(["", *lines], lines, strict=False)
        if ":" in line and not line.lstrip().startswith("#") and "#" not in line + before and not line.endswith(":")
    ]
    first = ["apiVersion: kubescheduler.config.k8s.io/v1", "kind: KubeSchedulerConfiguration"]
    assert [line for line in bare if line not in first and not line.startswith("- ")] == []


def test_the_readme_shows_the_same_configuration() -> None:
    (sample,) = [
        found
        for block in yaml_blocks((ROOT / "README.md").read_text())
        if (found := yaml.safe_load(block)).get("kind") == "KubeSchedulerConfiguration"
    ]
    assert sample == config("--for", "plain", *_transport_of(sample))


def _transport_of(sample: dict[str, Any]) -> list[str]:
    (entry,) = sample["extenders"]
    host = entry["urlPrefix"].split("//")[1].split(":")[0]
    return ["--service-address", host]


@pytest.mark.parametrize("platform", ON_HOSTS)
def test_the_install_page_shows_the_same_wiring(platform: str) -> None:
    shown = [yaml.safe_load(block) for block in yaml_blocks((ROOT / "docs" / "install.md").read_text())]
    first, *_ = documents(ask("--for", platform, *ADDRESS, "--part", "wiring").text)
    assert first in shown


@pytest.mark.parametrize("platform", ON_HOSTS)
def test_the_parts_together_are_the_whole(platform: str) -> None:
    words = ["--for", platform, *CASES[platform]]
    parts = [ask(*words, "--part", part).text for part in ("config", "wiring")]
    assert ask(*words).text == "---\n".join(parts)


def test_the_name_of_the_setting_in_the_comments_is_one() -> None:
    text = ask("--for", "plain", "--large-cluster").text
    assert [name for name in LIVE_NAMES if name in text] == ["scheduler-extender-max-offers"]


# Wiring


def test_kubeadm_gets_arguments_in_both_shapes_and_the_file_mounted() -> None:
    text = ask("--for", "kubeadm", *ADDRESS, "--part", "wiring", "--config-path", "/etc/kubernetes/ks.yaml").text
    newer, older = documents(text)
    assert {"name": "config", "value": "/etc/kubernetes/ks.yaml"} == newer["scheduler"]["extraArgs"][0]
    assert {"config": "/etc/kubernetes/ks.yaml"} == older["scheduler"]["extraArgs"]
    assert ("kubeadm.k8s.io/v1beta4", "kubeadm.k8s.io/v1beta3") == (newer["apiVersion"], older["apiVersion"])
    (volume,) = newer["scheduler"]["extraVolumes"]
    assert ("/etc/kubernetes/ks.yaml", "/etc/kubernetes/ks.yaml") == (volume["hostPath"], volume["mountPath"])
    assert newer["scheduler"]["extraVolumes"] == older["scheduler"]["extraVolumes"]


def test_k3s_and_rke2_get_arguments_that_add_to_those_of_other_files() -> None:
    (k3s,) = documents(ask("--for", "k3s", *ADDRESS, "--part", "wiring").text)
    assert {"kube-scheduler-arg+": ["config=/etc/rancher/k3s/scheduler-extender.yaml"]} == k3s
    (rke2,) = documents(ask("--for", "rke2", *ADDRESS, "--part", "wiring").text)
    (argument,), (mount,) = rke2["kube-scheduler-arg+"], rke2["kube-scheduler-extra-mount+"]
    source, target, mode = mount.split(":")
    path = argument.removeprefix("config=")
    # The file itself is mounted by RKE2 where its argument names it; once more would be a mount too many.
    assert (source, "ro") == (target, mode)
    assert path != source
    assert path.startswith(f"{source}/")


def test_profiling_stays_off_where_a_flag_had_it_off() -> None:
    found = {platform: config("--for", platform, *ADDRESS).get("enableProfiling") for platform in ON_HOSTS}
    assert {"kubeadm": None, "k3s": False, "rke2": False} == found


# The second scheduler


def second(*words: str) -> dict[str, dict[str, Any]]:
    found = documents(ask("--for", "second", "--image", IMAGE, *words).text)
    return {f"{document['kind']}/{document['metadata']['name']}": document for document in found}


def test_a_second_scheduler_has_a_name_an_account_and_a_lease_of_its_own() -> None:
    objects = second("--scheduler-name", "ks2", "--namespace", "storage")
    assert {
        "ServiceAccount/ks2",
        "ClusterRoleBinding/ks2-kube-scheduler",
        "ClusterRoleBinding/ks2-volume-scheduler",
        "RoleBinding/ks2-authentication-reader",
        "Role/ks2",
        "RoleBinding/ks2",
        "Secret/ks2",
        "Deployment/ks2",
    } == set(objects)
    found = yaml.safe_load(objects["Secret/ks2"]["stringData"]["config.yaml"])
    assert [{"schedulerName": "ks2"}] == found["profiles"]
    assert {"leaderElect": True, "resourceName": "ks2", "resourceNamespace": "storage"} == found["leaderElection"]
    assert "kubeconfig" not in found["clientConnection"]
    assert ["ks2"] == objects["Role/ks2"]["rules"][0]["resourceNames"]
    subjects = [objects[name]["subjects"] for name in objects if "Binding" in name]
    assert [[{"kind": "ServiceAccount", "name": "ks2", "namespace": "storage"}]] * 4 == subjects


def test_another_configuration_makes_other_pods() -> None:
    def annotations(*words: str) -> Any:
        return second(*words)["Deployment/longhorn-scheduler"]["spec"]["template"]["metadata"]["annotations"]

    assert annotations() == annotations()
    assert annotations() != annotations("--qps", "400")


def test_without_election_there_is_one_copy_that_is_gone_before_the_next() -> None:
    spec = second("--no-leader-elect")["Deployment/longhorn-scheduler"]["spec"]
    assert (1, {"type": "Recreate"}) == (spec["replicas"], spec["strategy"])
    spec = second()["Deployment/longhorn-scheduler"]["spec"]
    assert (2, None) == (spec["replicas"], spec.get("strategy"))


def test_without_managed_resources_pods_that_carry_the_resource_still_fit() -> None:
    found = config("--for", "second", "--image", IMAGE, "--no-managed-resources")
    assert "managedResources" not in found["extenders"][0]
    (profile,) = found["profiles"]
    assert [
        {"name": "NodeResourcesFit", "args": {"ignoredResources": [EXTENDER_RESOURCE]}},
    ] == profile["pluginConfig"]


# Options


def test_the_entry_asks_what_is_there_and_leaves_binding_to_the_scheduler() -> None:
    entry = extender("--for", "plain")
    verbs = {name: value for name, value in entry.items() if name.endswith("Verb")}
    assert {"filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt"} == verbs
    assert [{"name": EXTENDER_RESOURCE, "ignoredByScheduler": True}] == entry["managedResources"]
    assert (True, False, "4s") == (entry["nodeCacheCapable"], entry["ignorable"], entry["httpTimeout"])


def test_numbers_and_names_that_are_given_are_taken() -> None:
    words = ["--qps", "70", "--burst", "90", "--scheduler-name", "mine", "--kubeconfig", "/x/y", "--no-leader-elect"]
    found = config("--for", "plain", *words)
    assert {"kubeconfig": "/x/y", "qps": 70, "burst": 90} == found["clientConnection"]
    assert {"leaderElect": False} == found["leaderElection"]


@pytest.mark.parametrize("platform", ["plain", *ON_HOSTS])
def test_beside_a_profile_that_is_asked_for_ordinary_pods_keep_theirs(platform: str) -> None:
    """kube-scheduler has default-scheduler by itself only where no profile is listed."""

    def profiles(*words: str) -> Any:
        return config("--for", platform, *ADDRESS, *words).get("profiles")

    assert profiles() is None
    assert [{"schedulerName": "default-scheduler"}, {"schedulerName": "mine"}] == profiles("--scheduler-name", "mine")
    assert [{"schedulerName": "default-scheduler"}] == profiles("--scheduler-name", "default-scheduler")


def test_pods_wait_for_the_extender_unless_it_is_asked_otherwise() -> None:
    found = [extender("--for", "plain", *words)["ignorable"] for words in ([], ["--ignorable"], ["--no-ignorable"])]
    assert [False, True, False] == found


def test_a_large_cluster_looks_at_fewer_nodes() -> None:
    shares = [config("--for", "plain", *words)["percentageOfNodesToScore"] for words in ([], ["--large-cluster"])]
    assert [100, 25] == shares


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


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("10.0.0.1", "http://10.0.0.1:9504"),
        ("fd00::1", "http://[fd00::1]:9504"),
        ("extender.example.org", "http://extender.example.org:9504"),
    ],
)
def test_addresses_of_all_kinds_make_a_url(address: str, url: str) -> None:
    assert url == extender("--for", "kubeadm", "--service-address", address)["urlPrefix"]


# Certificates


@pytest.fixture(scope="module")
def pem() -> dict[str, bytes]:
    ca = make_authority("ca", timedelta(days=9), NOW)
    leaf, other = (sign(ca, LeafSpec(name, timedelta(days=8), is_client=True), NOW) for name in ("client", "other"))
    return {"ca": ca.certificate, "cert": leaf.certificate, "key": leaf.key, "other": other.key}


def files(folder: Path, pem: dict[str, bytes], **exchanged: bytes) -> list[str]:
    words = []
    for name in ("ca", "cert", "key"):
        path = folder / f"{name}.pem"
        path.write_bytes(exchanged.get(name, pem[name]))
        words += [f"--{name}-file", str(path)]
    return words


def test_certificates_stand_in_the_file_itself(tmp_path: Path, pem: dict[str, bytes]) -> None:
    entry = extender("--for", "kubeadm", *ADDRESS, "--namespace", "storage", *files(tmp_path, pem))
    tls = entry["tlsConfig"]
    assert ("https://10.96.0.7:9504", True) == (entry["urlPrefix"], entry["enableHTTPS"])
    assert ["insecure", "caData", "certData", "keyData", "serverName"] == list(tls)
    assert [pem["ca"], pem["cert"], pem["key"]] == [
        base64.b64decode(tls[f"{name}Data"]) for name in ("ca", "cert", "key")
    ]
    assert (False, "longhorn-scheduler-extender.storage.svc") == (tls["insecure"], tls["serverName"])


def test_a_file_with_a_key_says_so(tmp_path: Path, pem: dict[str, bytes]) -> None:
    with_key, without = (ask("--for", "kubeadm", *ADDRESS, *words).text for words in (files(tmp_path, pem), []))
    assert "mode 0600" in with_key
    assert "mode 0600" not in without


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("ca", b"", "--ca-file: .*: holds no certificate"),
        ("cert", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "--cert-file: .*: holds no cert"),
        ("key", b"nothing", "--key-file: .*: holds no private key"),
        ("key", None, "--key-file: .*: is not the key of --cert-file"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_named(
    tmp_path: Path, pem: dict[str, bytes], name: str, content: bytes | None, problem: str
) -> None:
    words = files(tmp_path, pem, **{name: pem["other"] if content is None else content})
    with pytest.raises(ConfigError, match=f"^{problem}"):
        ask("--for", "plain", *words)


def test_the_three_files_go_together(tmp_path: Path, pem: dict[str, bytes]) -> None:
    words = files(tmp_path, pem)
    for missing, option in ((0, "--ca-file"), (2, "--cert-file"), (4, "--key-file")):
        with pytest.raises(ConfigError, match=f"^{option}: is needed"):
            ask("--for", "plain", *words[:missing], *words[missing + 2 :])


def test_a_file_that_is_not_there_is_named(tmp_path: Path, pem: dict[str, bytes]) -> None:
    words = files(tmp_path, pem)
    (tmp_path / "cert.pem").unlink()
    with pytest.raises(ConfigError, match=r"^--cert-file: .*cert.pem: No such file"):
        ask("--for", "plain", *words)


# Bad input


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["plain", "--port", "0"], "--port"),
        (["plain", "--port", "65536"], "--port"),
        (["plain", "--namespace", "a.b"], "--namespace"),
        (["plain", "--namespace", ""], "--namespace"),
        (["plain", "--service-address", "a b"], "--service-address"),
        (["plain", "--service-address", "http://x"], "--service-address"),
        (["plain", "--service-address", "10.0.0.256"], "--service-address"),
        (["plain", "--service-address", "fe80::1%eth0"], "--service-address"),
        (["kubeadm"], "--service-address"),
        (["k3s"], "--service-address"),
        (["rke2"], "--service-address"),
        (["plain", "--scheme", "https"], "--ca-file"),
        (["plain", "--http-timeout", "0"], "--http-timeout"),
        (["plain", "--http-timeout=-1s"], "--http-timeout"),
        (["plain", "--http-timeout", "1m"], "--http-timeout"),
        (["plain", "--qps", "0"], "--qps"),
        (["plain", "--burst", "-1"], "--burst"),
        (["plain", "--qps", "2000"], "--burst"),
        (["plain", "--scheduler-name", "A"], "--scheduler-name"),
        *((["plain", "--scheduler-name", name], "--scheduler-name") for name in ("yes", "off", "n", "0755", "12")),
        (["plain", "--kubeconfig", "relative"], "--kubeconfig"),
        (["kubeadm", *ADDRESS, "--config-path", "/a:b"], "--config-path"),
        (["plain", "--config-path", "/a"], "--config-path"),
        (["plain", "--image", IMAGE], "--image"),
        (["plain", "--no-managed-resources"], "--no-managed-resources"),
        (["plain", "--part", "wiring"], "--part"),
        (["second"], "--image"),
        (["second", "--image", "a b"], "--image"),
        (["second", "--image", "a:"], "--image"),
        (["second", "--image", IMAGE, "--kubeconfig", "/a"], "--kubeconfig"),
        (["second", "--image", IMAGE, "--config-path", "/a"], "--config-path"),
        (["second", "--image", IMAGE, "--scheduler-name", "default-scheduler"], "--scheduler-name"),
        (["second", "--image", IMAGE, "--merge", "x"], "--merge"),
        (["plain", "--merge", "/does/not/exist"], "--merge"),
    ],
)
def test_what_cannot_work_is_refused_by_the_name_of_its_option(words: list[str], option: str) -> None:
    with pytest.raises(ConfigError, match=f"^{option}: "):
        ask("--for", *words)


def test_http_takes_no_certificates(tmp_path: Path, pem: dict[str, bytes]) -> None:
    with pytest.raises(ConfigError, match=r"^--scheme: "):
        ask("--for", "plain", "--scheme", "http", *files(tmp_path, pem))


# The process


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "controller", "render-scheduler-config", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)


def test_the_program_prints_the_text_and_nothing_else() -> None:
    done = run("--for", "plain")
    assert (0, golden_path("plain").read_text(), "") == (done.returncode, done.stdout, done.stderr)


def test_the_program_ends_with_2_and_prints_nothing_when_it_cannot() -> None:
    done = run("--for", "k3s")
    assert (2, "") == (done.returncode, done.stdout)
    assert "--service-address: is needed" in done.stderr
    assert 1 == done.stderr.count("\n")


def test_notes_about_a_merge_go_to_the_person_and_not_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(golden_path("plain").read_text().replace("qps: 500", "qps: 5"))
    done = run("--for", "plain", "--merge", str(path))
    assert (0, golden_path("plain").read_text()) == (done.returncode, done.stdout)
    assert f"note: {path}: clientConnection.qps: was 5, is 500\n" == done.stderr
