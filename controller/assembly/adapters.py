"""Small adapters between the product's own interfaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from controller.assembly.certificates import CertificateWorker
from controller.election.gate import Gate
from controller.errors import NotFoundError
from controller.kube import resources
from controller.kube.api import KubeApi
from controller.kube.endpoint_slice import EndpointSlices, PodEndpoint
from controller.kube.recorder import Recorder, Target
from controller.kube.store import Store
from controller.model.configured import ConfigMapFacts
from controller.settings import ProcessSettings

PORT_NAME: Final = "http"  # of the Service's port that the EndpointSlice fills


class ServiceEndpoint:
    """The extender's Service, which points at this pod or at none; at none while nothing can be served."""

    def __init__(self, slices: EndpointSlices, settings: ProcessSettings, certificates: CertificateWorker) -> None:
        port = settings.endpoint_port or settings.extender_port
        self._endpoint = PodEndpoint(slices, settings, settings.service, {PORT_NAME: port})
        self._certificates = certificates

    def point_here(self) -> None:
        if not self._certificates.is_serving:
            raise NotFoundError("there is no server certificate yet")
        self._endpoint.point_here()

    def clear(self) -> None:
        self._endpoint.clear()


class PodPatches:
    """The wake-up's one write."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    def patch_pod(self, namespace: str, name: str, patch: Mapping[str, Any], subresource: str) -> None:
        self._api.patch(resources.PODS, namespace, name, patch, kind="strategic", subresource=subresource, timeout=5.0)


class SettingsEvents:
    """Events on the ConfigMap with the live settings, where those who change it look. I/O: none."""

    def __init__(self, recorder: Recorder, settings: ProcessSettings, config_maps: Store[ConfigMapFacts]) -> None:
        self._recorder, self._settings, self._config_maps = recorder, settings, config_maps

    def tell(self, reason: str, text: str, is_warning: bool) -> None:
        uid = next((found.uid for found in self._config_maps.values()), "")
        kind = resources.CONFIG_MAPS.kind
        target = Target(kind, self._settings.namespace, self._settings.config_map, uid)
        self._recorder.note(target, reason, text, is_warning=is_warning)


class OpenedGate:
    """The gate as a filter call sees it: an answer belongs to one opening, even when a term is taken up twice."""

    def __init__(self, gate: Gate, openings: Callable[[], int]) -> None:
        self._gate, self._openings = gate, openings

    @property
    def term(self) -> int:
        return self._openings()

    def check(self) -> None:
        self._gate.check()
