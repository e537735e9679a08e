"""A configuration that exists gets our entry, and loses nothing: no profile, no other extender, no comment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.errors import ConfigError
from controller.model.names import EXTENDER_RESOURCE
from controller.scheduler_config.config import Rendered, merged_config, new_config
from controller.scheduler_config.options import PLATFORMS, CertificateData, Options
from tests.unit.scheduler_config.asking import ask

read = yaml.safe_load
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
GIVEN = {path.stem: path.read_text() for path in (Path(__file__).parent / "given").iterdir()}
FULL, ORDERED, TWO_WAYS, UNNAMED = (GIVEN[name] for name in ("full", "ordered", "two_ways", "unnamed"))


def options(**changes: Any) -> Options:
    return Options(PLATFORMS[changes.pop("platform", "plain")], **changes).checked()


def merge(text: str, **changes: Any) -> Rendered:
    return merged_config(text, "FILE", options(**changes))


def merged(parts: str, **changes: Any) -> Any:
    """What becomes of a file with these parts, read back."""
    return read(merge(HEAD + parts, **changes).text)


def comments(text: str) -> list[str]:
    """All that stands behind a number sign; no value in these files has one."""
    return [line.partition("#")[2].strip() for line in text.splitlines() if "#" in line]


def kept_comments(before: str, after: str) -> bool:
    """All of them, in their order."""
    return comments(before) == [comment for comment in comments(after) if comment in comments(before)]


def ours(document: Any) -> Any:
    managed = [{"name": EXTENDER_RESOURCE, "ignoredByScheduler": True}]
    (entry,) = [entry for entry in document["extenders"] if managed == entry.get("managedResources")]
    return entry


NEW = read(new_config(options()).text)


def test_what_is_there_stays_in_its_words_and_its_order_and_our_entry_comes_last() -> None:
    after = merge(FULL).text
    kept = [line for line in after.splitlines() if line in FULL.splitlines()]
    # Lists and mappings of another depth than the first ones are brought to theirs; the words stay.
    assert kept_comments(FULL, after)
    assert kept[:7] == FULL.splitlines()[:7]
    before, now = read(FULL), read(after)
    assert before["profiles"] == now["profiles"]
    assert [*before["extenders"], *NEW["extenders"]] == now["extenders"]
    assert {"leaderElect": False} == now["leaderElection"]
    assert {"kubeconfig": "/etc/k/scheduler.conf", "qps": 800, "burst": 1000} == now["clientConnection"]
    assert after.endswith("# the end\n")


def test_a_file_that_was_written_anew_is_merged_into_itself() -> None:
    for platform in ("plain", "k3s"):
        wanted = options(platform=platform, service_address="10.96.0.7", large_cluster=platform == "k3s")
        text = new_config(wanted).text
        assert Rendered(text) == merged_config(text, "FILE", wanted)


@pytest.mark.parametrize(
    "empty", ["", "extenders:\n", "extenders: []\n", "extenders: null\n", "clientConnection: {}\n", "---\n# none\n"]
)
def test_the_smallest_file_and_empty_parts_become_what_is_written_anew(empty: str) -> None:
    assert NEW == merged(empty)


def test_lists_and_mappings_in_a_line_are_added_to() -> None:
    after = merged("clientConnection: {kubeconfig: /k}\nextenders: [{urlPrefix: http://x, filterVerb: f}]\n")
    assert {"kubeconfig": "/k", "qps": 500, "burst": 1000} == after["clientConnection"]
    assert {"urlPrefix": "http://x", "filterVerb": "f"} == after["extenders"][0]
    assert 2 == len(after["extenders"])


# Our own older entry


OLDER = [
    f"- urlPrefix: http://1.2.3.4:1\n  bindVerb: bind\n  managedResources: [{{name: {EXTENDER_RESOURCE}}}]\n",
    "- urlPrefix: http://longhorn-scheduler-extender.storage.svc.cluster.local:9504/api/scheduler\n  filterVerb: f\n",
    "- urlPrefix: http://10.96.0.7:9504\n  filterVerb: f\n",
]


@pytest.mark.parametrize("older", OLDER)
def test_our_older_entry_is_replaced_where_it_stands(older: str) -> None:
    text = HEAD + "extenders:\n- urlPrefix: http://a\n# old\n" + older + "# next\n- urlPrefix: http://b   # b\n# last\n"
    after = merge(text, service_address="10.96.0.7").text
    found = read(after)["extenders"]
    assert ["http://a", "http://10.96.0.7:9504", "http://b"] == [entry["urlPrefix"] for entry in found]
    assert ours(read(after)) == found[1]
    lines = after.splitlines()
    assert "- urlPrefix: http://b   # b" == lines[lines.index("# next") + 1]
    assert {"old", "next", "b", "last"} <= set(comments(after))


def test_what_changes_in_our_older_entry_is_said_but_for_keys() -> None:
    notes = merge(f"{HEAD}extenders:\n{OLDER[0]}  tlsConfig: {{keyData: U0VDUkVU}}\n").notes
    assert any(note.startswith("FILE: extenders[0].urlPrefix: was 'http://1.2.3.4:1'") for note in notes)
    assert "FILE: extenders[0].tlsConfig: is replaced" in notes
    assert not any("filterVerb" in note or "U0VDUkVU" in note for note in notes)


SECURE = """\
extenders:
- urlPrefix: https://10.96.0.7:9504
  enableHTTPS: true
  weight: 7
  bindVerb: bind
  ignorable: true
  tlsConfig: {caData: QQ==}
