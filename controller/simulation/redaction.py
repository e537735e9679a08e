"""What of a cluster goes into a bundle: no secrets; and, on request, no names.

Names are hashed piece by piece, between dashes and dots, with a salt that is nowhere stored. So names that are made of
others still fit: an ephemeral volume's claim is called after its pod, a replica after its volume.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

REDACTED: Final = "REDACTED"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_KEPT_DOMAINS: Final = ("kubernetes.io", "k8s.io", "longhorn.io", "kubevirt.io")  # of annotations
_OF_CONTAINERS: Final = ("name", "image", "resources", "ports", "restartPolicy")
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_SECRET_KEY: Final = re.compile(
    r"token|password|passwd|passphrase|credential|secret|(?:api|private|access|account)[-_]?key", re.IGNORECASE
)
# A name of a Secret, or how long a token lives, is none.
_NO_SECRET: Final = re.compile(r"name$|ref$|namespace$|seconds$|automount|^credentialSecret$", re.IGNORECASE)
_IN_TEXT: Final = (
    (re.compile(r"(://)[^/@\s]+@"), rf"\1{REDACTED}@"),
    (re.compile(r"\bBearer\s+\S+", re.IGNORECASE), f"Bearer {REDACTED}"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+"), REDACTED),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL), REDACTED),
)


def without_secrets(raw: Any) -> Any:
    """The object without values that nobody but its owner should see. Secrets themselves are never read."""
    if isinstance(raw, Mapping):
        found = {key: without_secrets(value) for key, value in raw.items() if key not in ("managedFields", "env")}
        for key, value in found.items():
            if isinstance(value, str | list) and _SECRET_KEY.search(key) and not _NO_SECRET.search(key):
                found[key] = REDACTED
        if "exitCode" in found:
            found.pop("message", None)  # of a container that ended: the end of its log, or what it wrote for others
        if isinstance(found.get("annotations"), Mapping):
            found["annotations"] = {
                key: value for key, value in found["annotations"].items() if _is_kept_annotation(key)
            }
        for group in _CONTAINERS:
            if isinstance(found.get(group), list):
                found[group] = [_container(one) for one in found[group]]
        if isinstance(found.get("volumes"), list):
            found["volumes"] = [_volume(one) for one in found["volumes"]]
        return found
    if isinstance(raw, list):
        return [without_secrets(one) for one in raw]
    return secrets_out_of(raw) if isinstance(raw, str) else raw


def _is_kept_annotation(key: str) -> bool:
    domain = key.partition("/")[0]
    is_known = any(domain == one or domain.endswith(f".{one}") for one in _KEPT_DOMAINS)
    return key != _LAST_APPLIED and (is_known or domain == "kubevirt-scheduler")


def _container(raw: Any) -> Any:
    return {key: raw[key] for key in _OF_CONTAINERS if key in raw} if isinstance(raw, Mapping) else raw


def _volume(raw: Any) -> Any:
    """A pod's volume: its claim or its template, nothing of another kind."""
    kept = ("name", "persistentVolumeClaim", "ephemeral")
    return {key: raw[key] for key in kept if key in raw} if isinstance(raw, Mapping) else raw


def secrets_out_of(text: str) -> str:
    for pattern, instead in _IN_TEXT:
        text = pattern.sub(instead, text)
    return text


# Names

