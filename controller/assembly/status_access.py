"""Who may read which document of the status port over the network, by the API server's reviews of token and account.

Whoever sends a bearer token that the API server knows (TokenReview) may read a path that his account may `get`
(SubjectAccessReview), as kubelet and kube-scheduler guard pages of theirs. What is explained is for everybody who may
`get` that object, so that a developer can ask about his own pod.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from controller.clock import Clock
from controller.errors import NotFoundError, UnavailableError
from controller.kube.api import KubeApi
from controller.kube.resources import ACCESS_REVIEWS, CLAIMS, LONGHORN_VOLUMES, PODS, TOKEN_REVIEWS, Resource
from controller.process.status_app import Sees, StatusRefusedError

REVIEW_SECONDS: Final = 3.0
MOST_REVIEWS: Final = 4  # under way at a time; others wait for REVIEW_SECONDS
MOST_NAMESPACES: Final = 32  # that are asked about for one document; what others have is summed up
SEES_SECONDS: Final = 5.0  # for all of them
_NAME: Final = "[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"
_EXPLAINED: Final = re.compile(f"/explain/(?:(pods|claims)/({_NAME})/({_NAME})|(volumes)/({_NAME}))", re.ASCII)
_KINDS: Final[Mapping[str, Resource]] = {"pods": PODS, "claims": CLAIMS, "volumes": LONGHORN_VOLUMES}


@dataclass(frozen=True, slots=True)
class ExplainedPath:
    """What `/explain/...` is about. `kind`: "pods", "claims" or "volumes", which have `namespace` ""."""

    kind: str
    namespace: str
    name: str


def explained(path: str) -> ExplainedPath:
    """What the path names; NotFoundError if nothing can have that path."""
    found = _EXPLAINED.fullmatch(path)
    if found is None:
        raise NotFoundError("not found: it is /explain/pods/NAMESPACE/NAME, or claims, or /explain/volumes/NAME")
    kind, namespace, name, volumes, volume = found.groups(default="")
    return ExplainedPath(kind or volumes, namespace, name or volume)


class StatusCallers:
    """Decides who may read a path. `namespace`: Longhorn's. Threads: any. Blocks: for the API server. I/O: its
    reviews."""

    def __init__(self, api: KubeApi, clock: Clock, namespace: str) -> None:
        self._api, self._clock, self._namespace = api, clock, namespace
        self._places = threading.BoundedSemaphore(MOST_REVIEWS)

    def admit(self, authorization: str, path: str) -> Sees:
        """What the caller sees of namespaces; as `controller.process.status_app.Admit`."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise StatusRefusedError("401 Unauthorized", "a bearer token is needed")
        found = self._review(TOKEN_REVIEWS, {"token": token.strip()}, REVIEW_SECONDS)
        if found.get("authenticated") is not True:
            raise StatusRefusedError("401 Unauthorized", "the API server does not know this token")
        who = found.get("user") or {}
        user = {"user": who.get("username"), **{key: who[key] for key in ("uid", "groups", "extra") if key in who}}
        if not self._may(user, self._wanted(path), REVIEW_SECONDS):
            raise StatusRefusedError("403 Forbidden", f"this account may not get {path}")
        return _Sight(partial(self._may_list_pods, user), self._clock)

    def _wanted(self, path: str) -> Mapping[str, Any]:
        if not path.startswith("/explain/"):
            return {"nonResourceAttributes": {"path": path, "verb": "get"}}
        one = explained(path)
        resource, namespace = _KINDS[one.kind], one.namespace or self._namespace
        return _attributes("get", resource, namespace, one.name)

    def _may_list_pods(self, user: Mapping[str, Any], namespace: str, seconds: float) -> bool:
        return self._may(user, _attributes("list", PODS, namespace), seconds)

    def _may(self, user: Mapping[str, Any], wanted: Mapping[str, Any], seconds: float) -> bool:
        return self._review(ACCESS_REVIEWS, {**user, **wanted}, seconds).get("allowed") is True

    def _review(self, resource: Resource, spec: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
        if not self._places.acquire(timeout=REVIEW_SECONDS):
            raise UnavailableError("too many callers at once")
        try:
            body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
            status: Mapping[str, Any] = self._api.create(resource, None, body, timeout=seconds).get("status") or {}
            return status
        finally:
            self._places.release()


def _attributes(verb: str, resource: Resource, namespace: str, name: str = "") -> Mapping[str, Any]:
    """`namespace` "": all of them."""
    wanted = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace, "name": name}
    return {"resourceAttributes": {key: value for key, value in wanted.items() if value}}


class _Sight:
    """Which namespaces' names one caller may see in one document. Threads: the one that serves it."""

    def __init__(self, may_list_pods: Any, clock: Clock) -> None:
        self._may_list_pods, self._clock = may_list_pods, clock
        self._known: dict[str, bool] = {}
        self._until: float | None = None

    def __call__(self, namespace: str) -> bool:
        if not self._known:
            self._until = self._clock.now() + SEES_SECONDS
            self._known[""] = self._ask("")  # all namespaces
        if self._known[""]:
            return True
        if namespace not in self._known and len(self._known) <= MOST_NAMESPACES:
            self._known[namespace] = self._ask(namespace)
        return self._known.get(namespace, False)

    def _ask(self, namespace: str) -> bool:
        assert self._until is not None
        left = self._until - self._clock.now()
        if left <= 0:
            raise UnavailableError("the reviews of a caller's rights take too long")
        return bool(self._may_list_pods(namespace, min(left, REVIEW_SECONDS)))
