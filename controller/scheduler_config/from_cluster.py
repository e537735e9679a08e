"""What `render-scheduler-config` reads from the cluster: kube-scheduler's certificate, and the Service's address.

Both are what the leader keeps there (docs/certificates.md): a person need not copy them.
"""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final

from controller.errors import ClusterError, ConfigError, NotFoundError
from controller.kube.resources import SECRETS, SERVICES, Resource
from controller.scheduler_config.options import CA, CERTIFICATE, KEY, SERVICE

LOOK_SECONDS: Final = 1.0
Get = Callable[[Resource, str, str], dict[str, Any]]
"""One object of a namespace. Raises ClusterError, ConfigError."""


def service_address(get: Get, namespace: str) -> str:
    """The Service's ClusterIP. ConfigError names `--service-address`."""
    try:
        found = get(SERVICES, namespace, SERVICE)
    except ClusterError as error:
        raise _failed("--service-address", error) from error
    address = str((found.get("spec") or {}).get("clusterIP") or "")
    if address in ("", "None"):
        raise ConfigError(f"--service-address: is required: the Service {namespace}/{SERVICE} has no ClusterIP")
    return address


def client_certificate(
    get: Get, namespace: str, name: str, wait_seconds: float, tell: Callable[[str], None]
) -> Mapping[str, bytes]:
    """The three files of that Secret, which the leader makes soon after it begins; `tell` reports the wait. ConfigError
    when it is not there, or not whole, after `wait_seconds`."""
    deadline = time.monotonic() + wait_seconds
    is_told = False
    while True:
        lacks = f"there is no Secret {namespace}/{name}"
        try:
            data = get(SECRETS, namespace, name).get("data") or {}
            missing = [key for key in (CA, CERTIFICATE, KEY) if not data.get(key)]
            if not missing:
                return {key: b64decode(data[key]) for key in (CA, CERTIFICATE, KEY)}
            lacks = f"the Secret {namespace}/{name} has no {missing[0]}"
        except NotFoundError:
            pass
        except ClusterError as error:
            raise _failed("--client-secret", error) from error
        if time.monotonic() >= deadline:
            raise ConfigError(
                f"--client-secret: {lacks} after {wait_seconds:g} s. A controller with --tls-mode self makes it: check "
                "that one is running. Or give --ca-file, --cert-file and --key-file, or --certificate-dir"
            )
        if not is_told:
            tell(f"{lacks} yet; waiting up to {wait_seconds:g} s for the leader to make it")
            is_told = True
        time.sleep(LOOK_SECONDS)


def _failed(option: str, error: ClusterError) -> ConfigError:
    return ConfigError(f"{option}: is not given, and cannot be read from the cluster: {error}")