_TOKEN: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PIECE: Final = re.compile(r"[^-._]+")
_PROVISIONED: Final = re.compile(r"pvc-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b.*")
_NUMBER: Final = re.compile(r"\d+|r|pvc|new")
# Words of the APIs themselves, which mean something wherever they stand.
_RESERVED: Final = frozenset(
    [
        "true",
        "false",
        "none",
        "default",
        "disabled",
        "enabled",
        "ignored",
        "best-effort",
        "strict-local",
        "least-effort",
        "v1",
        "v2",
        "aio",
        "engine",
        "replica",
        "attached",
        "detached",
        "attaching",
        "detaching",
        "creating",
        "deleting",
        "healthy",
        "degraded",
        "faulted",
        "unknown",
        "running",
        "pending",
        "error",
        "filesystem",
        "block",
        "blockdev",
        "ext4",
        "xfs",
        "linux",
        "amd64",
        "arm64",
        "full-copy",
        "linked-clone",
        "replicated",
        "sharded",
        "data",
        "spec",
        "status",
        "name",
        "kind",
        "items",
        "pods",
        "nodes",
        "volumes",
        "longhorn",
        "kubernetes",
        "scheduler",
        "leader",
        "plans",
    ]
)
_MAPS: Final = frozenset(
    {"scheduledReplica", "scheduledBackingImage", "nodeDeploymentMap", "reasons", "replicaModeMap"}
)
# Keys below which an object names others: by their name, or by an object or objects that have it.
_REFERENCES: Final = frozenset(
    {"namespace", "generateName", "ownerReferences", "serviceAccountName", "serviceAccount", "subdomain", "hostname"}
    | {"claimName", "claimRef", "volumeName", "storageClassName", "dataSource", "dataSourceRef", "involvedObject"}
    | {"pvcName", "pvName", "podName", "workloadName", "lastPodRefName", "containers", "initContainers", "waiting"}
    | {"containerStatuses", "initContainerStatuses", "imagePullSecrets", "volumes"}
)
_LABELS_THAT_STAY: Final = (
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/component",
    "app.kubernetes.io/version",
    "longhorn.io/",
    "kubernetes.io/os",
    "kubernetes.io/arch",
)
_FACT: Final = re.compile(r'\b(?:pod|claim|volume|replica|namespace)"?(?:=|: )"?([\w./-]+)')
_IMAGES: Final = frozenset({"image", "imageID", "images"})
_OWN: Final = ("longhorn", "kube-", "driver.longhorn.io", "instance-manager", "share-manager", "csi-", "engine-image-")


class Names:
    """Hashes names that were told it, wherever they stand. Threads: one."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._known: dict[str, str] = {}

    def learn(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Names, namespaces and values of labels of these objects, and of those that they refer to, but for those that
        mean something by themselves: Longhorn's own and Kubernetes'."""
        for raw in objects:
            meta = raw.get("metadata")
            if not isinstance(meta, Mapping):
                continue
            if raw.get("kind") != "Setting":
                self._add(meta.get("name"))
            for key, value in (meta.get("labels") or {}).items():
                if not key.startswith(_LABELS_THAT_STAY):
                    self._add(value)
            self.learn_references(raw)

    def learn_references(self, raw: Any) -> None:
        """The names of others in an object or an answer: they may be gone, or of a kind that is not read."""
        if isinstance(raw, list):
            for one in raw:
                self.learn_references(one)
        elif isinstance(raw, Mapping):
            for key, value in raw.items():
                if key in _REFERENCES:
                    for one in value if isinstance(value, list) else (value,):
                        self._add(one.get("name") if isinstance(one, Mapping) else one)
                elif key == "about" and isinstance(value, str):
                    self._add_keys(value.rpartition(" ")[2])
                if isinstance(value, Mapping | list):
                    self.learn_references(value)
            if raw.get("ephemeral") is not None:
                self._add(raw.get("name"))

    def learn_log(self, text: str) -> None:
        """The names in the facts of a log's lines."""
        for match in _FACT.finditer(text):
            self._add_keys(match[1])

    def _add_keys(self, text: str) -> None:
        for one in text.split("/"):
            self._add(one)

    def _add(self, name: object) -> None:
        name = name.strip("-._") if isinstance(name, str) else ""
        if not name or name in _RESERVED or name.startswith(_OWN):
            return
        if not _PROVISIONED.fullmatch(name) and not name.isdigit():
            self._known.setdefault(name, _PIECE.sub(self._piece, name))

    def _piece(self, match: re.Match[str]) -> str:
        piece = match[0]
        if _NUMBER.fullmatch(piece):
            return piece
        return "x" + hashlib.sha256(self._salt + piece.encode()).hexdigest()[:7]

    def text(self, text: str) -> str:
        return _TOKEN.sub(self._hashed_token, text)

    def _hashed_token(self, match: re.Match[str]) -> str:
        """The token hashed, if it or its parts between dots are known, as in the names of services and Events."""
        token = match[0]
        if token in self._known or "." not in token:
            return self._known.get(token, token)
        return ".".join(self._known.get(part, part) for part in token.split("."))

    def hashed(self, raw: Any, key: str = "") -> Any:
        """The object with every known name hashed, also where it is a key of a map of names."""
        if isinstance(raw, Mapping):
            is_map = key in _MAPS
            return {
                self.text(one) if is_map else one: self.hashed(value, one)
                for one, value in raw.items()
                if one not in _IMAGES or "longhorn" in str(value)
            }
        if isinstance(raw, list):
            return [self.hashed(one, key) for one in raw]
        return self.text(raw) if isinstance(raw, str) else raw
