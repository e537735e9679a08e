"""Secrets with certificates, and the webhook configurations whose `caBundle` says whom to trust."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping

from certs.authority import Pair
from controller.kube.resources import OUR_CONFIGURATIONS, SECRETS, Resource
from tests.fakes.apiserver import FakeApiServer


def put_secret(api: FakeApiServer, namespace: str, name: str, data: Mapping[str, bytes]) -> None:
    encoded = {key: b64encode(value).decode() for key, value in data.items()}
    api.put(SECRETS, namespace, {"type": "kubernetes.io/tls", "metadata": {"name": name}, "data": encoded})


def put_leaf(api: FakeApiServer, namespace: str, name: str, leaf: Pair, trusted: bytes) -> None:
    put_secret(api, namespace, name, {"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": trusted})


def spoil_secret(api: FakeApiServer, namespace: str, name: str, data: Mapping[str, bytes]) -> None:
    """These values in place of its own; the others stay."""
    encoded = {key: b64encode(value).decode() for key, value in data.items()}
    api.patch(SECRETS, namespace, name, {"data": encoded})


def publish(api: FakeApiServer, bundle: bytes, *resources: Resource) -> None:
    """Our configurations, or these kinds of them, carry this bundle in both of their entries."""
    client_config = {"caBundle": b64encode(bundle).decode()}
    entries = [{"name": name, "clientConfig": dict(client_config)} for name in ("pods", "volumes")]
    for resource in resources or OUR_CONFIGURATIONS:
        api.put(resource, None, {"metadata": {"name": OUR_CONFIGURATIONS[resource]}, "webhooks": entries})


def published(api: FakeApiServer) -> bytes:
    """What the first of them carries."""
    resource, name = next(iter(OUR_CONFIGURATIONS.items()))
    return b64decode(api.get(resource, None, name)["webhooks"][0]["clientConfig"]["caBundle"])
