"""An installation in memory that is in order, from which a test takes something away."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import yaml

from certs.cli import Tools, command
from certs.secret import data_of
from controller.admission.configurations import GROWTH_CHECK
from controller.errors import ClusterError, ForbiddenError
from controller.installation.check import check_installation
from controller.installation.rights import NeededRight
from controller.installation.site import CheckResult, CheckTarget
from controller.kube.api import Raw
from controller.kube.resources import (
    ACCESS_REVIEWS,
    CONFIG_MAPS,
    CSI_DRIVERS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    LEASES,
    LONGHORN_NODES,
    LONGHORN_REPLICAS,
    LONGHORN_SETTINGS,
    NAMESPACES,
    OUR_CONFIGURATIONS,
    PODS,
    POLICIES,
    POLICY_BINDINGS,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)
from controller.model.names import (
    EXTENDER_RESOURCE,
    GATE,
    GROWTH_CHECK_LABEL,
    HELD_ANNOTATION,
    LEADER_ANSWERS,
    LEADER_IS_SILENT,
    LONGHORN_DRIVER,
    RENEWED_ANNOTATION,
)
from controller.process.command_line import run_command
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import VirtualClock
from tests.fakes.secrets import publish

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

SPACE, SYSTEM = "longhorn-system", "kube-system"
NAME, WEBHOOK = "longhorn-scheduler-extender", "longhorn-scheduler-webhook"
LEASE = "longhorn-manager-disk-scheduler-lock"
LEADER = f"{NAME}-1"
ON = {"scheduler-extender-enabled": "true"}
ASKS = {"extenders": [{"urlPrefix": "https://x", "managedResources": [{"name": EXTENDER_RESOURCE}]}]}


class SilentHandler(WSGIRequestHandler):
    def log_message(self, *_: object) -> None: ...


class Extender:
    """Answers as it is told, over plain HTTP. Threads: its own."""

    def __init__(self) -> None:
        self.status, self.answer = 200, {"NodeNames": ["longhorn-scheduler-extender-check"], "Error": ""}
        self.asked: list[Any] = []
        self._server = make_server("127.0.0.1", 0, self._respond, handler_class=SilentHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def _respond(self, environ: dict[str, Any], start_response: StartResponse) -> list[bytes]:
        self.asked.append(json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))))
        start_response(f"{self.status} as it is told", [])
        return [json.dumps(self.answer).encode()]

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Admitting(FakeApiServer):
    """Its admission opts pods in, reviews growth and keeps the gate; its authorization knows who lacks what."""

    def __init__(self) -> None:
        super().__init__()
        self.opts_in, self.denial = True, LEADER_ANSWERS
        self.lacking: set[tuple[str, str]] = set()  # account, right
        self.barred: dict[tuple[str, str], ClusterError] = {}  # verb, plural
        self.admit = self._keep_gate
        self.fail = self._bar

    def forbid(self, verb: str, resource: Resource) -> None:
        """The caller has no right to it."""
        text = f'{resource.plural} is forbidden: User "u" cannot {verb} resource "{resource.plural}" in API group '
        self.barred[verb, resource.plural] = ForbiddenError(f'403: {text}"{resource.group}" at the cluster scope')

    def _bar(self, verb: str, resource: Resource) -> None:
        if (error := self.barred.get((verb, resource.plural))) is not None:
            raise error

    def create(self, resource: Resource, namespace: str | None, body: Raw, **more: object) -> Raw:
        if resource == ACCESS_REVIEWS:
            self._enter("create", resource)
            return {"status": {"allowed": self._may(body["spec"])}}
        if resource != PODS or not more.get("dry_run"):
            return super().create(resource, namespace, body, **more)
        made = super().create(resource, namespace, body, **more)
        if GROWTH_CHECK_LABEL in made["metadata"].get("labels", {}):
            if self.denial:
                raise ForbiddenError(f"403: admission webhook denied the request: {self.denial}")
        elif self.opts_in:
            made["spec"]["containers"][0]["resources"] = {"requests": {EXTENDER_RESOURCE: "1"}}
        return made

    def _may(self, spec: Mapping[str, Any]) -> bool:
        account = spec["user"].rpartition(":")[2]
        asked = spec["resourceAttributes"]
        resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        right = NeededRight(account, asked["verb"], asked["group"], resource, asked["name"], asked["namespace"])
        return (account, str(right)) not in self.lacking

    def _keep_gate(self, resource: Resource, old: Raw, new: Raw, _manager: str) -> None:
        is_kept = (POLICY_BINDINGS.path(), "", GATE) in self.objects
        places = resource == LONGHORN_REPLICAS and new["spec"].get("nodeID") and not old["spec"].get("nodeID")
        if places and is_kept:
            raise ForbiddenError(f"403: ValidatingAdmissionPolicy '{GATE}' with binding '{GATE}' denied request")


def pod(name: str, app: str, node: str, *, args: Iterable[str] = (), image: str = "it:1", ready: bool = True) -> Raw:
    return {
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": app}},
        "spec": {"nodeName": node, "containers": [{"args": list(args), "image": image}]},
        "status": {"podIP": f"10.0.0.{node[-1]}", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


class StagedSite:
    """Everything in order. `overview`: the leader's document, or what reading it raises."""

    def __init__(self, extender: Extender) -> None:
        self.server, self.clock, self.extender = Admitting(), VirtualClock(), extender
        self.server.date = self.clock.now_utc
        self.overview: dict[str, Any] | Exception = {
            "wiring": {"default-scheduler": "wired"},
            "gate": "enforced",
            "problems": [],
        }
        self._put_longhorn()
        self._put_programs()
        self._put_gate()
        self._put_schedulers()

    def _put_longhorn(self) -> None:
        put = self.server.put
        put(NAMESPACES, None, {"metadata": {"name": SPACE}})
        self.set_longhorn("current-longhorn-version", "v1.12.1")
        put(LONGHORN_NODES, SPACE, {"metadata": {"name": "n1"}})
        put(CSI_DRIVERS, None, {"metadata": {"name": LONGHORN_DRIVER}, "spec": {"storageCapacity": False}})
        self.replica(held=True)

    def _put_programs(self) -> None:
        self.start("--tls-mode=insecure-plain-http")
        for number in (1, 2):
            self.put_pod(pod(f"{WEBHOOK}-{number}", WEBHOOK, f"n{number}"))
        for name in (NAME, WEBHOOK):
            self.server.put(DEPLOYMENTS, SPACE, {"metadata": {"name": name}, "spec": {"replicas": 2}})
        self.lead()
        for service in (NAME, "longhorn-replica-scheduler"):
            self.point(service, "10.0.0.1")
        self.set(**ON)
        self.make_chain("webhook")
        bundle = (data_of(self.server.get(SECRETS, SPACE, f"{WEBHOOK}-tls")) or {})["ca.crt"]
        publish(self.server, bundle)
        for kind, name in OUR_CONFIGURATIONS.items():
            found = self.server.get(kind, None, name)
            for entry, called in zip(found["webhooks"], ("pods.scheduling.longhorn.io", GROWTH_CHECK), strict=True):
                entry["name"] = called
            self.server.put(kind, None, found)

    def _put_gate(self) -> None:
        self.server.put(POLICIES, None, {"metadata": {"name": GATE}})
        self.bind("Deny")
        self.renew(self.clock.stamp())

    def _put_schedulers(self) -> None:
        for number in (1, 2):
            body = pod(f"kube-scheduler-{number}", "", f"n{number}", args=["--config=/etc/x"])
            body["metadata"]["labels"] = {"component": "kube-scheduler"}
            self.server.put(PODS, SYSTEM, body)
        self.lease("kube-scheduler", SYSTEM)
        self.configure("default-scheduler")

    # What tests change

    def start(self, *args: str) -> None:
        for number in (1, 2):
            self.put_pod(pod(f"{NAME}-{number}", NAME, f"n{number}", args=["run", *args]))

    def make_chain(self, chain: str) -> None:
        words, tools = (
            ["renew", "--chain", chain, "--namespace", SPACE],
            Tools(lambda *_: self.server, self.clock, lambda _: None),
        )
        assert run_command(command, words, obj=tools) == 0

    def put_pod(self, body: Raw) -> None:
        self.server.put(PODS, SPACE, body)

    def lead(self, holder: str = f"{LEADER}_1f") -> None:
        self.lease(LEASE, SPACE, holder)

    def lease(self, name: str, namespace: str, holder: str = "it") -> None:
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": self.clock.stamp()}
        self.server.put(LEASES, namespace, {"metadata": {"name": name}, "spec": spec})

    def point(self, service: str, *addresses: str, slice_name: str = "") -> None:
        labels = {"kubernetes.io/service-name": service}
        body = {"metadata": {"name": slice_name or service, "labels": labels}, "endpoints": [{"addresses": addresses}]}
        self.server.put(ENDPOINT_SLICES, SPACE, body)

    def set(self, **data: str) -> None:
        self.server.put(CONFIG_MAPS, SPACE, {"metadata": {"name": NAME}, "data": data})

    def set_longhorn(self, name: str, value: str) -> None:
        self.server.put(LONGHORN_SETTINGS, SPACE, {"metadata": {"name": name}, "value": value})

    def replica(self, *, held: bool) -> None:
        marks = {HELD_ANNOTATION: "t"} if held else {}
        body = {"metadata": {"name": "r", "labels": {"longhornnode": ""}, "annotations": marks}, "spec": {"nodeID": ""}}
        self.server.put(LONGHORN_REPLICAS, SPACE, body)

    def bind(self, action: str) -> None:
        body = {"metadata": {"name": GATE}, "spec": {"validationActions": [action]}}
        self.server.put(POLICY_BINDINGS, None, body)

    def renew(self, at: str) -> None:
        body = {"metadata": {"name": GATE, "annotations": {RENEWED_ANNOTATION: at} if at else {}}}
        self.server.put(SERVICE_ACCOUNTS, SPACE, body)

    def configure(self, *profiles: str, **more: Any) -> None:
        """kube-scheduler's configuration in a ConfigMap; it asks the extender unless `more` says otherwise."""
        named = [{"schedulerName": name} for name in profiles]
        document = {"kind": "KubeSchedulerConfiguration", "profiles": named, **ASKS, **more}
        data = {"config.yaml": yaml.safe_dump(document)}
        self.server.put(CONFIG_MAPS, SYSTEM, {"metadata": {"name": "scheduler"}, "data": data})

    def delete(self, resource: Resource, name: str, namespace: str | None = None) -> None:
        self.server.delete(resource, namespace, name)

    def silence(self) -> None:
        self.server.denial = f"{LEADER_IS_SILENT}; its log says why"

    # What they see

    def results(
        self, *, seconds: float = 0.0, pause: Callable[[float], None] | None = None, **more: Any
    ) -> list[CheckResult]:
        """`more`: of the target."""
        target = CheckTarget(SPACE, **{"address": self.extender.address, **more})
        pause = pause or self.clock.advance
        found = check_installation(self.server, self.clock, target, self._document, wait_seconds=seconds, pause=pause)
        return list(found)

    def _document(self, path: str) -> Mapping[str, Any]:
        assert path == "/overview"
        if isinstance(self.overview, Exception):
            raise self.overview
        return self.overview