"""
CERTIFICATES = CertificateData(b"ca", b"certificate", b"key")


def test_https_is_given_up_only_when_plain_http_is_asked_for() -> None:
    (asked,) = merged(SECURE, service_address="10.96.0.7")["extenders"]  # no certificates: --insecure-plain-http
    found = asked["urlPrefix"], asked.get("enableHTTPS"), asked.get("tlsConfig")
    assert ("http://10.96.0.7:9504", None, None) == found
    (kept,) = merged(SECURE, service_address="10.96.0.7", certificates=CERTIFICATES)["extenders"]
    assert ("https://10.96.0.7:9504", True) == (kept["urlPrefix"], kept["enableHTTPS"])
    assert "Y2E=" == kept["tlsConfig"]["caData"]


def test_what_somebody_chose_in_our_older_entry_stays_and_is_noted() -> None:
    rendered = merge(HEAD + SECURE, service_address="10.96.0.7", certificates=CERTIFICATES)
    (entry,) = read(rendered.text)["extenders"]
    assert (7, "bind", True) == (entry["weight"], entry["bindVerb"], entry["ignorable"])
    for name in ("weight: 7 is kept", "bindVerb: is kept", "ignorable: true is kept"):
        assert any(note.startswith(f"FILE: extenders[0].{name}") for note in rendered.notes)
    assert rendered.text == merge(rendered.text, service_address="10.96.0.7", certificates=CERTIFICATES).text


@pytest.mark.parametrize(("written", "is_true"), [("true", True), ("yes", True), ("false", False), ("no", False)])
def test_what_happens_while_the_extender_is_away_stays_unless_it_is_asked_for(written: str, is_true: bool) -> None:
    text = f"extenders:\n{OLDER[0]}  ignorable: {written}\n"
    found = [ours(merged(text, ignorable=asked))["ignorable"] for asked in (None, True, False)]
    assert [is_true, True, False] == found
    assert not any(".ignorable" in note and "kept" in note for note in merge(HEAD + text, ignorable=is_true).notes)


def test_a_weight_that_kube_scheduler_refuses_is_not_kept() -> None:
    for weight in ("0", "-3", "'7'", "true", "1.5"):
        assert "1" == str(ours(merged(f"extenders:\n{OLDER[0]}  weight: {weight}\n"))["weight"])


# What was decided by somebody


def test_a_slow_client_is_made_faster_and_a_faster_one_stays() -> None:
    rendered = merge(HEAD + "clientConnection:\n  qps: 50\n  burst: 5000\n")
    assert (500, 5000) == tuple(read(rendered.text)["clientConnection"].values())[:2]
    assert ("FILE: clientConnection.qps: was 50, is 500",) == rendered.notes
    assert 60 == merged("clientConnection: {qps: 900}\n", qps=60)["clientConnection"]["qps"]


def test_a_share_of_nodes_that_somebody_chose_stays_and_is_noted() -> None:
    share = "percentageOfNodesToScore: 30"
    # 0 stands for kube-scheduler's own choice, as in files that it wrote itself.
    found = [merged(share), merged(share, large_cluster=True), merged("percentageOfNodesToScore: 0")]
    assert [30, 25, 100] == [document["percentageOfNodesToScore"] for document in found]
    assert (f"FILE: {share} is kept; with 100 the extender sees all nodes in each call",) == merge(HEAD + share).notes
    profile = "profiles:\n- schedulerName: x\n  percentageOfNodesToScore: 5\n"
    note = "FILE: profiles[0].percentageOfNodesToScore: 5 is kept, and decides for the pods of that profile"
    assert (note,) == merge(HEAD + profile, scheduler_names="x").notes


def test_kubeconfig_and_election_stay_unless_they_are_asked_for() -> None:
    text = "clientConnection:\n  kubeconfig: /a\nleaderElection:\n  leaderElect: false\n  resourceName: r\n"
    kept, asked = merged(text), merged(text, scheduler_kubeconfig="/b", leader_elect=True)
    assert ("/a", False) == (kept["clientConnection"]["kubeconfig"], kept["leaderElection"]["leaderElect"])
    assert ("/b", True) == (asked["clientConnection"]["kubeconfig"], asked["leaderElection"]["leaderElect"])
    assert "r" == asked["leaderElection"]["resourceName"]


def test_a_profile_is_added_when_it_is_asked_for_and_not_there() -> None:
    listed = ["default-scheduler", "batch"]
    for name, expected in (("third", [*listed, "third"]), ("batch", listed)):
        found = read(merge(FULL, scheduler_name=name).text)["profiles"]
        assert expected == [profile["schedulerName"] for profile in found]


# What older and newer YAML read otherwise


def test_values_that_older_yaml_reads_otherwise_stay_as_they_are_written() -> None:
    before, after = TWO_WAYS, merge(TWO_WAYS, platform="k3s", service_address="10.96.0.7").text
    kept = before.replace("{qps: 1e3, burst: 5_000}", "").splitlines()
    assert [] == [line for line in kept if line.rstrip() not in map(str.rstrip, after.splitlines())]
    assert {"  qps: 1e3", "  burst: 5_000"} <= set(after.splitlines())
    for name in ("leaderElection", "enableProfiling", "parallelism", "podMaxBackoffSeconds", "profiles"):
        assert read(before)[name] == read(after)[name]
    assert kept_comments(before, after)


# Profiles


@pytest.mark.parametrize("none", ["", "profiles:\n", "profiles: []\n"])
def test_where_no_profile_is_listed_that_of_ordinary_pods_is_listed_first(none: str) -> None:
    """kube-scheduler has default-scheduler by itself only where no profile is listed."""
    assert not merged(none).get("profiles")
    ordinary = {"schedulerName": "default-scheduler"}
    assert [ordinary, {"schedulerName": "mine"}] == merged(none, scheduler_name="mine")["profiles"]
    assert [ordinary] == merged(none, scheduler_name="default-scheduler")["profiles"]


@pytest.mark.parametrize("listed", [None, "default-scheduler,second", "first,second,third"])
def test_profiles_whose_pods_nobody_checks_are_noted(listed: str | None) -> None:
    three = "profiles:\n" + "".join(f"- schedulerName: {name}\n" for name in ("first", "second", "third"))
    rendered = merge(HEAD + three, **({"scheduler_names": listed} if listed else {}))
    unlisted = [name for name in ("first", "second", "third") if name not in (listed or "")]
    assert [f"FILE: profiles[{['first', 'second', 'third'].index(name)}].schedulerName" for name in unlisted] == [
        note.partition(": is ")[0] for note in rendered.notes
    ]
    assert all("--scheduler-names" in note and "(chart: schedulerNames)" in note for note in rendered.notes)
    assert ("profiles[1].schedulerName: is mine",) == tuple(
        note.partition(": its")[0] for note in new_config(options(scheduler_name="mine")).notes
    )


def test_a_single_profile_without_a_name_is_that_of_ordinary_pods() -> None:
    before = read(UNNAMED)["profiles"]
    for changes in ({}, {"scheduler_name": "default-scheduler"}):
        assert before == read(merge(UNNAMED, **changes).text)["profiles"]
    rendered = merge(UNNAMED, scheduler_name="mine", scheduler_names="default-scheduler,mine")
    profiles = read(rendered.text)["profiles"]
    assert [{"schedulerName": "default-scheduler", **before[0]}, {"schedulerName": "mine"}] == profiles
    assert kept_comments(UNNAMED, rendered.text)
    (note,) = rendered.notes
    assert note.startswith("FILE: profiles[0].schedulerName: was not set, is default-scheduler")


@pytest.mark.parametrize("profile", ["- schedulerName:\n  plugins: {}\n", "- {}\n", "- plugins: {}\n"])
def test_a_single_profile_without_a_name_is_named_in_all_its_forms(profile: str) -> None:
    found = merged(f"profiles:\n{profile}", scheduler_name="mine")["profiles"]
    assert ["default-scheduler", "mine"] == [profile["schedulerName"] for profile in found]


def test_an_added_profile_orders_the_queue_as_the_others_do() -> None:
    rendered = merge(ORDERED, scheduler_name="mine")
    first, added = read(rendered.text)["profiles"]
    assert first == read(ORDERED)["profiles"][0]
    assert {
        "schedulerName": "mine",
        "plugins": {"queueSort": first["plugins"]["queueSort"]},
        "pluginConfig": [{"name": "on", "args": {"wait": "0755"}}],
    } == added
    assert kept_comments(ORDERED, rendered.text)
    assert "profiles[0].plugins.queueSort: is copied to the profile mine" in rendered.notes[0]


@pytest.mark.parametrize(
    "plugins",
    [
        "{multiPoint: {enabled: [{name: Other}]}}",
        "{multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}]}}",
        "{multiPoint: {disabled: [{name: ImageLocality}]}}",
        "{queueSort: {}}",
        "",
    ],
)
def test_a_profile_with_the_usual_order_is_not_copied_from(plugins: str) -> None:
    text = f"profiles:\n- schedulerName: a\n  plugins: {plugins}\n"
    assert {"schedulerName": "mine"} == merged(text, scheduler_name="mine")["profiles"][1]


@pytest.mark.parametrize(
    ("plugins", "where"),
    [
        ("{multiPoint: {disabled: [{name: PrioritySort}], enabled: [{name: Other}]}}", "multiPoint"),
        ("{multiPoint: {disabled: [{name: '*'}], enabled: [{name: Other}]}}", "multiPoint"),
        ("{multiPoint: {enabled: [{name: Other}]}, queueSort: {disabled: [{name: PrioritySort}]}}", "multiPoint"),
        ("{multiPoint: {disabled: [{name: '*'}]}, queueSort: {enabled: [{name: Other}]}}", "queueSort"),
        ("{queueSort: 3}", "queueSort: is not a mapping"),
    ],
)
def test_an_order_that_queue_sort_does_not_tell_is_not_guessed(plugins: str, where: str) -> None:
    text = f"{HEAD}profiles:\n- schedulerName: a\n  plugins: {plugins}\n"
    with pytest.raises(ConfigError, match=rf"^FILE: profiles\[0\]\.plugins\.{where}"):
        merge(text, scheduler_name="mine")
    assert merge(text).text


# What cannot be merged


SHARED = f"extenders:\n- managedResources: [{{name: {EXTENDER_RESOURCE}}}, {{name: a.b/gpu}}]\n"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "FILE: holds no mapping"),
        ("- a\n", "FILE: holds no mapping"),
        ("a: [\n", "FILE: is not YAML"),
        (HEAD + "a: &a [*a]\n", "FILE: holds an anchor that contains itself"),
        (HEAD + "a: 2026-13-45\n", "FILE: is not YAML"),
        (HEAD + "a: =\n", "FILE: is not YAML"),
        (HEAD + "kind: KubeSchedulerConfiguration\n", "FILE: is not YAML: .*duplicate key"),
        (HEAD + "---\n" + HEAD, "FILE: holds 2 documents"),
        ('{"apiVersion": "kubescheduler.config.k8s.io/v1"}', "FILE: is JSON"),
        ("apiVersion: kubescheduler.config.k8s.io/v1\n", "FILE: kind: is None"),
        (HEAD.replace("KubeSchedulerConfiguration", "Policy"), "FILE: kind: is 'Policy'"),
        (HEAD.replace("/v1", "/v1beta3"), "FILE: apiVersion: .*v1beta3.* no longer reads"),
        (HEAD.replace("kubescheduler.config.k8s.io/", ""), "FILE: apiVersion: is 'v1'"),
        (HEAD + "clientConnection: 3\n", "FILE: clientConnection: is not a mapping"),
        (HEAD + "clientConnection: {qps: fast}\n", r"FILE: clientConnection\.qps: is not a number"),
        (HEAD + "clientConnection: {burst: -1}\n", r"FILE: clientConnection\.burst: is not a number"),
        (HEAD + "leaderElection: []\n", "FILE: leaderElection: is not a mapping"),
        (HEAD + "leaderElection: [1]\n", "FILE: leaderElection: is not a mapping"),
        (HEAD + "profiles: {}\n", "FILE: profiles: is not a list"),
        (HEAD + "profiles: [a]\n", r"FILE: profiles\[0\]: is not a mapping"),
        (HEAD + "extenders: http://x\n", "FILE: extenders: is not a list"),
        (HEAD + "extenders:\n- urlPrefix: http://x\n- y\n", r"FILE: extenders\[1\]: is not a mapping"),
        (HEAD + "percentageOfNodesToScore: all\n", "FILE: percentageOfNodesToScore: is not a number"),
        (HEAD + "extenders:\n" + OLDER[0] + OLDER[1], r"FILE: extenders: extenders\[0\] and extenders\[1\] are both"),
        (HEAD + "profiles:\n- schedulerName: a\n- plugins: {}\n", r"FILE: profiles\[1\]\.schedulerName: is not set"),
        (HEAD + "on: 1\n", "FILE: (True|on): cannot be kept as written"),
        (HEAD + SHARED, r"FILE: extenders\[0\]\.managedResources: names a\.b/gpu too"),
    ],
)
def test_the_field_that_is_in_the_way_is_named(text: str, where: str) -> None:
    with pytest.raises(ConfigError, match=f"^{where}"):
        merge(text, scheduler_name="mine")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"^--merge: .*binary: is not UTF-8 text"):
        ask("--for", "plain", "--merge", str(path))


# Any file


@st.composite
def files(draw: st.DrawFn) -> str:
    """Files in block style: parts in any order, lists with and without an indent, comments wherever they may stand."""
    dash = draw(st.sampled_from(["", "  "]))
    number = iter(range(1000))

    def note(indent: str) -> str:
        kind = draw(st.sampled_from(["", "", "\n", "# {}\n", "\n# {}\n", "# {}\n\n"]))
        return "".join(f"{indent}{line}\n" if line else "\n" for line in kind.format(next(number)).splitlines())

    def line(text: str, indent: str = "") -> str:
        beside = draw(st.sampled_from(["", "", "   # {}", " # {}"])).format(next(number))
        return f"{note(indent)}{indent}{text}{beside}\n"

    def items(key: str, entries: list[list[str]]) -> str:
        text = line(f"{key}:")
        for first, *rest in entries:
            text += line(f"- {first}", dash) + "".join(line(part, f"{dash}  ") for part in rest)
        return text

    foreign = ["urlPrefix: http://x", "filterVerb: f"]
    ours = ["urlPrefix: http://longhorn-scheduler-extender.a.svc", "weight: 3", "filterVerb: g"]
    lists = [foreign, *draw(st.sampled_from([[], [ours], [foreign], [ours, foreign]]))]
    parts = {
        "clientConnection": line("clientConnection:") + line("kubeconfig: /k", "  ") + line("qps: 7", "  "),
        "profiles": items("profiles", [["schedulerName: a"], ["schedulerName: b", "percentageOfNodesToScore: 4"]]),
        "extenders": items("extenders", draw(st.permutations(lists))),
        "parallelism": line("parallelism: 3"),
    }
    wanted = draw(st.lists(st.sampled_from(sorted(parts)), unique=True))
    return note("") + HEAD + "".join(parts[name] for name in wanted) + note("")


@settings(max_examples=80)
@given(files())
def test_nothing_is_lost_from_any_file(text: str) -> None:
    before, once = read(text), merge(text).text
    now = read(once)
    assert Rendered(once).text == merge(once).text
    assert 1 == sum("longhorn" in entry["urlPrefix"] for entry in now["extenders"])
    foreign = [entry for entry in before.get("extenders") or () if "longhorn" not in entry["urlPrefix"]]
    assert foreign == [entry for entry in now["extenders"] if "longhorn" not in entry["urlPrefix"]]
    for name in ("profiles", "parallelism"):
        assert before.get(name) == now.get(name)
    assert "/k" == now["clientConnection"]["kubeconfig"] or "clientConnection" not in before
    inside = _inside_our_entry(text)
    assert [found for found in comments(text) if found not in inside] == [
        found for found in comments(once) if found in comments(text) and found not in inside
    ]


def _inside_our_entry(text: str) -> list[str]:
    """The comments from our older entry's first line to its last: they go with it."""
    lines = text.splitlines()
    first = next((number for number, found in enumerate(lines) if "longhorn-scheduler" in found), None)
    if first is None:
        return []
    last = next(number for number, found in enumerate(lines) if number > first and "filterVerb: g" in found)
    return comments("\n".join(lines[first : last + 1]))


