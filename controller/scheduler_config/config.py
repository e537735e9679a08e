"""Writes the KubeSchedulerConfiguration: anew, or into one that exists. Both go the same way.

Field names and their meaning: kubescheduler.config.k8s.io/v1. What each is set to, and why, stands in `_WHY`, which is
also what the file says.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import yaml
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from controller.errors import BugError, ConfigError
from controller.model.names import EXTENDER_RESOURCE
from controller.scheduler_config import tree
from controller.scheduler_config.options import DEFAULT_BURST, DEFAULT_QPS, SERVICE, Options, require
from controller.scheduler_config.tree import Layout

GROUP: Final = "kubescheduler.config.k8s.io"
API_VERSION: Final = f"{GROUP}/v1"
KIND: Final = "KubeSchedulerConfiguration"

VERBS: Final = (
    ("filterVerb", "filter"),
    ("prioritizeVerb", "prioritize"),
    ("preemptVerb", "preempt"),
)
"""The calls that kube-scheduler makes. Not bind: kube-scheduler binds itself."""

WEIGHT: Final = 1
ALL_NODES: Final = 100
LARGE_CLUSTER_NODES: Final = 25

_WHY: Final = {
    "kubeconfig": "As kube-scheduler had it: with a configuration file its --kubeconfig flag is ignored.",
    "qps": (
        "With the default of 50 requests a second a burst of pods shows its choices many seconds late,\n"
        "and room stays held for that long."
    ),
    "burst": "Some seconds' worth of requests at once.",
    "leaderElect": "One of several copies schedules. A --leader-elect flag wins over this.",
    "resourceName": "A Lease of its own: under the default name it would wait for the cluster's kube-scheduler.",
    "resourceNamespace": "Where its rights to the Lease are.",
    "enableProfiling": "As {title} sets it by a flag, which is ignored with a configuration file.",
    "percentageOfNodesToScore": (
        "All nodes are looked at. Else the extender sees a sample of clusters of 100 nodes and more, and a pod\n"
        "that fits elsewhere only is refused first."
    ),
    "large": (
        "A quarter of the nodes is looked at (100 at least): shorter cycles for all pods of a large cluster. A pod\n"
        "that fits only on other nodes is refused and woken, and another quarter is looked at.\n"
        "How many of these nodes one pod is offered is a setting of the extender, scheduler-extender-max-offers\n"
        "(100; 0: all): more give kube-scheduler more choice, and pods of the same moment less."
    ),
    "profiles": "The pods that name this scheduler in spec.schedulerName.",
    "ignoredResources": (
        "No node offers the flag resource. Usually managedResources below says so; without that list\n"
        "pods that carry it would never fit."
    ),
    "extenders": "Asked one after the other; Longhorn's takes nothing away from others.",
    "filterVerb": "Which nodes have room for all Longhorn volumes of the pod; that room is held.",
    "prioritizeVerb": "Nodes with the pod's data, and surer ones, are better (0 to 10).",
    "weight": "What the score is multiplied by, as for a plugin of kube-scheduler.",
    "preemptVerb": "Else pods are evicted on nodes where the volumes find no room afterwards either.",
    "enableHTTPS": "With the certificates below.",
    "tlsConfig": "In the file itself, so that nothing else needs to be mounted.",
    "insecure": "The extender's certificate is checked.",
    "caData": "The extender's authority.",
    "certData": "Who kube-scheduler is to the extender, which answers nobody without a certificate.",
    "keyData": "The private key: let nobody else read this file.",
    "serverName": "The name in the extender's certificate, whatever address is called.",
    "nodeCacheCapable": (
        "Names of nodes are sent instead of whole nodes: small requests, and correct scores afterwards\n"
        "(kubernetes/kubernetes#141781)."
    ),
    "ignorable": "While the extender is away, its pods wait.",
    "ignored": "While the extender is away, its pods are scheduled without a check.",
    "httpTimeout": "Not more than 4s: an answer that comes after a lost Lease must not count.",
    "longTimeout": "More than 4s: an answer of a leader that has lost its Lease may be taken.",
    "managedResources": "Only pods that request this resource are sent to the extender,",
    "noResources": "(No managedResources: every pod of this scheduler is sent to the extender.)",
    "ignoredByScheduler": "and no node needs to offer it.",
}


@dataclass(frozen=True, slots=True)
class Rendered:
    """The file's text, and what somebody who merges should know (nothing when it was written anew)."""

    text: str
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Draft:
    """A document on its way. `source` names it in errors; empty: a new one."""

    document: CommentedMap
    options: Options
    layout: Layout
    source: str = ""
    notes: list[str] = field(default_factory=list)

    def put(self, node: CommentedMap, key: str, value: object, depth: int, why: str = "") -> None:
        text = _WHY[why or key].format(title=self.options.platform.title)
        tree.put(node, key, value, text, depth * self.layout.mapping)

    def note(self, field_path: str, text: str) -> None:
        self.notes.append(f"{self.source}: {field_path}: {text}")

    def fail(self, field_path: str, problem: str) -> None:
        raise ConfigError(f"{self.source}: {field_path}: {problem}")


