"""The real kube-scheduler starts with every file that `render-scheduler-config` prints, and binds a pod through it.

Each runs beside the flags that its distribution gives to kube-scheduler (kubeadm, Talos: the manifest of their static
pod; K3s, RKE2: the defaults of their server), with the paths and ports of the test cluster in place of theirs.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.errors import ConfigError
from tests.cluster.build import binaries, wanted_release
from tests.cluster.cluster import ClusterError
from tests.cluster.kubeconfig import write_kubeconfig
from tests.e2e.harness import Cell, Scene
from tests.e2e.neighbours import Neighbour, passes_everything
from tests.e2e.scheduling import NAMESPACE
from tests.e2e.second_scheduler import second
from tests.unit.scheduler_config.asking import ask

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
MakeCell = Callable[..., Cell]
StartScheduler = Callable[..., str]


@pytest.fixture
def cell(make_cell: MakeCell) -> Cell:
    """Two nodes, of which only the last has room."""
    cell = make_cell(nodes=2, fillers=0)
    cell.allow_scheduling(cell.nodes[0], allowed=False)
    return cell


def where(scene: Scene) -> list[str]:
    """Words of the command that lead to this scene."""
    host, port = scene.address
    return ["--service-address", host, "--port", str(port), "--kubeconfig", str(scene.kubeconfig)]


def kubeconfig(scene: Scene) -> str:
    return str(scene.cluster.layout.kubeconfig("kube-scheduler"))


def flags_of(platform: str, scene: Scene) -> dict[str, str]:
    """What the distribution gives to kube-scheduler beside --config."""
    own = kubeconfig(scene)
    common = {
        # Ignored beside --config; that nothing is there proves that the file's own one is used.
        "kubeconfig": "/does/not/exist",
        "authentication-kubeconfig": own,
        "authorization-kubeconfig": own,
        "bind-address": "127.0.0.1",
    }
    return {
        "plain": {},
        "kubeadm": {**common, "leader-elect": "true"},
        "k3s": {**common, "profiling": "false", "leader-elect": "false"},
        "rke2": {**common, "profiling": "false", "permit-port-sharing": "true"},
        "talos": {
            **common,
            "authentication-tolerate-lookup-failure": "false",
            "leader-elect": "true",
            "profiling": "false",
            "tls-min-version": "VersionTLS13",
        },
    }[platform]


def bind_a_pod(scene: Scene, cell: Cell, scheduler: str) -> None:
    """A pod with a claim of 100 GiB runs on the one node with room, and the extender was asked for it."""
    before = scene.controllers[-1].decisions("offered")
    cell.claim("c")
    cell.pod("p", "c", schedulerName=scheduler)
    cell.wait_pod_ready("p")
    assert [cell.nodes[-1]] == [pod["spec"]["nodeName"] for pod in cell.bound()]
    assert scene.controllers[-1].decisions("offered") > before
    assert [] == scene.judge(cell).complaints()


@pytest.mark.parametrize(
    ("name", "platform", "words"),
    [
        pytest.param("rendered-plain", "plain", ["--part", "config"], marks=pytest.mark.long),
        # kube-scheduler reads the first document, so pieces for other files below it do no harm.
        ("rendered-whole", "kubeadm", []),
        pytest.param("rendered-k3s", "k3s", ["--part", "config"], marks=pytest.mark.long),
        pytest.param("rendered-rke2", "rke2", ["--part", "config"], marks=pytest.mark.long),
        pytest.param("rendered-large", "plain", ["--large-cluster", "--ignorable"], marks=pytest.mark.long),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_rendered_file_schedules_beside_the_flags_of_its_distribution(
    scene: Scene, cell: Cell, start_scheduler: StartScheduler, name: str, platform: str, words: list[str]
) -> None:
    words = [
        "--for",
        platform,
        *where(scene),
        "--scheduler-kubeconfig",
        kubeconfig(scene),
        "--scheduler-name",
        name,
        *words,
    ]
    start_scheduler(name, ask(*words, get=None).text, flags=flags_of(platform, scene))
    bind_a_pod(scene, cell, name)


@pytest.mark.long
def test_what_is_a_part_of_talos_schedules_beside_its_flags(
    scene: Scene, cell: Cell, start_scheduler: StartScheduler
) -> None:
    """Talos takes it out of its machine configuration, with its own kubeconfig, and leaves out what is a default."""
    name = "rendered-talos"
    patch = yaml.safe_load(ask("--for", "talos", *where(scene), "--scheduler-name", name, get=None).text)
    found = patch["cluster"]["scheduler"]["config"]
    found["clientConnection"]["kubeconfig"] = kubeconfig(scene)
    del found["extenders"][0]["ignorable"]
    start_scheduler(name, yaml.safe_dump(found), flags=flags_of("talos", scene))
    bind_a_pod(scene, cell, name)


# The second scheduler


@pytest.mark.parametrize("form", ["managed-resources", pytest.param("no-managed-resources", marks=pytest.mark.long)])
def test_a_second_scheduler_works_with_the_rights_that_its_manifest_gives_it(
    scene: Scene, cell: Cell, start_scheduler: StartScheduler, form: str
) -> None:
    name = f"second-{form}"
    start_scheduler(name, second(scene, name, all_pods=form.startswith("no")))
    bind_a_pod(scene, cell, name)
    lease = scene.api.get(f"{LEASE}/{name}")
    assert lease["spec"]["holderIdentity"]


# Merged


def base_of(scene: Scene, port: int) -> str:
    """A file of somebody who has an extender and profiles already."""
    return f"""\
