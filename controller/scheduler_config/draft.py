"""A KubeSchedulerConfiguration on its way, and what the file says about its lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from ruamel.yaml.comments import CommentedMap

from controller.errors import ConfigError
from controller.scheduler_config import tree
from controller.scheduler_config.options import Options
from controller.scheduler_config.tree import Layout

WHY: Final = {
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
    "bothProfiles": (
        "The pods that name these schedulers in spec.schedulerName. Where nothing is listed kube-scheduler has\n"
        "default-scheduler by itself, beside another one it has to be listed, or all other pods stay pending."
    ),
    "ignoredResources": (
        "No node offers the flag resource. Usually managedResources below says so; without that list\n"
        "pods that carry it would never fit."
    ),
    "extenders": "Asked one after the other; Longhorn's takes nothing away from others.",
    "filterVerb": "Which nodes have room for all Longhorn volumes of the pod; that room is held.",
    "prioritizeVerb": "Nodes with the pod's data, and surer ones, are better (0 to 10).",
    "weight": "What the score is multiplied by, as for a plugin of kube-scheduler.",
    "preemptVerb": "Else pods are evicted on nodes where the volumes find no room afterwards either.",
    "bindVerb": "As it was: the extender binds its pods, and needs the right to.",
    "enableHTTPS": "With the certificates below.",
    "tlsConfig": "In the file itself, so that nothing else needs to be mounted.",
    "tlsFiles": "Files, so that this one holds no secret. kube-scheduler reads them when it starts, and only then.",
    "insecure": "The extender's certificate is checked.",
    "caData": "The extender's authority.",
    "certData": "Who kube-scheduler is to the extender, which answers nobody without a certificate.",
    "keyData": "The private key: let nobody else read this file.",
    "caFile": "The extender's authority.",
    "certFile": "Who kube-scheduler is to the extender, which answers nobody without a certificate.",
    "keyFile": "Its private key.",
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


@dataclass(slots=True)
class Draft:
    """A document on its way. `source` names it in errors, `before` is what stood in it; empty: a new one."""

    document: CommentedMap
    options: Options
    layout: Layout
    source: str = ""
    before: Any = None
    notes: list[str] = field(default_factory=list)

    def put(self, node: CommentedMap, key: str, value: object, depth: int, why: str = "") -> None:
        text = WHY[why or key].format(title=self.options.platform.title)
        tree.put(node, key, value, text, depth * self.layout.mapping)

    def note(self, field_path: str, text: str) -> None:
        self.notes.append(f"{self.source}: {field_path}: {text}")

    def fail(self, field_path: str, problem: str) -> NoReturn:
        raise ConfigError(f"{self.source}: {field_path}: {problem}")