def new_config(options: Options, header: str = "") -> Rendered:
    """A file that says what the options say and leaves everything else to kube-scheduler's defaults."""
    document = CommentedMap({"apiVersion": API_VERSION, "kind": KIND})
    if header:
        document.yaml_set_start_comment(header)
    return _finished(_Draft(document, options, Layout()))


def merged_config(text: str, source: str, options: Options) -> Rendered:
    """The given file with our entry in it; all else, comments too, stays. ConfigError names the field in the way."""
    document = tree.parse(text, source)
    draft = _Draft(document, options, tree.layout_of(document), source)
    _check(draft)
    return _finished(draft)


def _finished(draft: _Draft) -> Rendered:
    _set_connection(draft)
    _set_election(draft)
    if draft.options.platform.has_profiling_off and "enableProfiling" not in draft.document:
        draft.put(draft.document, "enableProfiling", False, 0)
    _set_percentage(draft)
    _set_profile(draft)
    _set_extender(draft)
    text = tree.write(draft.document, draft.layout)
    if yaml.safe_load(text) != tree.plain(draft.document):
        raise BugError(f"{draft.source or KIND}: what was written is not what was meant")
    return Rendered(text, tuple(draft.notes))


def _check(draft: _Draft) -> None:
    """Is it a file that kube-scheduler reads, with the parts that we touch in their form?"""
    document = draft.document
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind != KIND:
        draft.fail("kind", f"is {kind!r} and not {KIND}")
    if version != API_VERSION:
        old = isinstance(version, str) and version.startswith(f"{GROUP}/")
        reason = f", which kube-scheduler reads no more; convert the file to {API_VERSION}" if old else ""
        draft.fail("apiVersion", f"is {version!r} and not {API_VERSION}{reason}")
    for name, kind_of, words in (
        ("clientConnection", dict, "a mapping"),
        ("leaderElection", dict, "a mapping"),
        ("profiles", list, "a list"),
        ("extenders", list, "a list"),
    ):
        value = document.get(name)
        if value is not None and not isinstance(value, kind_of):
            draft.fail(name, f"is not {words}")
    for name in ("profiles", "extenders"):
        for index, item in enumerate(document.get(name) or ()):
            if not isinstance(item, dict):
                draft.fail(f"{name}[{index}]", "is not a mapping")


def _mapping(draft: _Draft, name: str) -> CommentedMap:
    """The mapping of that name, in block style; where there is none an empty one, not part of the document yet."""
    found = draft.document.get(name)
    if not found:
        return CommentedMap()
    made: CommentedMap = found
    if tree.is_flow(made):
        made.fa.set_block_style()
    return made


