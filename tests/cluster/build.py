"""Build the control plane's one binary, once a version of its sources, into the cache.

`python -m tests.cluster build` runs it alone. What is made is kept under a hash of everything that goes into it, so a
changed source never meets an old binary, and two clones of the same sources share one.
"""

from __future__ import annotations

import hashlib
import os
import platform
import queue
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.cache import cache_root, locked
from tests.cluster.toolchain import BuildError, Go, Progress, choose_go, go_environment, install_go

MODULE = Path(__file__).resolve().parent / "go"
BINARY = "cluster-binary"
ASSETS_VARIABLE, RELEASE_VARIABLE = "KUBEBUILDER_ASSETS", "CLUSTER_RELEASE"
PARTS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl")
ASSETS_NEEDED = ("etcd", "kube-apiserver", "kubectl")
PROGRESS_EVERY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Binaries:
    """How each part of the control plane is started: the first words of its command line."""

    commands: dict[str, tuple[str, ...]]

    def command(self, part: str) -> list[str]:
        return list(self.commands[part])


def wanted_release(named: str = "") -> str:
    """The release that was named, else that in `$CLUSTER_RELEASE`, else empty, which means the newest."""
    return named or os.environ.get(RELEASE_VARIABLE, "")


def binaries(progress: Progress = print, *, release: str = "") -> Binaries:
    """The programs to use: those in `$KUBEBUILDER_ASSETS` when set, and our own build for the rest.

    `release` is a minor version of Kubernetes that `releases` lists, as "1.34"; empty: the newest. Raises BuildError
    when there is no such release, when the folder lacks a program that it must have or is set beside a release, of
    which it knows nothing, or when building fails.
    """
    commands: dict[str, tuple[str, ...]] = {}
    if folder := os.environ.get(ASSETS_VARIABLE):
        if release:
            raise BuildError(f"{ASSETS_VARIABLE} and the release {release} exclude each other; unset one of them")
        for part in PARTS:
            path = Path(folder) / part
            if path.is_file() and os.access(path, os.X_OK):
                commands[part] = (str(path),)
            elif part in ASSETS_NEEDED:
                raise BuildError(f"{ASSETS_VARIABLE}={folder}: there is no program {part} in it")
    if len(commands) < len(PARTS):
        own = str(build(progress, release=release))
        for part in PARTS:
            commands.setdefault(part, (own, part))
    return Binaries(commands)


def releases(module: Path = MODULE) -> dict[str, str]:
    """The minor versions of Kubernetes that can be built, the newest first, each with the name of its go.mod file.

    The same Go sources are linked against all of them: `go.mod` asks for the newest, `go-1.34.mod` for 1.34, and so on.
    """
    found: dict[str, str] = {}
    for path in [module / "go.mod", *sorted(module.glob("go-*.mod"), reverse=True)]:
        version = kubernetes_version(path.read_text())
        found.setdefault(".".join(version.removeprefix("v").split(".")[:2]), path.name)
    return found


def go_mod_of(module: Path, release: str) -> Path:
    """The go.mod file of a release; of the newest when it is empty. Raises BuildError."""
    if not release:
        return module / "go.mod"
    known = releases(module)
    if release not in known:
        raise BuildError(f"release: Kubernetes {release!r} cannot be built; known are {', '.join(known)}")
    return module / known[release]


def kubernetes_version(go_mod: str) -> str:
    """The version of k8s.io/kubernetes that a go.mod asks for, such as `v1.36.3`."""
    match = re.search(r"^\s*(?:require )?k8s\.io/kubernetes (v[\w.+-]+)", go_mod, re.MULTILINE)
    if match is None:
        raise ValueError("go.mod does not require k8s.io/kubernetes")
    return match.group(1)


def linker_flags(version: str) -> str:
    """What makes the binary say its version, as the upstream build does; Kubernetes' compatibility checks read it."""
    major, minor = version.removeprefix("v").split(".")[:2]
    flags = ["-s", "-w"]
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        flags += [f"-X {package}.{name}={value}" for name, value in values.items()]
    return " ".join(flags)


def sources(go_mod: Path) -> list[Path]:
    """Everything that goes into the binary; Go keeps the hashes of `go-1.34.mod` in `go-1.34.sum`."""
    return sorted([go_mod, go_mod.with_suffix(".sum"), *go_mod.parent.glob("*.go")])


