"""Whether this Longhorn is one that the extender can work beside, and what its settings and CSI driver ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller.installation.site import CheckResult, Site, failure, ok, warning
from controller.kube.api import find, listed
from controller.kube.resources import CRDS, CSI_CAPACITIES, CSI_DRIVERS, LONGHORN_NODES, LONGHORN_SETTINGS
from controller.model.longhorn_settings import longhorn_settings
from controller.model.names import LONGHORN_DRIVER
from controller.model.versions import OWN_SCHEDULER_CRDS, VERSION_SETTING, support_of

SEE: Final = "docs/compatibility.md, Longhorn"
TRACKING: Final = "csi-storage-capacity-tracking"


def try_longhorn(site: Site) -> Iterator[CheckResult]:
    """Whether Longhorn is there, of a release whose rules are known, with settings that can be read."""
    values = {
        str(raw["metadata"]["name"]): str(raw.get("value", ""))
        for raw in listed(site.api, LONGHORN_SETTINGS, site.namespace)
    }
    if VERSION_SETTING not in values:
        text = f"there is no Longhorn in the namespace {site.namespace}: it has no Setting {VERSION_SETTING}"
        yield failure("longhorn", text, "--namespace names Longhorn's namespace, where the extender belongs as well")
        return
    crds = [name for name in OWN_SCHEDULER_CRDS if find(site.api, CRDS, None, name) is not None]
    support = support_of(values[VERSION_SETTING], crds=crds, settings=values)
    if not support.is_supported:
        yield failure("longhorn", support.problem, SEE)
        return
    found, problems = longhorn_settings(values)
    for one in problems:
        hint = f"kubectl -n {site.namespace} edit settings.longhorn.io {one.name}"
        yield warning("longhorn", f"setting {one.name}: {one.text}; its last good value or default counts", hint)
    if not site.api.list_page(LONGHORN_NODES, site.namespace, limit=1).items:
        text = "it has no Nodes yet, so no volume finds a disk"
        yield warning("longhorn", text, f"kubectl -n {site.namespace} get pods -l app=longhorn-manager")
    elif not problems:
        space = found.space
        text = f"over-provisioning {space.over_provisioning_pct} %, minimal available {space.minimal_available_pct} %"
        yield ok("longhorn", f"{values[VERSION_SETTING]} is supported; {text}")


def try_csi_driver(site: Site) -> Iterator[CheckResult]:
    """Whether kube-scheduler can find nodes by what the CSI driver says of itself."""
    driver = find(site.api, CSI_DRIVERS, None, LONGHORN_DRIVER)
    if driver is None:
        text = f"there is no CSIDriver {LONGHORN_DRIVER}: Longhorn makes no volumes"
        yield failure("csi driver", text, f"kubectl -n {site.namespace} get pods -l app=longhorn-driver-deployer")
        return
    if not (driver.get("spec") or {}).get("storageCapacity"):
        yield ok("csi driver", f"{LONGHORN_DRIVER} does not track storage capacity: the extender alone says where")
        return
    if not site.api.list_page(CSI_CAPACITIES, site.namespace, limit=1).items:
        text = (
            f"{LONGHORN_DRIVER} tracks storage capacity, and there is no CSIStorageCapacity: no node takes a new volume"
        )
        yield failure("csi driver", text, f"set Longhorn's {TRACKING} to false, or see the csi-provisioner's log")
        return
    text = f"{LONGHORN_DRIVER} tracks storage capacity: kube-scheduler drops nodes by these older figures first"
    yield ok("csi driver", text)