def _keep(draft: _Draft, name: str, mapping: CommentedMap) -> None:
    """Make it part of the document, when it is filled: comments at the document's end then stay there."""
    if draft.document.get(name) is not mapping:
        tree.put(draft.document, name, mapping, "", 0)


def _set_connection(draft: _Draft) -> None:
    options = draft.options
    connection = _mapping(draft, "clientConnection")
    kubeconfig = options.kubeconfig or (connection.get("kubeconfig") or options.platform.kubeconfig)
    if kubeconfig:
        draft.put(connection, "kubeconfig", kubeconfig, 1)
    for name, asked, least in (("qps", options.qps, DEFAULT_QPS), ("burst", options.burst, DEFAULT_BURST)):
        had = connection.get(name)
        if had is not None and not _is_number(had):
            draft.fail(f"clientConnection.{name}", f"is not a number: {had!r}")
        value = asked or (had if had and had >= least else least)
        if had and value != had:
            draft.note(f"clientConnection.{name}", f"was {had}, is {value}")
        draft.put(connection, name, value, 1)
    _keep(draft, "clientConnection", connection)


def _set_election(draft: _Draft) -> None:
    options = draft.options
    election = _mapping(draft, "leaderElection")
    had = election.get("leaderElect")
    wanted = options.leader_elect if options.leader_elect is not None else (True if had is None else had)
    draft.put(election, "leaderElect", wanted, 1)
    if options.is_second:
        draft.put(election, "resourceName", options.scheduler_name, 1)
        draft.put(election, "resourceNamespace", options.namespace, 1)
    _keep(draft, "leaderElection", election)


def _set_percentage(draft: _Draft) -> None:
    name = "percentageOfNodesToScore"
    options, had = draft.options, draft.document.get(name)
    if had is not None and not _is_number(had):
        draft.fail(name, f"is not a number: {had!r}")
    wanted = LARGE_CLUSTER_NODES if options.large_cluster else ALL_NODES
    if had and not options.large_cluster:
        if had != wanted:
            draft.note(name, f"{had} is kept; with {wanted} the extender sees all nodes at once")
    else:
        draft.put(draft.document, name, wanted, 0, "large" if options.large_cluster else "")
    for index, profile in enumerate(draft.document.get("profiles") or ()):
        if profile.get(name):
            draft.note(f"profiles[{index}].{name}", f"{profile[name]} is kept, and wins for the pods of that profile")


def _set_profile(draft: _Draft) -> None:
    wanted = draft.options.scheduler_name
    profiles = draft.document.get("profiles")
    if not wanted or any(profile.get("schedulerName") == wanted for profile in profiles or ()):
        return
    if profiles:
        # kube-scheduler's default profile exists only in a file without profiles, so nothing is lost by one more.
        tree.append(_block_list(profiles), CommentedMap(schedulerName=wanted))
        return
    profile = CommentedMap(schedulerName=wanted)
    draft.put(draft.document, "profiles", CommentedSeq([profile]), 0)
    if not draft.options.manages_resource:
        args = CommentedMap(ignoredResources=CommentedSeq([EXTENDER_RESOURCE]))
        fit = CommentedMap({"name": "NodeResourcesFit", "args": args})
        profile["pluginConfig"] = CommentedSeq([fit])
        column = 2 * draft.layout.sequence + draft.layout.mapping
        args.yaml_set_comment_before_after_key("ignoredResources", before=_WHY["ignoredResources"], indent=column)