# What kube-scheduler makes of its plugin for resources, once an extender's resources are ignored

FIT = {"name": "NodeResourcesFit", "args": {}}


@pytest.mark.parametrize(
    ("plugins", "more", "is_added"),
    [
        ("multiPoint: {disabled: [{name: NodeResourcesFit}]}", "", True),
        ("multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}, {name: DefaultBinder}]}", "", True),
        ("multiPoint: {disabled: [{name: '*'}]}", "{name: Other}", True),
        ("multiPoint: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit}]}", "", False),
        ("multiPoint: {disabled: [{name: '*'}]}, score: {enabled: [{name: NodeResourcesFit}]}", "", False),
        ("filter: {disabled: [{name: NodeResourcesFit}]}", "", False),
        ("multiPoint: {disabled: [{name: ImageLocality}]}", "", False),
        ("multiPoint: {disabled: [{name: '*'}]}", "{name: NodeResourcesFit, args: {}}", False),
    ],
)
def test_a_profile_without_the_plugin_for_resources_gets_its_arguments(plugins: str, more: str, is_added: bool) -> None:
    """kubernetes/kubernetes#60332: without them kube-scheduler ends with "can't find NodeResourcesFitArgs"."""
    text = f"{HEAD}profiles:\n- schedulerName: default-scheduler\n- schedulerName: packs\n  plugins: {{{plugins}}}\n"
    text += f"  pluginConfig: [{more}]\n" if more else ""
    rendered = merge(text, scheduler_names="default-scheduler,packs")
    before, after = read(text)["profiles"], read(rendered.text)["profiles"]
    assert before[0] == after[0]
    assert [*before[1].get("pluginConfig", ()), *([FIT] if is_added else ())] == after[1].get("pluginConfig", [])
    note = "FILE: profiles[1].pluginConfig: NodeResourcesFit is added: without it kube-scheduler does not start"
    assert [is_added] == [len(rendered.notes) == 1 and rendered.notes[0].startswith(note)]
    again = merge(rendered.text, scheduler_names="default-scheduler,packs")
    assert (rendered.text, ()) == (again.text, again.notes)


