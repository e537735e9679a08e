"""The chart, Helm as a process, and what is made from the chart: `python -m tests.helm` writes all of it.

That is values.schema.json and README.md of the chart, from its values.yaml, the manifests in docs/examples, for those
who do without Helm, and the alerts in docs/metrics.md.
"""

from __future__ import annotations

import copy
import functools
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster.cache import REPOSITORY
from tests.helm import alerts
from tests.helm.schema import schema_of, table_of

NAME: Final = "longhorn-scheduler-extender"
NAMESPACE: Final = "longhorn-system"
CHART: Final = REPOSITORY / "helm" / NAME
EXAMPLES: Final = REPOSITORY / "docs" / "examples"
API_VERSIONS: Final = ("monitoring.coreos.com/v1", "cert-manager.io/v1")
IMAGE: Final[dict[str, Any]] = {"image": {"registry": "REGISTRY", "tag": "TAG"}}
Values = dict[str, Any]


def merged(one: Values, other: Values) -> Values:
    """`one` with what `other` says, as Helm merges two files of values."""
    both = copy.deepcopy(one)
    for key, value in other.items():
        both[key] = merged(both[key], value) if isinstance(both.get(key), dict) and isinstance(value, dict) else value
    return both


def with_image(values: Values) -> Values:
    """With a registry and a tag, unless they are said."""
    return merged(IMAGE, values)


@dataclass(frozen=True, slots=True)
class Helm:
    """A Helm, and a folder for what it keeps: nothing of the user's is read."""

    program: Path
    home: Path

    def run(self, *words: str, values: Values | None = None) -> subprocess.CompletedProcess[str]:
        env = {
            name: str(self.home / name) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "HOME")
        }
        command = [str(self.program), *words, *(() if values is None else ("--values", "-"))]
        text = json.dumps(values) if values is not None else None
        return subprocess.run(command, env=env, input=text, capture_output=True, text=True, timeout=120, check=False)

    def template(
        self, values: Values, *flags: str, namespace: str = NAMESPACE, chart: Path = CHART
    ) -> subprocess.CompletedProcess[str]:
        """As on a cluster that has the Prometheus Operator and cert-manager."""
        words = ["template", NAME, str(chart), "--namespace", namespace, "--kube-version", "1.36.3"]
        words += [word for kind in API_VERSIONS for word in ("--api-versions", kind)]
        return self.run(*words, *flags, values=values)

    def rendered(self, values: Values, *flags: str, namespace: str = NAMESPACE) -> str:
        """What the chart makes of these values, rendered once. Raises RuntimeError with Helm's words."""
        return _rendered(self, json.dumps(with_image(values)), flags, namespace)

    def objects(self, values: Values, *kinds: str) -> list[dict[str, Any]]:
        """What is rendered, of these kinds or of all."""
        return [one for one in documents_of(self.rendered(values)) if not kinds or one["kind"] in kinds]


@functools.cache
def _rendered(helm: Helm, values: str, flags: tuple[str, ...], namespace: str) -> str:
    done = helm.template(json.loads(values), *flags, namespace=namespace)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return done.stdout


def documents_of(rendered: str) -> list[dict[str, Any]]:
    return [one for one in yaml.load_all(rendered, yaml.CSafeLoader) if one]


# -- docs/examples --------------------------------------------------------------------------------------------------

_OF_HELM = re.compile(r"^ +(?:helm\.sh/chart|app\.kubernetes\.io/(?:instance|version|managed-by)): .*\n", re.MULTILINE)
_SOURCE = re.compile(rf"^# Source: {NAME}/templates/(.*)\n", re.MULTILINE)
_FIRST = re.compile(r"^kind: (\S+)$", re.MULTILINE)
_NAME = re.compile(r"^  name: (\S+)$", re.MULTILINE)
# Policies come before the rights that they narrow.
_ORDER: Final = (
    "CustomResourceDefinition",
    "ServiceAccount",
    "PriorityClass",
    "FlowSchema",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Service",
    "ConfigMap",
    "Deployment",
    "PodDisruptionBudget",
    "NetworkPolicy",
)


@dataclass(frozen=True, slots=True)
class Example:
    """A file of docs/examples: which templates of the chart are in it, and with which values."""

    name: str
    templates: str  # the beginning of their paths, with | between them
    header: str
    values: Values | None = None

    def text(self, helm: Helm) -> str:
        # The placeholder in it is no address, which is meant.
        flags = ("--skip-schema-validation",) if self.values else ()
        found = [piece for piece in _pieces(helm.rendered(self.values or {}, *flags)) if self._is_ours(piece[0])]
        documents = [_OF_HELM.sub("", document) for _, document in sorted(found, key=lambda piece: _place(piece[1]))]
        return f"{self.header.strip()}\n" + "---\n".join(documents)

    def _is_ours(self, template: str) -> bool:
        return template.startswith(tuple(self.templates.split("|")))