def _set_extender(draft: _Draft) -> None:
    extenders = draft.document.get("extenders")
    if not extenders:
        draft.put(draft.document, "extenders", CommentedSeq([_entry(draft)]), 0)
        return
    ours = [index for index, extender in enumerate(extenders) if _is_ours(extender, draft.options)]
    if len(ours) > 1:
        places = " and ".join(f"extenders[{index}]" for index in ours)
        draft.fail("extenders", f"{places} are both entries of {SERVICE}; take one out")
    _block_list(extenders)
    if not ours:
        tree.append(extenders, _entry(draft))
        return
    entry, old = _entry(draft), extenders[ours[0]]
    where = f"extenders[{ours[0]}]"
    others = _resources(old) - {EXTENDER_RESOURCE}
    if others:
        draft.fail(f"{where}.managedResources", f"names {', '.join(sorted(others))} too; give that an entry of its own")
    _note_changes(draft, where, tree.plain(old), tree.plain(entry))
    tree.replace(extenders, ours[0], entry)


def _note_changes(draft: _Draft, where: str, old: dict[str, Any], new: dict[str, Any]) -> None:
    for name in sorted({*old, *new}):
        if old.get(name) == new.get(name):
            continue
        if name == "tlsConfig":
            draft.note(f"{where}.{name}", "is replaced")
        elif name in old:
            draft.note(f"{where}.{name}", f"was {old[name]!r}, is {new.get(name, 'not set')!r}")


def _is_ours(extender: dict[str, Any], options: Options) -> bool:
    """An entry for the flag resource, or for our Service under its name or under the address that was given."""
    if EXTENDER_RESOURCE in _resources(extender):
        return True
    try:
        parts = urlsplit(str(extender.get("urlPrefix", "")))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    return host.split(".")[0] == SERVICE or (host, port) == (options.host, options.port)


def _resources(extender: dict[str, Any]) -> set[str]:
    resources = extender.get("managedResources")
    if not isinstance(resources, list):
        return set()
    return {str(resource.get("name")) for resource in resources if isinstance(resource, dict)}


def _entry(draft: _Draft) -> CommentedMap:
    """Our item of `extenders`. Its first line has its comment beside it: one above would belong to the item before."""
    options, column = draft.options, draft.layout.sequence
    entry = CommentedMap(urlPrefix=options.url)
    why_address = "its name" if options.host == options.server_name else "an address of it"
    entry.yaml_add_eol_comment(f"the Service {SERVICE}, by {why_address}", "urlPrefix")

    def put(key: str, value: object, why: str = "") -> None:
        tree.put(entry, key, value, _WHY[why or key], column)

    for key, verb in VERBS:
        put(key, verb)
        if key == "prioritizeVerb":
            put("weight", WEIGHT)
    if options.certificates is not None:
        put("enableHTTPS", True)
        put("tlsConfig", _tls(draft))
    put("nodeCacheCapable", True)
    put("ignorable", options.ignorable, "ignored" if options.ignorable else "")
    long = options.timeout_milliseconds > 4_000
    why_timeout = _WHY["longTimeout" if long else "httpTimeout"]
    if not options.manages_resource:
        why_timeout += f"\n{_WHY['noResources']}"
    tree.put(entry, "httpTimeout", options.timeout, why_timeout, column)
    if options.manages_resource:
        resource = CommentedMap(name=EXTENDER_RESOURCE)
        tree.put(resource, "ignoredByScheduler", True, _WHY["ignoredByScheduler"], 2 * column)
        put("managedResources", CommentedSeq([resource]))
    return entry


def _tls(draft: _Draft) -> CommentedMap:
    options, column = draft.options, draft.layout.sequence + draft.layout.mapping
    certificates = options.certificates
    require(certificates is not None, "--ca-file", "is needed with https")
    assert certificates is not None
    tls = CommentedMap()
    for key, value in (
        ("insecure", False),
        ("caData", _base64(certificates.ca)),
        ("certData", _base64(certificates.certificate)),
        ("keyData", _base64(certificates.key)),
        ("serverName", options.server_name),
    ):
        tree.put(tls, key, value, _WHY[key], column)
    return tls


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _block_list(items: CommentedSeq) -> CommentedSeq:
    if tree.is_flow(items):
        items.fa.set_block_style()
    return items


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