@pytest.mark.parametrize(
    ("args", "lost"),
    [
        ("ignoredResources: [example.com/foo, other.com/x]", "example.com/foo, other.com/x"),
        ("ignoredResources: [example.com/foo], ignoredResourceGroups: [example.com]", ""),
        ("ignoredResources: [taken.com/one]", ""),
        ("scoringStrategy: {type: MostAllocated}", ""),
    ],
)
def test_resources_that_kube_scheduler_no_longer_ignores_are_named(args: str, lost: str) -> None:
    """kubernetes/kubernetes#88887 brought the argument, which an extender's resources replace."""
    others = "extenders:\n- urlPrefix: http://x\n  managedResources:\n"
    others += "  - {name: taken.com/one, ignoredByScheduler: true}\n"
    config = f"profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args: {{{args}}}\n"
    notes = merge(HEAD + config + others).notes
    where = "FILE: profiles[0].pluginConfig[0].args.ignoredResources: kube-scheduler replaces it beside an extender's "
    told = f"{where}resources and looks for {lost} on nodes again; name the group in ignoredResourceGroups instead"
    assert ((told,) if lost else ()) == notes


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ("{name: x}", ""),
        ("[{name: NodeResourcesFit, args: {ignoredResources: x}}]", "[0].args.ignoredResources"),
        ("[{name: NodeResourcesFit, args: {ignoredResourceGroups: 3}}]", "[0].args.ignoredResources"),
    ],
)
def test_settings_of_plugins_that_are_no_list_are_refused(config: str, field: str) -> None:
    with pytest.raises(ConfigError, match=rf"profiles\[0\]\.pluginConfig{re.escape(field)}: is not a list"):
        merge(f"{HEAD}profiles:\n- pluginConfig: {config}\n")