# Written by the platform team.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: {kubeconfig(scene)}
leaderElection: {{leaderElect: false}}
profiles:
- schedulerName: merged-scheduler   # ours
  plugins:
    score:
      disabled: [{{name: NodeResourcesBalancedAllocation}}]
- schedulerName: merged-packing
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: MostAllocated
- schedulerName: merged-unfit   # has no arguments of the plugin that it does not run
  plugins:
    multiPoint:
      disabled: [{{name: NodeResourcesFit}}]
extenders:
# asked about everything
- urlPrefix: http://127.0.0.1:{port}/other
  filterVerb: filter
  nodeCacheCapable: true
"""


def test_a_merged_file_asks_both_extenders(
    scene: Scene, cell: Cell, start_scheduler: StartScheduler, tmp_path: Path
) -> None:
    with closing(Neighbour(passes_everything)) as other:
        path = tmp_path / "old.yaml"
        path.write_text(base_of(scene, other.port))
        merged = ask("--for", "plain", *where(scene), "--merge", str(path), get=None).text
        start_scheduler("merged", merged)
        bind_a_pod(scene, cell, "merged-scheduler")
        assert other.calls["/other/filter"] > 0
        cell.delete("pods", "p")
        cell.wait_gone("p")
        cell.pod("p2", "c", schedulerName="merged-packing")
        cell.wait_pod_ready("p2")


# What kube-scheduler makes of a file, asked without a cluster


def completed(folder: Path, *words: str) -> dict[str, Any]:
    """The file that the command prints to these words, with all defaults, as kube-scheduler would run it.

    Fails, with what kube-scheduler said, when it does not start with the file.
    """
    access = folder / "kubeconfig"
    write_kubeconfig(access, "http://127.0.0.1:1", b"", user="nobody")
    words = ("--for", "plain", "--scheduler-kubeconfig", str(access), "--part", "config", *words)
    problem, found = looked_at(folder / "rendered.yaml", ask(*words).text)
    assert not problem
    return found


def looked_at(file: Path, text: str) -> tuple[str, dict[str, Any]]:
    """What kube-scheduler says when it does not start with that text, and the whole of it when it does."""
    file.write_text(text)
    program, whole = binaries(release=wanted_release()).command("kube-scheduler"), file.with_suffix(".whole")
    command = [*program, f"--config={file}", f"--write-config-to={whole}", "--secure-port=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return (done.stderr, {}) if done.returncode else ("", yaml.safe_load(whole.read_text()))


HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
ORDERED = """\
profiles:
- schedulerName: default-scheduler
  plugins:
    queueSort:
      enabled: [{name: PrioritySort}]
      disabled: [{name: '*'}]
  pluginConfig:
  - name: PrioritySort
    args: {any: thing}
