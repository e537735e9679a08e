"""Reads and writes of the gate's objects: the account whose annotations tell the API server of the leader, the binding
that puts the policy into force, the policies themselves, and dry runs that show whether they are in force."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from controller.errors import ConflictError, ForbiddenError, NotFoundError
from controller.kube.api import KubeApi, Raw, find
from controller.kube.resources import LONGHORN_REPLICAS, POLICIES, POLICY_BINDINGS, SERVICE_ACCOUNTS, Resource, pointer
from controller.model.names import (
    FENCE,
    GATE,
    GUARD,
    MANAGER_PREFIX,
    PROOF_MANAGER,
    RENEWED_ANNOTATION,
    SINCE_ANNOTATION,
    TERM_ANNOTATION,
)
from controller.model.times import rfc3339
from controller.placement.gate_policy import (
    POLICY_DIGESTS,
    Enforcement,
    Spec,
    digest_of,
    expected_bindings,
    without_defaults,
)
from controller.placement.objects import NODE_LABEL

CALL_SECONDS: Final = 2.0
PROOF_ANNOTATION: Final = "scheduling.longhorn.io/proof"  # of dry runs alone, so never stored


@dataclass(frozen=True, slots=True)
class Stamps:
    """The account's annotations about the leader; "" for one that is missing."""

    term: str
    since: str
    renewed: str
    version: str  # of the account


class Proof(StrEnum):
    """The outcome of a dry run that should be refused."""

    REFUSED = "refused"
    ADMITTED = "admitted"
    UNCLEAR = "unclear"  # something else refused it
    NOTHING = "nothing"  # there is no Replica


