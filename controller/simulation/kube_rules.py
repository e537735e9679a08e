"""Which nodes kube-scheduler's own rules leave to a pod: cordons, taints, selectors, required affinity, requests, and
required anti-affinity to other pods. What is not modelled is said of each pod (`unmodelled`).

Sources: Kubernetes' `pkg/scheduler/framework/plugins` (nodeunschedulable, tainttoleration, nodeaffinity,
noderesources, interpodaffinity) and `component-helpers/scheduling/corev1`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from controller.model.names import EXTENDER_RESOURCE
from controller.model.quantity import quantity_millis
from controller.model.reader import Raw, list_at, mapping_at, text_at

_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_CORDON: Final = {"key": _UNSCHEDULABLE, "effect": "NoSchedule"}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_HARD: Final = ("NoSchedule", "NoExecute")
HOSTNAME: Final = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class NodeRules:
    """A Kubernetes node as kube-scheduler looks at it. `allocatable`: in thousandths, by resource; None: not known."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Raw]
    allocatable: Mapping[str, int] | None

    @classmethod
    def of(cls, raw: Raw) -> NodeRules:
        """Raises MalformedRequestError."""
        meta, spec = mapping_at(raw, "", "metadata"), mapping_at(raw, "", "spec")
        name = text_at(meta, "metadata", "name")
        labels = {HOSTNAME: name, **_texts(mapping_at(meta, "metadata", "labels"))}
        taints = [one for one in list_at(spec, "spec", "taints") if isinstance(one, Mapping)]
        if spec.get("unschedulable") is True and not any(one.get("key") == _UNSCHEDULABLE for one in taints):
            taints.append(_CORDON)
        given = mapping_at(raw, "", "status", "allocatable")
        allocatable = {key: quantity_millis(given[key], f"status.allocatable.{key}") for key in given}
        return cls(name, labels, taints, allocatable or None)


@dataclass(frozen=True, slots=True)
class PodRules:
    """What a pod asks of its node. `requests`: in thousandths, by resource. `unmodelled`: what is asked beside."""

    namespace: str
    labels: Mapping[str, str]
    node: str
    selector: Mapping[str, str]
    terms: Sequence[Raw] | None
    tolerations: Sequence[Raw]
    requests: Mapping[str, int]
    apart: Sequence[tuple[str, Raw, tuple[str, ...]]]  # topology key, label selector, namespaces
    unmodelled: frozenset[str]

    @classmethod
    def of(cls, raw: Raw) -> PodRules:
        """Raises MalformedRequestError, which names the field."""
        meta, spec = mapping_at(raw, "", "metadata"), mapping_at(raw, "", "spec")
        namespace = text_at(meta, "metadata", "namespace") or "default"
        affinity = mapping_at(spec, "spec", "affinity")
        nodes = mapping_at(affinity, "spec.affinity", "nodeAffinity", _REQUIRED)
        apart = mapping_at(affinity, "spec.affinity", "podAntiAffinity")
        entries = list_at(apart, "spec.affinity.podAntiAffinity", _REQUIRED)
        terms = list_at(nodes, f"spec.affinity.nodeAffinity.{_REQUIRED}", "nodeSelectorTerms") if nodes else None
        return cls(
            namespace,
            _texts(mapping_at(meta, "metadata", "labels")),
            text_at(spec, "spec", "nodeName"),
            _texts(mapping_at(spec, "spec", "nodeSelector")),
            terms,
            [one for one in list_at(spec, "spec", "tolerations") if isinstance(one, Mapping)],
            requests_of(spec),
            [_apart(one, namespace) for one in entries if isinstance(one, Mapping)],
            frozenset(_unmodelled(spec, affinity, entries)),
        )


def requests_of(spec: Raw) -> dict[str, int]:
    """What a pod requests, in thousandths by resource: the sum of its containers, or its largest init container beside
    those that go on running."""
    total, most = Counter[str](), dict[str, int]()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(list_at(spec, "spec", group)):
            path = f"spec.{group}[{index}]"
            wanted = _quantities(mapping_at(container, path, "resources", "requests"), f"{path}.resources.requests")
            stays = group == "containers" or container.get("restartPolicy") == "Always"
            for name, value in wanted.items():
                most[name] = max(most.get(name, 0), total[name] + value)
                total[name] += value if stays else 0
    found = {name: max(total[name], most.get(name, 0)) for name in total.keys() | most.keys()}
    for name, value in _quantities(mapping_at(spec, "spec", "overhead"), "spec.overhead").items():
        found[name] = found.get(name, 0) + value
    found.pop(EXTENDER_RESOURCE, None)
    return {**found, "pods": 1000}


def _quantities(raw: Raw, path: str) -> dict[str, int]:
    return {name: quantity_millis(raw[name], f"{path}.{name}") for name in raw}


def _texts(raw: Raw) -> dict[str, str]:
    return {key: str(value) for key, value in raw.items()}


def _apart(term: Raw, namespace: str) -> tuple[str, Raw, tuple[str, ...]]:
    given = [str(one) for one in term.get("namespaces") or ()]
    return str(term.get("topologyKey") or ""), term.get("labelSelector") or {}, tuple(given or (namespace,))


