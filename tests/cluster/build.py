"""Build the control plane's one binary, once a version of its sources, into the cache.

`python -m tests.cluster build` runs it alone. What is made is kept under a hash of everything that goes into it, so a
changed source never meets an old binary, and two clones of the same sources share one.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
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


def cache_key(go_mod: Path, go_version: str, flags: str) -> str:
    """Sixteen hex digits that change whenever the program could. Go keeps the hashes of `go-1.34.mod` in
    `go-1.34.sum`."""
    digest = hashlib.sha256()
    for path in sorted([go_mod, go_mod.with_suffix(".sum"), *go_mod.parent.glob("*.go")]):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    digest.update(f"{go_version} {platform.system()} {platform.machine()} {flags}".encode())
    return digest.hexdigest()[:16]


def build(progress: Progress = print, *, release: str = "", module: Path = MODULE, cache: Path | None = None) -> Path:
    """The path of the binary of `release` (empty: the newest), built when it is not there yet. Raises BuildError."""
    go_mod = go_mod_of(module, release)
    version = kubernetes_version(go_mod.read_text())
    what = f"Kubernetes {version}, which takes 5 to 10 minutes on two cores with an empty Go cache"
    return build_program(go_mod, Path("cluster", BINARY), what, progress, linker_flags(version), cache=cache)


def build_program(
    go_mod: Path,
    path: Path,
    what: str,
    progress: Progress,
    flags: str,
    *,
    package: str = ".",
    tags: str = "",
    cache: Path | None = None,
) -> Path:
    """The path of a Go program, `path` in the cache but for the key of its sources; builds it when it is not there yet.

    `package` is that of the program: the module itself, or one that its go.mod asks for; `tags`: Go's build tags. Safe
    to call from several processes at once: one builds, the others wait and say so. Raises BuildError.
    """
    cache = cache or cache_root()
    go = choose_go(go_mod)
    binary = cache / path.parent / cache_key(go_mod, go.version, f"{flags} {tags}".rstrip()) / path.name
    if binary.exists():
        return binary
    lock = cache / "build.lock"
    with locked(lock, lambda: progress(f"another process is building already (lock {lock}); waiting for it")):
        if not binary.exists():
            _build_locked(go, go_mod, cache, binary, (f"-tags={tags}", package), what, progress, flags)
    return binary


def _build_locked(
    go: Go, go_mod: Path, cache: Path, binary: Path, of: tuple[str, str], what: str, progress: Progress, flags: str
) -> None:
    started = time.monotonic()
    progress(f"building {what}, once, into {binary.parent}")
    if go.path is None:
        go = install_go(go, cache, progress)
    env = go_environment(go, cache, os.environ)
    fresh = binary.parent.with_name(f"{binary.parent.name}.tmp-{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)

    def run(step: str, *words: str) -> list[str]:
        command = [str(go.path), words[0], f"-modfile={go_mod.name}", *words[1:]]
        return _run(command, go_mod.parent, env, lambda lines: progress(f"  {_minutes(started)}  {lines} {step}"))

    try:
        total = len(run("modules downloaded", "list", "-deps", *of))
        words = ["build", "-v", "-trimpath", "-ldflags", flags, "-o", str(fresh / binary.name), *of]
        run(f"of at most {total} packages compiled", *words)
        fresh.replace(binary.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    size = binary.stat().st_size // 1_000_000
    progress(f"built {binary} with {go.version}: {size} MB in {_minutes(started)}")


def _run(command: list[str], folder: Path, env: dict[str, str], tell: Callable[[int], None]) -> list[str]:
    """The lines of standard output; `tell` is told every few seconds how many lines standard error has, which shows
    that the command lives. Raises BuildError."""
    with tempfile.NamedTemporaryFile() as output, tempfile.NamedTemporaryFile() as errors:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=output, stderr=errors)
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(PROGRESS_EVERY_SECONDS)
                    break
                tell(len(_lines(errors.name)))
        finally:
            process.kill()  # nothing when it has ended
            code = process.wait()
        if code != 0:
            raise BuildError("\n".join([f"{' '.join(command)} failed ({code}):", *_lines(errors.name)[-20:]]))
        return _lines(output.name)


def _lines(path: str) -> list[str]:
    return Path(path).read_text(errors="replace").splitlines()


def _minutes(started: float) -> str:
    seconds = int(time.monotonic() - started)
    return f"{seconds // 60}:{seconds % 60:02d}"
