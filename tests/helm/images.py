"""The images that the chart needs with given values: `make images`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.helm.chart import CHART, NAME, Helm, documents_of

_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
# Where no version of the cluster is said: any two that the chart takes.
_ANY: Final = ("1.34.1", "1.36.3")


def containers_of(rendered: str) -> Iterator[dict[str, Any]]:
    """All containers of all objects, hooks and tests among them, whatever kind they are of."""
    for document in documents_of(rendered):
        yield from _containers_in(document)


def _containers_in(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        for key, below in value.items():
            if key in _CONTAINERS and isinstance(below, list):
                yield from below
            else:
                yield from _containers_in(below)
    elif isinstance(value, list):
        for below in value:
            yield from _containers_in(below)


def images_of(rendered: str) -> list[str]:
    return sorted({container["image"] for container in containers_of(rendered)})


def images(helm: Helm, values: Sequence[Path], kube_version: str | None) -> list[str]:
    """Those of the chart with these files of values. Raises RuntimeError with Helm's words, or where the list depends
    on the cluster's version and none is said."""
    lists = [images_of(_rendered(helm, values, one)) for one in ([kube_version] if kube_version else _ANY)]
    if lists[0] != lists[-1]:
        raise RuntimeError("the second scheduler has the cluster's own version; say it, as in KUBE_VERSION=1.34.1")
    return lists[0]


def _rendered(helm: Helm, values: Sequence[Path], kube_version: str) -> str:
    files = [word for path in values for word in ("--values", str(path))]
    done = helm.run("template", NAME, str(CHART), "--kube-version", kube_version, *files)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return done.stdout