def _unmodelled(spec: Raw, affinity: Raw, apart: Iterable[Any]) -> Iterator[str]:
    if mapping_at(affinity, "spec.affinity", "podAffinity").get(_REQUIRED):
        yield "required affinity to other pods"
    if any(isinstance(one, Mapping) and one.get("namespaceSelector") for one in apart):
        yield "namespace selectors of anti-affinity"
    spread = list_at(spec, "spec", "topologySpreadConstraints")
    if any(isinstance(one, Mapping) and one.get("whenUnsatisfiable") != "ScheduleAnyway" for one in spread):
        yield "topology spread constraints"
    containers = (one for one in list_at(spec, "spec", "containers") if isinstance(one, Mapping))
    ports = [port for one in containers for port in one.get("ports") or () if isinstance(port, Mapping)]
    if any(port.get("hostPort") for port in ports):
        yield "host ports"
    if spec.get("resourceClaims"):
        yield "resource claims"


@dataclass(slots=True)
class NodePlaces:
    """The nodes with the pods that are bound to them. Threads: one."""

    nodes: dict[str, NodeRules] = field(default_factory=dict)
    _used: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _pods: dict[str, tuple[str, PodRules]] = field(default_factory=dict)  # by namespace/name
    _by_kind: dict[str, dict[str, str]] = field(default_factory=dict)  # what follows from the nodes alone

    def bind(self, key: str, pod: PodRules, node: str) -> None:
        self._used[node].update(pod.requests)
        self._pods[key] = node, pod

    def unbind(self, key: str) -> None:
        """Idempotent."""
        found = self._pods.pop(key, None)
        if found is not None:
            self._used[found[0]].subtract(found[1].requests)

    def remove(self, node: str) -> None:
        self.nodes.pop(node, None)
        self._by_kind.clear()

    def cordon(self, node: str) -> None:
        found = self.nodes.get(node)
        self._by_kind.clear()
        if found is not None:
            self.nodes[node] = replace(found, taints=[*found.taints, _CORDON])

    def count(self, node: str) -> int:
        """How many pods are bound there."""
        return self._used[node]["pods"] // 1000

    def why_not(self, pod: PodRules) -> dict[str, str]:
        """By node, why kube-scheduler's own rules keep the pod off it, in a few words; "" where they do not."""
        kind = repr((pod.node, pod.selector, pod.terms, pod.tolerations))
        if kind not in self._by_kind:
            self._by_kind[kind] = {name: _why_never(pod, node) for name, node in self.nodes.items()}
        found = dict(self._by_kind[kind])
        for term in pod.apart:
            key, domains = self._domains_taken(*term)
            for name in (name for name, node in self.nodes.items() if domains and node.labels.get(key) in domains):
                found[name] = found[name] or "anti-affinity to another pod"
        wanted = [(name, value) for name, value in pod.requests.items() if value]
        for name, node in self.nodes.items():
            if node.allocatable is not None and not found[name]:
                used = self._used[name]
                for resource, value in wanted:
                    if used[resource] + value > node.allocatable.get(resource, 0):
                        found[name] = "too many pods" if resource == "pods" else f"insufficient {resource}"
                        break
        return found

    def _domains_taken(self, key: str, selector: Raw, namespaces: tuple[str, ...]) -> tuple[str, set[str]]:
        """The topology key, and the domains in which a pod runs that is to be kept away from."""
        found = set[str]()
        for node, other in self._pods.values():
            labels = self.nodes[node].labels if node in self.nodes else {}
            if key in labels and other.namespace in namespaces and selects(selector, other.labels):
                found.add(labels[key])
        return key, found


def _why_never(pod: PodRules, node: NodeRules) -> str:
    """Why the pod may not run there, whatever runs there already; "" if it may."""
    if pod.node and pod.node != node.name:
        return "spec.nodeName is another node"
    taint = next((one for one in node.taints if not _is_tolerated(one, pod.tolerations)), None)
    if taint is not None:
        key = str(taint.get("key", ""))
        return "cordoned" if key == _UNSCHEDULABLE else f"untolerated taint {key}"
    if any(node.labels.get(key) != value for key, value in pod.selector.items()):
        return "node selector"
    if pod.terms is not None and not any(_matches(term, node) for term in pod.terms):
        return "node affinity"
    return ""


def _is_tolerated(taint: Raw, tolerations: Iterable[Raw]) -> bool:
    return taint.get("effect") not in _HARD or any(_tolerates(one, taint) for one in tolerations)


def _tolerates(toleration: Raw, taint: Raw) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    is_same = toleration.get("key") == taint.get("key")
    return is_same and (toleration.get("value") or "") == (taint.get("value") or "")


def _matches(term: object, node: NodeRules) -> bool:
    """Whether the node matches that term of a node selector; an empty term matches none."""
    if not isinstance(term, Mapping) or not (term.get("matchExpressions") or term.get("matchFields")):
        return False
    fields = {"metadata.name": node.name}
    by_label = (_meets(one, node.labels) for one in term.get("matchExpressions") or ())
    by_field = (_meets(one, fields) for one in term.get("matchFields") or ())
    return all(by_label) and all(by_field)


def selects(selector: Raw, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches; an empty one matches all."""
    given = selector.get("matchLabels") or {}
    if any(labels.get(key) != str(value) for key, value in given.items()):
        return False
    return all(_meets(one, labels) for one in selector.get("matchExpressions") or ())


def _meets(requirement: Any, values: Mapping[str, str]) -> bool:
    if not isinstance(requirement, Mapping):
        return False
    value = values.get(str(requirement.get("key", "")))
    operator, wanted = requirement.get("operator"), [str(one) for one in requirement.get("values") or ()]
    if operator in ("In", "NotIn"):
        return (value in wanted) is (operator == "In")
    if operator in ("Exists", "DoesNotExist"):
        return (value is not None) is (operator == "Exists")
    if operator in ("Gt", "Lt") and value is not None and len(wanted) == 1:
        try:
            return int(value) > int(wanted[0]) if operator == "Gt" else int(value) < int(wanted[0])
        except ValueError:
            return False
    return False
