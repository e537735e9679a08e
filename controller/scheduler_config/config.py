"""Writes the KubeSchedulerConfiguration: anew, or into one that exists. Both go the same way.

Field names and their meaning: kubescheduler.config.k8s.io/v1. What each is set to, and why, stands in `draft.WHY`,
which is also what the file says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ruamel.yaml.comments import CommentedMap

from controller.errors import BugError
from controller.scheduler_config import tree, verdict
from controller.scheduler_config.draft import Draft
from controller.scheduler_config.entry import set_extender
from controller.scheduler_config.fragments import header_of
from controller.scheduler_config.options import DEFAULT_BURST, DEFAULT_QPS, Options
from controller.scheduler_config.profiles import keep_fit, note_unlisted, set_profile
from controller.scheduler_config.tree import Layout

GROUP: Final = "kubescheduler.config.k8s.io"
API_VERSION: Final = f"{GROUP}/v1"
KIND: Final = "KubeSchedulerConfiguration"

ALL_NODES: Final = 100
LARGE_CLUSTER_NODES: Final = 25


@dataclass(frozen=True, slots=True)
class Rendered:
    """The file's text, the texts of other files, and notes for the user (none for a new file)."""

    text: str
    notes: tuple[str, ...] = ()
    others: str = ""


def new_config(options: Options) -> Rendered:
    """A file with what the options say; everything else is left to kube-scheduler's defaults."""
    document = CommentedMap({"apiVersion": API_VERSION, "kind": KIND})
    if header := header_of(options):
        document.yaml_set_start_comment(header)
    return _finished(Draft(document, options, Layout()))


def merged_config(text: str, source: str, options: Options) -> Rendered:
    """The given file with our entry in it; all else, comments too, stays. ConfigError names the field in the way."""
    document = tree.parse(text, source)
    draft = Draft(document, options, tree.layout_of(document), source, tree.read_again(text, source))
    _check(draft)
    return _finished(draft)


def _finished(draft: Draft) -> Rendered:
    _set_connection(draft)
    _set_election(draft)
    if draft.options.platform.has_profiling_off and "enableProfiling" not in draft.document:
        draft.put(draft.document, "enableProfiling", False, 0)
    _set_percentage(draft)
    set_profile(draft)
    keep_fit(draft)
    set_extender(draft)
    text = tree.write(draft.document, draft.layout)
    found = tree.read_again(text, draft.source or KIND)
    lost = tree.difference(found, tree.plain(draft.document), draft.before)
    if lost and draft.source:
        draft.fail(
            lost, "cannot be kept as written; quote texts, and write booleans as true or false, numbers in decimal"
        )
    if lost:
        raise BugError(f"{KIND}: {lost}: what was written is not what was meant")
    verdict.check(draft, found)
    note_unlisted(draft)
    return Rendered(text, tuple(draft.notes))


def _check(draft: Draft) -> None:
    """Raises ConfigError unless kube-scheduler reads such a file, and the parts that we change have the right shape."""
    document = draft.document
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind != KIND:
        draft.fail("kind", f"is {kind!r} and not {KIND}")
    if version != API_VERSION:
        old = isinstance(version, str) and version.startswith(f"{GROUP}/")
        reason = f", which kube-scheduler no longer reads; convert the file to {API_VERSION}" if old else ""
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


def _set_connection(draft: Draft) -> None:
    options, connection = draft.options, tree.mapping_at(draft.document, "clientConnection")
    kubeconfig = options.scheduler_kubeconfig or connection.get("kubeconfig") or options.platform.kubeconfig
    if kubeconfig:
        draft.put(connection, "kubeconfig", kubeconfig, 1)
    for name, asked, least in (("qps", options.qps, DEFAULT_QPS), ("burst", options.burst, DEFAULT_BURST)):
        had = _number(draft, connection.get(name), f"clientConnection.{name}")
        value = asked or (had if had and had >= least else least)
        if had and value != had:
            draft.note(f"clientConnection.{name}", f"was {had}, is {value}")
        draft.put(connection, name, value, 1)
    tree.put(draft.document, "clientConnection", connection, "", 0)


def _set_election(draft: Draft) -> None:
    election, wanted = tree.mapping_at(draft.document, "leaderElection"), draft.options.leader_elect
    if wanted is not None or election.get("leaderElect") is None:
        draft.put(election, "leaderElect", wanted is not False, 1)
    tree.put(draft.document, "leaderElection", election, "", 0)


def _set_percentage(draft: Draft) -> None:
    name = "percentageOfNodesToScore"
    had = _number(draft, draft.document.get(name), name)
    if draft.options.large_cluster:
        draft.put(draft.document, name, LARGE_CLUSTER_NODES, 0, "large")
    elif not had:
        draft.put(draft.document, name, ALL_NODES, 0)
    elif had != ALL_NODES:
        draft.note(name, f"{had} is kept; with {ALL_NODES} the extender sees all nodes in each call")
    for index, profile in enumerate(draft.document.get("profiles") or ()):
        if profile.get(name):
            draft.note(
                f"profiles[{index}].{name}", f"{profile[name]} is kept, and decides for the pods of that profile"
            )


def _number(draft: Draft, value: Any, field_path: str) -> Any:
    """The value itself, which is a number or None; ConfigError for any other."""
    if value is not None and not (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0):
        draft.fail(field_path, f"is not a number: {value!r}")
    return value