class GateObjects:
    """The gate's objects at the API server. All methods raise ClusterError.

    Threads: any. Blocks: for CALL_SECONDS in each call of the API server. I/O: those calls.
    """

    def __init__(self, api: KubeApi, namespace: str, account: str) -> None:
        """`account`: the name of the ServiceAccount under which the leader runs."""
        self._api, self._namespace = api, namespace
        self._user = f"system:serviceaccount:{namespace}:{account}"

    def server_time(self) -> str:
        """The API server's time in RFC 3339; "" if it is not known."""
        now = self._api.server_utc()
        return rfc3339(now) if now is not None else ""

    # The account

    def stamps(self) -> Stamps:
        return _stamps(self._api.get(SERVICE_ACCOUNTS, self._namespace, GATE, timeout=CALL_SECONDS))

    def write(self, before: Stamps, term: str, since: str, renewed: str) -> None:
        """Replace all stamps. ConflictError if the account was written since `before` was read."""
        annotations = {TERM_ANNOTATION: term, SINCE_ANNOTATION: since, RENEWED_ANNOTATION: renewed}
        body = {"metadata": {"resourceVersion": before.version, "annotations": annotations}}
        self._api.patch(SERVICE_ACCOUNTS, self._namespace, GATE, body, timeout=CALL_SECONDS)

    def renew(self, term: str, renewed: str) -> Stamps:
        """Set the time of renewal, and return the stamps. ConflictError if the account names another term."""
        body = [
            {"op": "test", "path": pointer("metadata", "annotations", TERM_ANNOTATION), "value": term},
            {"op": "add", "path": pointer("metadata", "annotations", RENEWED_ANNOTATION), "value": renewed},
        ]
        raw = self._api.patch(SERVICE_ACCOUNTS, self._namespace, GATE, body, kind="json", timeout=CALL_SECONDS)
        return _stamps(raw)

    # The binding

    def binding(self) -> Raw | None:
        """The spec of the gate's binding; None if it does not exist."""
        raw = find(self._api, POLICY_BINDINGS, None, GATE, timeout=CALL_SECONDS)
        return raw and (raw.get("spec") or {})

    def is_binding(self, spec: Spec | None, wanted: Enforcement) -> bool:
        """Whether that spec is the wanted one; None: the binding does not exist."""
        if spec is None or wanted is Enforcement.NONE:
            return spec is None and wanted is Enforcement.NONE
        return without_defaults(spec) == expected_bindings(self._namespace, wanted)[GATE]

    def bind(self, wanted: Enforcement) -> None:
        """Create the gate's binding. ConflictError if it exists."""
        body = {
            "apiVersion": POLICY_BINDINGS.api_version,
            "kind": POLICY_BINDINGS.kind,
            "metadata": {"name": GATE},
            "spec": expected_bindings(self._namespace, wanted)[GATE],
        }
        self._api.create(POLICY_BINDINGS, None, body, timeout=CALL_SECONDS)

    def unbind(self) -> None:
        with contextlib.suppress(NotFoundError):
            self._api.delete(POLICY_BINDINGS, None, GATE, timeout=CALL_SECONDS)

    # What the manifest installs

    def problems(self) -> list[str]:
        """The problems of the policies, and of the bindings that the leader does not make."""
        digest = partial(digest_of, user=self._user)
        found = [self._problem(POLICIES, name, digest, expected) for name, expected in POLICY_DIGESTS.items()]
        bindings = expected_bindings(self._namespace)
        found += [self._problem(POLICY_BINDINGS, name, without_defaults, bindings[name]) for name in (FENCE, GUARD)]
        return [problem for problem in found if problem]

    def _problem(self, resource: Resource, name: str, form: Callable[[Spec], object], expected: object) -> str:
        """The object's problem, or "". `form`: what of its spec is compared with `expected`."""
        if (raw := find(self._api, resource, None, name, timeout=CALL_SECONDS)) is None:
            return f"{resource.kind} {name} does not exist"
        warnings = ((raw.get("status") or {}).get("typeChecking") or {}).get("expressionWarnings") or []
        if warnings:
            return f"{resource.kind} {name}: {warnings[0].get('fieldRef')}: {warnings[0].get('warning')}"
        if form(raw.get("spec") or {}) != expected:
            return f"{resource.kind} {name} is not as this version brings it"
        return ""

    # Proofs

    def prove_gate(self) -> Proof:
        """Whether the gate refuses others a first placement, as far as a dry run tells."""
        # The policy's clock is the managedFields entry of this very write, which exists only if something changes.
        change = {"labels": {NODE_LABEL: ""}, "annotations": {PROOF_ANNOTATION: self.server_time()}}
        return self._prove(GATE, PROOF_MANAGER, change, {"labelSelector": f"{NODE_LABEL}="}, {})

    def prove_fence(self, term: str) -> Proof:
        """Whether the fence refuses the leader's account a write under that term, which is not the present one."""
        return self._prove(FENCE, MANAGER_PREFIX + term, {"annotations": {PROOF_ANNOTATION: self.server_time()}}, {})

    def _prove(self, policy: str, manager: str, change: Raw, *queries: Mapping[str, str]) -> Proof:
        """The outcome of a dry run that `policy` should refuse, on the first Replica that one of the queries finds."""
        try:
            name = self._any_replica(queries)
            if not name:
                return Proof.NOTHING
            self._api.patch(
                LONGHORN_REPLICAS,
                self._namespace,
                name,
                {"metadata": change},
                field_manager=manager,
                dry_run=True,
                timeout=CALL_SECONDS,
            )
        except ForbiddenError as error:
            return Proof.REFUSED if f"'{policy}'" in str(error) else Proof.UNCLEAR
        except (ConflictError, NotFoundError):  # the Replica was deleted at this moment
            return Proof.NOTHING
        return Proof.ADMITTED

    def _any_replica(self, queries: Iterable[Mapping[str, str]]) -> str:
        """The name of the first Replica that one of the queries finds; "" for none."""
        for query in queries:
            page = self._api.list_page(LONGHORN_REPLICAS, self._namespace, timeout=CALL_SECONDS, limit=1, **query)
            if page.items:
                return str(page.items[0]["metadata"]["name"])
        return ""


def _stamps(raw: Raw) -> Stamps:
    meta = raw["metadata"]
    annotations = meta.get("annotations") or {}
    term, since, renewed = (
        str(annotations.get(name) or "") for name in (TERM_ANNOTATION, SINCE_ANNOTATION, RENEWED_ANNOTATION)
    )
    return Stamps(term, since, renewed, str(meta.get("resourceVersion", "")))