def _pieces(rendered: str) -> Iterator[tuple[str, str]]:
    """Each object's template and text."""
    for piece in re.split(r"^---\n", rendered, flags=re.MULTILINE):
        if source := _SOURCE.match(piece):
            yield source[1], piece[source.end() :].rstrip("\n") + "\n"


def _place(document: str) -> tuple[int, str, str]:
    """Where an object stands in a file: a policy's binding right behind it."""
    kind, name = _FIRST.search(document), _NAME.search(document)
    assert kind is not None and name is not None, document
    place = _ORDER.index(kind[1])
    return (_ORDER.index("ValidatingAdmissionPolicy") if kind[1].startswith("ValidatingA") else place, name[1], kind[1])


EXAMPLE_FILES: Final = (
    Example(
        "install.yaml",
        "controller/|webhook-configurations|flow-schema",
        """
# The controller, by hand, as the Helm chart renders it (`make chart`). Read docs/install.md first, and set the image.
# Everything lives in Longhorn's namespace, taken here to be longhorn-system.
#
# First the policies, then the rights: do not apply the Roles below without them.
""",
    ),
    Example(
        "webhook.yaml",
        "webhook/",
        """
# The webhook, by hand, beside install.yaml, as the Helm chart renders it. Read docs/admission.md first, and set the
# image. It serves with certificates that the controllers make. The webhook configurations are written by their leader.
""",
    ),
    Example(
        "network-policies.yaml",
        "network-policies",
        """
# Who may reach which port, beside install.yaml and webhook.yaml, where the cluster's network enforces NetworkPolicies.
#
# Put the addresses of the control plane in the place of CONTROL_PLANE_CIDR: kube-scheduler and kube-apiserver run on
# the host's network, which no pod selector matches. The API server refuses this file as long as it is not filled in.
#   sed 's#CONTROL_PLANE_CIDR#10.0.0.0/28#' docs/examples/network-policies.yaml | kubectl apply -f -
# Several ranges are several entries. The kubelet's probes come from the pod's own node, which is always let in.
""",
        {"networkPolicy": {"enabled": True, "controlPlaneCIDRs": ["CONTROL_PLANE_CIDR"]}},
    ),
    Example(
        "wake-annotation.yaml",
        "wake-annotation",
        """
# For `scheduler-extender-wake-with-annotation: "true"` alone, beside install.yaml: the right to patch pods, and a
# policy that leaves of this right only the annotation of the wake-up. First the policy, then the right.
# docs/security.md
""",
        {"settings": {"wake-with-annotation": True}},
    ),
    Example(
        "allocation-record.yaml",
        "allocation-record",
        """
# The record of allocations, beside install.yaml: the CustomResourceDefinition, and the right to write objects of it.
# docs/disk-scheduler.md
""",
        {"allocationRecord": {"enabled": True}},
    ),
    Example(
        "second-scheduler.yaml",
        "second-scheduler",
        """
# A second kube-scheduler, beside install.yaml. Set its image to your cluster's version. docs/kube-scheduler.md
""",
        {"secondScheduler": {"enabled": True}},
    ),
)


# -- what is written ------------------------------------------------------------------------------------------------


def readme() -> str:
    """The chart's README: what stands in README.md.in, with the table of the values."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    text = (CHART / "README.md.in").read_text()
    text = text.replace("@version@", about["version"])
    text = text.replace("@kubeVersion@", about["kubeVersion"].removeprefix(">=").removesuffix(".0-0"))
    return text.replace("@values@\n", table_of((CHART / "values.yaml").read_text()))


def made(helm: Helm) -> dict[Path, str]:
    """What each file that is made from the chart should hold."""
    return {
        CHART / "values.schema.json": schema_of((CHART / "values.yaml").read_text()),
        CHART / "README.md": readme(),
        alerts.PAGE: alerts.page(),
        **{EXAMPLES / example.name: example.text(helm) for example in EXAMPLE_FILES},
    }


def write(helm: Helm) -> list[Path]:
    """Write what is not current. The schema first: Helm reads it."""
    schema = CHART / "values.schema.json"
    text = schema_of((CHART / "values.yaml").read_text())
    changed = [schema] if not schema.exists() or schema.read_text() != text else []
    schema.write_text(text)
    for path, content in made(helm).items():
        if not path.exists() or path.read_text() != content:
            path.write_text(content)
            changed.append(path)
    return changed
