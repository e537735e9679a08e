"""Build kube-scheduler's own extender client into a small program, once a version of its sources.

The modules are the test cluster's, in the same versions and with the same flags, so that Go has compiled nearly all of
it already: about ten seconds, mostly for linking.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

from tests.cluster import build as cluster_build
from tests.cluster.cache import cache_root, locked
from tests.cluster.toolchain import BuildError, Progress, choose_go, go_environment, install_go

MODULE = Path(__file__).resolve().parent / "go"
BINARY = "extender-client"


def cache_key(go_version: str) -> str:
    """Sixteen hex digits that change whenever the program could."""
    digest = hashlib.sha256(f"{go_version} {platform.system()} {platform.machine()}".encode())
    for path in sorted([MODULE / "go.mod", MODULE / "go.sum", *MODULE.glob("*.go")]):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def build(progress: Progress = print, *, cache: Path | None = None) -> Path:
    """The path of the program; builds it when it is not in the cache. Raises BuildError.

    Safe to call from several processes at once: one builds, the others wait.
    """
    cache = cache or cache_root()
    cluster_module = cluster_build.MODULE
    go = choose_go(cluster_module / "go.mod")
    binary = cache / BINARY / cache_key(go.version) / BINARY
    if binary.exists():
        return binary
    if go.path is None:
        with _waiting(cache / "build.lock", progress):
            go = install_go(go, cluster_module, cache, progress)
    with _waiting(cache / f"{BINARY}.lock", progress):
        if binary.exists():
            return binary
        progress(f"building {BINARY} into {binary.parent}; ten seconds when the test cluster was built before")
        fresh = binary.parent.with_name(f"{binary.parent.name}.tmp-{os.getpid()}")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        try:
            command = [str(go.path), "build", "-trimpath", "-ldflags", "-s -w", "-o", str(fresh / BINARY), "."]
            environment = go_environment(go, cache, os.environ)
            done = subprocess.run(command, cwd=MODULE, env=environment, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise BuildError(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr}")
            fresh.replace(binary.parent)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return binary


def _waiting(lock: Path, progress: Progress) -> AbstractContextManager[None]:
    return locked(lock, lambda: progress(f"another process is building already (lock {lock}); waiting for it"))
