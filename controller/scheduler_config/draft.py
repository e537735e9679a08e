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
    "kubeconfig": "The value that kube-scheduler had: with a configuration file it ignores its --kubeconfig flag.",
    "qps": (
        "With the default of 50 requests per second, the choices for a burst of pods show many seconds late,\n"
        "and room is held for that long."
    ),
    "burst": "Some seconds' worth of requests in one burst.",
    "leaderElect": "Of several copies only the elected one schedules. A --leader-elect flag overrides this.",
    "enableProfiling": "The value that {title} sets by a flag; with a configuration file kube-scheduler ignores the "
    "flag.",
    "percentageOfNodesToScore": (
        "All nodes are considered. Otherwise, with 100 nodes and more, the extender sees a sample of them, and a pod\n"
        "that fits only on other nodes is refused at first."
    ),
    "large": (
        "A quarter of the nodes (at least 100) is considered: shorter cycles for all pods of a large cluster. A pod\n"
        "that fits only on other nodes is refused and woken, and another quarter is considered.\n"
        "How many of these nodes a pod is offered is a setting of the extender, scheduler-extender-max-offers\n"
        "(100; 0: all): more offers give kube-scheduler more choice, and leave other pods of the moment less."
    ),
    "profiles": "For the pods that name this scheduler in spec.schedulerName.",
    "bothProfiles": (
        "For the pods that name these schedulers in spec.schedulerName. Without a list, kube-scheduler has the\n"
        "profile default-scheduler by itself; a list has to name it, or all other pods stay pending."
    ),
    "extenders": "Extenders are called one after the other; this one does not affect the others.",
    "filterVerb": "Tells which nodes have room for all Longhorn volumes of the pod, and holds that room.",
    "prioritizeVerb": "Prefers nodes with the pod's data, and nodes that surely fit (0 to 10).",
    "weight": "The factor of that score, as for a plugin of kube-scheduler.",
    "preemptVerb": "Keeps pods from being evicted on nodes where the volumes would still find no room.",
    "bindVerb": "Kept: the extender binds its pods, and needs the right to do so.",
    "enableHTTPS": "With the certificates below.",
    "tlsConfig": "Inside this file, so that nothing else has to be mounted.",
    "tlsFiles": "In other files, so that this one holds no secret. kube-scheduler reads them only when it starts.",
    "insecure": "The extender's certificate is checked.",
    "caData": "The extender's authority.",
    "certData": "Who kube-scheduler is to the extender, which answers nobody without a certificate.",
    "keyData": "The private key: let nobody else read this file.",
    "caFile": "The extender's authority.",
    "certFile": "Who kube-scheduler is to the extender, which answers nobody without a certificate.",
    "keyFile": "Its private key.",
    "serverName": "The name in the extender's certificate, independent of the address.",
    "nodeCacheCapable": (
        "Names of nodes are sent instead of whole nodes: small requests, and correct scores afterwards\n"
        "(kubernetes/kubernetes#141781)."
    ),
    "ignorable": "While the extender is away, its pods wait.",
    "ignored": "While the extender is away, its pods are scheduled without a check.",
    "httpTimeout": "At most 4s: an answer of a leader that has lost its Lease must not be used.",
    "longTimeout": "More than 4s: an answer of a leader that has lost its Lease may be used.",
    "managedResources": "Only pods that request this resource are sent to the extender,",
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
        """Sets a key, `depth` mappings deep. Where it is new, the text that WHY has for it stands above it."""
        text = WHY[why or key].format(title=self.options.platform.title)
        tree.put(node, key, value, text, depth * self.layout.mapping)

    def note(self, field_path: str, text: str) -> None:
        self.notes.append(": ".join(filter(None, (self.source, field_path, text))))

    def fail(self, field_path: str, problem: str) -> NoReturn:
        raise ConfigError(f"{self.source}: {field_path}: {problem}")
