"""Helm, kubeconform and Prometheus, built from their Go modules into the test cluster's cache, once a version."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.build import MODULE as CLUSTER_MODULE
from tests.cluster.build import build_program, kubernetes_version
from tests.cluster.toolchain import Progress

MODULE = Path(__file__).resolve().parent / "go"
PROMETHEUS_MODULE = MODULE.with_name("go-prometheus")


@dataclass(frozen=True, slots=True)
class Tool:
    """A program of a module that tests/helm/go asks for, or `folder`. `tags`: of the build."""

    name: str
    module: str
    package: str  # below the module
    versions: tuple[str, ...] = ()  # variables in which its version stands
    kubernetes: tuple[str, ...] = ()  # packages that hold the Kubernetes minor that charts are rendered for by default
    folder: Path = MODULE
    tags: str = ""
    minutes: str = "a minute or two"

    @property
    def flags(self) -> str:
        minor = kubernetes_version((CLUSTER_MODULE / "go.mod").read_text()).split(".")[1]
        words = ["-s", "-w", *(f"-X {self.module}/{name}={self.version}" for name in self.versions)]
        for package in self.kubernetes:
            words += [f"-X {self.module}/{package}.k8sVersion{part}" for part in ("Major=1", f"Minor={minor}")]
        return " ".join(words)

    @property
    def version(self) -> str:
        match = re.search(rf"^\s*{re.escape(self.module)} (v\S+)", (self.folder / "go.mod").read_text(), re.MULTILINE)
        if match is None:
            raise ValueError(f"go.mod does not require {self.module}")
        return match.group(1)

    def build(self, progress: Progress = print) -> Path:
        """The path of the program; builds it when it is not in the cache. Raises BuildError."""
        what = f"{self.name} {self.version}, which takes {self.minutes} on two cores"
        package = f"{self.module}/{self.package}"
        path = Path("helm" if self.folder == MODULE else self.name, self.name)  # the others differ in their flags
        go_mod = self.folder / "go.mod"
        return build_program(go_mod, path, what, progress, self.flags, package=package, tags=self.tags)


_VERSION = "internal/version.version"
HELM_3 = Tool("helm3", "helm.sh/helm/v3", "cmd/helm", (_VERSION,), ("pkg/chartutil", "pkg/lint/rules"))
HELM_4 = Tool("helm4", "helm.sh/helm/v4", "cmd/helm", (_VERSION,))
KUBECONFORM = Tool("kubeconform", "github.com/yannh/kubeconform", "cmd/kubeconform")
# Without the many ways to find what to scrape, which are most of it.
PROMTOOL, PROMETHEUS = (
    Tool(
        name,
        "github.com/prometheus/prometheus",
        f"cmd/{name}",
        folder=PROMETHEUS_MODULE,
        tags="remove_all_sd",
        minutes="two to four minutes",
    )
    for name in ("promtool", "prometheus")
)
TOOLS = (HELM_3, HELM_4, KUBECONFORM)