"""


@pytest.mark.parametrize(
    "old",
    [
        None,
        HEAD,
        HEAD + "profiles: []\n",
        HEAD + "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n",
        HEAD + ORDERED,
    ],
    ids=["new", "none", "empty", "unnamed", "ordered"],
)
def test_a_profile_of_another_name_stands_beside_that_of_ordinary_pods(tmp_path: Path, old: str | None) -> None:
    words = ["--scheduler-name", "mine"]
    if old is not None:
        (tmp_path / "old.yaml").write_text(old)
        words += ["--merge", str(tmp_path / "old.yaml")]
    profiles = completed(tmp_path, *words)["profiles"]
    assert ["default-scheduler", "mine"] == [profile["schedulerName"] for profile in profiles]
    first, added = (profile["plugins"]["queueSort"] for profile in profiles)
    assert first == added


TWO_WAYS = """\
leaderElection: {leaderElect: yes}
enableProfiling: off
clientConnection: {qps: 1e3, burst: 5_000}
parallelism: 020
"""


def test_a_merged_file_says_the_same_to_kube_scheduler_where_older_yaml_reads_otherwise(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text(HEAD + TWO_WAYS)
    found = completed(tmp_path, "--merge", str(tmp_path / "old.yaml"))
    assert (True, False, 16) == (found["leaderElection"]["leaderElect"], found["enableProfiling"], found["parallelism"])
    assert (1000, 5000) == (found["clientConnection"]["qps"], found["clientConnection"]["burst"])


def test_the_binary_refuses_what_we_refuse_to_merge(scene: Scene, start_scheduler: StartScheduler) -> None:
    """So that the checks of a merge are those of kube-scheduler and not our own taste."""
    config: dict[str, Any] = yaml.safe_load(ask("--for", "plain", *where(scene), get=None).text)
    config["apiVersion"] = "kubescheduler.config.k8s.io/v1beta3"
    with pytest.raises(ClusterError, match="v1beta3"):
        start_scheduler("refused", yaml.safe_dump(config))


def extenders(*entries: str) -> str:
    return "extenders:\n" + "".join(f"- {{urlPrefix: 'http://x:1', {entry}}}\n" for entry in entries)


def profiles(*entries: str) -> str:
    return "profiles:\n" + "".join(f"- {{{entry}}}\n" for entry in entries)


SORT = "plugins: {queueSort: {enabled: [{name: PrioritySort}], disabled: [{name: '*'}]}}"
VERDICTS = {
    extenders("bindVerb: b", "bindVerb: c"): "extenders",
    extenders("bindVerb: b", "bindVerb: ''"): "",
    extenders("filterVerb: f", "filterVerb: f"): "",
    extenders(*["managedResources: [{name: a.b/c}]"] * 2): "extenders[1].managedResources[0].name",
    extenders("managedResources: [{name: a.b/c}, {name: a.b/c}]"): "extenders[0].managedResources[1].name",
    **{
        extenders(f"managedResources: [{{name: {name}}}]"): "extenders[0].managedResources[0].name"
        for name in ("gpu", "''")
    },
    extenders("managedResources: [{name: a.b/c_d}]"): "",
    **{
        extenders(f"prioritizeVerb: p{weight}"): "extenders[0].weight"
        for weight in ("", ", weight: 0", ", weight: -1", ", weight: null", ", weight: '1'")
    },
    extenders("prioritizeVerb: p, weight: 1.0"): "",
    extenders("weight: -1"): "",
    profiles("schedulerName: a", "schedulerName: a"): "profiles[1].schedulerName",
    profiles("schedulerName: a", "percentageOfNodesToScore: 5"): "profiles[1].schedulerName",
    profiles("schedulerName: ''"): "profiles[0].schedulerName",
    profiles("schedulerName: a", "schedulerName: b, plugins: {queueSort: {enabled: []}}"): "",
    profiles(f"schedulerName: a, {SORT}", f"schedulerName: b, {SORT}"): "",
}


def test_a_merge_refuses_profiles_and_extenders_that_kube_scheduler_refuses_and_no_others(tmp_path: Path) -> None:
    def ours(number: int, text: str) -> str:
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        try:
            ask("--for", "plain", "--merge", str(path))
        except ConfigError as error:
            return str(error).removeprefix(f"{path}: ").partition(": ")[0]
        return ""

    def theirs(number: int, text: str) -> bool:
        return bool(looked_at(tmp_path / f"{number}.theirs", text)[0])

    access = tmp_path / "kubeconfig"
    write_kubeconfig(access, "http://127.0.0.1:1", b"", user="nobody")
    texts = [f"{HEAD}clientConnection: {{kubeconfig: {access}}}\n{parts}" for parts in VERDICTS]
    assert list(VERDICTS.values()) == [ours(number, text) for number, text in enumerate(texts)]
    with ThreadPoolExecutor(2) as pool:
        refused = list(pool.map(theirs, range(len(texts)), texts))
    assert [bool(field) for field in VERDICTS.values()] == refused
