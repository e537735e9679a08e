"""Callers of the webhook that trust only what a watch showed them a while ago."""

from __future__ import annotations

import hashlib
import json
import random
import ssl
import threading
import time
import uuid
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography import x509

from tests.cluster.client import ApiClient, Object
from tests.cluster.watch import Reflector
from tests.e2e import workloads
from tests.e2e.connection import Connection
from tests.e2e.scheduling import NAMESPACE
from tests.e2e.webhooks import CONFIGURATION, MUTATING, WEBHOOK_SERVICE

NAME = f"{WEBHOOK_SERVICE}.{NAMESPACE}.svc"
CALL_SECONDS = 10.0
THREADS = 8
VOLUMES_EVERY = 5  # one call of so many asks for growth, which the webhook asks the leader about


class LaggingBundle:
    """The `caBundle` of our configuration as a watch showed it. Threads: any."""

    def __init__(self, api: ApiClient) -> None:
        self._lock = threading.Lock()
        self.seen: list[tuple[float, bytes]] = []  # when, what
        self._contexts: dict[bytes, ssl.SSLContext] = {}
        self._watch = Reflector(
            api, MUTATING, self._on_event, field_selector=f"metadata.name={CONFIGURATION}", name="caBundle"
        )

    def _on_event(self, _kind: str, obj: Object) -> None:
        bundles = {entry["clientConfig"].get("caBundle", "") for entry in obj.get("webhooks") or []} - {""}
        if not bundles:
            return
        assert len(bundles) == 1, "entries of one configuration trust the same authorities"
        bundle = b64decode(bundles.pop())
        with self._lock:
            if not self.seen or self.seen[-1][1] != bundle:
                self.seen.append((time.monotonic(), bundle))

    @property
    def latest(self) -> bytes:
        with self._lock:
            return self.seen[-1][1] if self.seen else b""

    def forget_earlier(self) -> None:
        """What was seen last counts as having always been there."""
        with self._lock:
            del self.seen[:-1]

    def context(self, lag: float) -> ssl.SSLContext:
        """What is trusted by somebody who is so many seconds late."""
        then = time.monotonic() - lag
        with self._lock:
            bundle = next((bundle for at, bundle in reversed(self.seen) if at <= then), self.seen[0][1])
            if bundle not in self._contexts:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.load_verify_locations(cadata=bundle.decode())
                self._contexts[bundle] = context
            return self._contexts[bundle]

    def stop(self) -> None:
        self._watch.stop()


@dataclass
class CallersSaw:
    """What callers met. Guarded by the load's lock while it runs."""

    calls: int = 0
    checked_in_a_row: int = 0  # growth that the leader was asked about
    unchecked: int = 0  # growth that was let through because no leader was there
    failures: list[str] = field(default_factory=list)
    leaves: dict[str, str] = field(default_factory=dict)  # fingerprint -> the authority's key


class WebhookLoad:
    """So many calls a second, each on a connection of its own, each as late as chance has it, up to `lag` seconds."""

    def __init__(self, address: Callable[[], tuple[str, int]], bundle: LaggingBundle, rate: float, lag: float) -> None:
        self._address, self._bundle, self._rate, self._lag = address, bundle, rate, lag
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(THREADS)]
        self.seen = CallersSaw()
        self.leader_is_away = False  # growth may pass unchecked then
        self._begun = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def __enter__(self) -> WebhookLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(CALL_SECONDS + 5)

    def _run(self, number: int) -> None:
        chance = random.Random(number)
        period, turn = THREADS / self._rate, 0
        begun = time.monotonic() + number / self._rate
        while not self._stop.wait(max(0.0, begun + turn * period - time.monotonic())):
            turn += 1
            lag = chance.choice((0.0, chance.uniform(0.0, self._lag), self._lag))
            try:
                self._call(lag, asks_leader=(turn + number) % VOLUMES_EVERY == 0)
            except Exception as error:  # thread top: every failure counts
                with self._lock:
                    self.seen.failures.append(f"{time.monotonic():.2f} lag {lag:.1f} s: {error!r}")

    def _call(self, lag: float, *, asks_leader: bool) -> None:
        body = volume_review() if asks_leader else pod_review()
        was_away = self.leader_is_away  # a call that began then may end later
        leaves: list[bytes] = []
        connection = Connection(
            self._address(), NAME, self._bundle.context(lag), timeout=CALL_SECONDS, connected=leaves.append
        )
        try:
            path = "/validate-volumes" if asks_leader else "/mutate-pods"
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        assert answer.status == 200, f"{path}: {answer.status} {text[:200]!r}"
        document = json.loads(text)
        response = document["response"]
        is_unchecked = bool(response.get("warnings"))
        # The leader has to read a volume that it does not know, and makes few such reads at a time.
        is_crowded = is_unchecked and all("too many expansions" in text for text in response["warnings"])
        is_away = was_away or self.leader_is_away
        with self._lock:
            self.seen.calls += 1
            self.seen.leaves.setdefault(*issuer_of(leaves[-1]))
            self.seen.unchecked += is_unchecked and is_away
            if asks_leader:
                self.seen.checked_in_a_row = 0 if is_unchecked else self.seen.checked_in_a_row + 1
            if not response["allowed"] or response["uid"] != body["request"]["uid"]:
                self.seen.failures.append(str(document))
            elif is_unchecked and not (is_away or is_crowded):
                self.seen.failures.append(f"{time.monotonic():.2f} {response['warnings']}")


def issuer_of(der: bytes) -> tuple[str, str]:
    """A certificate's fingerprint, and the identifier of the key that signed it."""
    certificate = x509.load_der_x509_certificate(der)
    issuer = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    return hashlib.sha256(der).hexdigest(), (issuer or b"").hex()


def review(group: str, kind: str, operation: str, obj: Object, old: Object | None) -> Object:
    names = {"kind": {"group": group, "version": obj["apiVersion"].rpartition("/")[2], "kind": kind}}
    resource = {"group": group, "version": names["kind"]["version"], "resource": f"{kind.lower()}s"}
    request = {
        "uid": str(uuid.uuid4()),
        **names,
        "resource": resource,
        "requestKind": names["kind"],
        "requestResource": resource,
        "name": obj["metadata"]["name"],
        "namespace": obj["metadata"]["namespace"],
        "operation": operation,
        "userInfo": {"username": "somebody"},
        "object": obj,
        "oldObject": old,
        "dryRun": True,
        "options": None,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def pod_review() -> Object:
    made = workloads.pod("p", opted_in=False)
    return review("", "Pod", "CREATE", {**made, "metadata": {"name": "p", "namespace": "default"}}, None)


def volume_review() -> Object:
    """Growth of a volume that does not exist: the leader has to be asked, and finds nothing to check."""

    def volume(gib: int) -> Object:
        metadata = {"name": "no-such-volume", "namespace": NAMESPACE}
        kind = {"apiVersion": "longhorn.io/v1beta2", "kind": "Volume"}
        return {**kind, "metadata": metadata, "spec": {"size": str(gib * workloads.GIB)}}

    return review("longhorn.io", "Volume", "UPDATE", volume(2), volume(1))