def cache_key(go_mod: Path, go_version: str) -> str:
    """Sixteen hex digits that change whenever the binary could."""
    digest = hashlib.sha256()
    for path in sources(go_mod):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    flags = linker_flags(kubernetes_version(go_mod.read_text()))
    digest.update(f"{go_version} {platform.system()} {platform.machine()} {flags}".encode())
    return digest.hexdigest()[:16]


def build(progress: Progress = print, *, release: str = "", module: Path = MODULE, cache: Path | None = None) -> Path:
    """The path of the binary of `release` (empty: the newest); builds it when it is not cached yet. Raises BuildError.

    Safe to call from several processes at once: one builds, the others wait and say so.
    """
    cache = cache or cache_root()
    go_mod = go_mod_of(module, release)
    go = choose_go(go_mod)
    binary = cache / "cluster" / cache_key(go_mod, go.version) / BINARY
    if binary.exists():
        return binary
    lock = cache / "build.lock"
    with locked(lock, lambda: progress(f"another process is building already (lock {lock}); waiting for it")):
        if not binary.exists():
            _build_locked(go, go_mod, cache, binary, progress)
    return binary


def _build_locked(go: Go, go_mod: Path, cache: Path, binary: Path, progress: Progress) -> None:
    started = time.monotonic()
    module = go_mod.parent
    version = kubernetes_version(go_mod.read_text())
    progress(f"building Kubernetes {version} into {binary.parent}")
    progress("this happens once and takes 5 to 10 minutes on two cores with an empty Go cache")
    if go.path is None:
        go = install_go(go, module, cache, progress)
    env = go_environment(go, cache, os.environ)
    fresh = binary.parent.with_name(f"{binary.parent.name}.tmp-{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        report = _Reporter(progress, started)
        which = f"-modfile={go_mod.name}"
        total = len(report.run([str(go.path), "list", which, "-deps", "."], module, env, "modules downloaded"))
        command = [str(go.path), "build", which, "-v", "-trimpath", "-ldflags", linker_flags(version)]
        report.run([*command, "-o", str(fresh / BINARY), "."], module, env, f"of at most {total} packages compiled")
        fresh.replace(binary.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    size = binary.stat().st_size // 1_000_000
    progress(f"built {binary} with {go.version}: {size} MB in {_minutes(time.monotonic() - started)}")


class _Reporter:
    """Runs one step of the build after the other and shows every few seconds that it lives."""

    def __init__(self, progress: Progress, started: float) -> None:
        self._progress, self._started = progress, started

    def run(self, command: list[str], folder: Path, env: dict[str, str], what: str) -> list[str]:
        """The lines of standard output; lines of standard error are counted as progress. Raises BuildError."""
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        assert process.stdout is not None
        assert process.stderr is not None
        output: list[str] = []
        reader = threading.Thread(target=output.extend, args=(process.stdout,), name="build-output", daemon=True)
        reader.start()
        seen: list[str] = []
        try:
            for line in _lines_or_ticks(process.stderr):
                if line is not None:
                    seen.append(line.rstrip())
                    continue
                last = f", last {seen[-1]}" if seen else ""
                self._progress(f"  {_minutes(time.monotonic() - self._started)}  {len(seen)} {what}{last}")
        except BaseException:
            process.terminate()
            raise
        finally:
            code = process.wait()
            reader.join()
        if code != 0:
            raise BuildError("\n".join([f"{' '.join(command)} failed ({code}):", *seen[-20:]]))
        return [line.rstrip() for line in output]


def _lines_or_ticks(stream: Iterator[str]) -> Iterator[str | None]:
    """Every line of `stream` as it comes, and None each time a few seconds have passed."""
    lines: queue.Queue[str] = queue.Queue()
    end = ""  # a line has at least its newline

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(end)

    threading.Thread(target=read, name="build-lines", daemon=True).start()
    tick = time.monotonic() + PROGRESS_EVERY_SECONDS
    while True:
        try:
            line = lines.get(timeout=max(0.0, tick - time.monotonic()))
        except queue.Empty:
            pass
        else:
            if line == end:
                return
            yield line
        if time.monotonic() >= tick:
            tick += PROGRESS_EVERY_SECONDS
            yield None


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
