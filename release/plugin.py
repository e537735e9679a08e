"""`kubectl longhorn_scheduling` as archives, one for each platform, and the manifest by which krew installs them.

`python -m release.plugin --url URL` writes both to dist/plugin. An archive has the program, the packages that people's
commands need, as they are locked, in the builds for each release of Python, and a launcher that finds a Python on the
machine. It has no server: `run` is the image's.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from release.packages import Locked, described, image_environment, installed_below, locked_in
from release.version import ROOT, current

NAME: Final = "longhorn-scheduling"
PROGRAM: Final = "kubectl-longhorn_scheduling"
COMPLETES: Final = "kubectl_complete-longhorn_scheduling"
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
PACKAGES: Final = ("controller", "certs", "extender", "webhook")
# What only `run` needs.
SERVERS: Final = frozenset(
    {
        "flask",
        "grpcio",
        "grpcio-health-checking",
        "grpcio-reflection",
        "gunicorn",
        "protobuf",
        "werkzeug",
    }
)
_GLIBCS: Final = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")


@dataclass(frozen=True, slots=True)
class PluginPlatform:
    """`os` and `arch` as krew says them; `tags`: as pip does."""

    os: str
    arch: str
    tags: tuple[str, ...]

    @property
    def archive(self) -> str:
        return f"{PROGRAM}_{self.os}_{self.arch}.tar.gz"


PLATFORMS: Final = (
    PluginPlatform("linux", "amd64", tuple(f"{glibc}_x86_64" for glibc in _GLIBCS)),
    PluginPlatform("linux", "arm64", tuple(f"{glibc}_aarch64" for glibc in _GLIBCS)),
    # cryptography is no longer built for macOS on Intel.
    PluginPlatform("darwin", "arm64", ("macosx_12_0_arm64",)),
)
Fetch = Callable[[PluginPlatform, str, Sequence[Locked], Path], None]
"""Puts the wheels of these packages, for that platform and release of Python, into a folder."""

LAUNCHER: Final = """\
#!/bin/sh
# Runs the program beside this file with a Python that its packages are made for.
self=$0
while [ -h "$self" ]; do
    link=$(readlink "$self")
    case $link in
        /*) self=$link ;;
        *) self=$(dirname "$self")/$link ;;
    esac
done
here=$(cd "$(dirname "$self")" && pwd)
for python in $LONGHORN_SCHEDULING_PYTHON {names} python3; do
    command -v "$python" > /dev/null 2>&1 || continue
    "$python" -c 'import sys; sys.exit(sys.version_info[:2] not in {pairs})' 2> /dev/null || continue
    exec "$python" -I "$here/launch.py" "$(basename "$self")" "$@"
done
echo 'error: this plugin needs Python {first} to {last}; LONGHORN_SCHEDULING_PYTHON may name one' >&2
exit 2
"""
LAUNCH: Final = f'''\
"""Started by the launcher, with its name as the first word."""

import sys
from pathlib import Path

lib = Path(__file__).resolve().parent / "lib"
sys.path[:0] = [str(lib / name) for name in ("cp%d%d" % sys.version_info[:2], "abi3", "any")]
sys.argv = sys.argv[1:]

from controller import cli

sys.exit(cli.complete_plugin() if sys.argv[0] == "{COMPLETES}" else cli.plugin())
'''


def needed(lock: str, dependencies: Iterable[str], folder: str, python: str) -> list[Locked]:
    """The entries of the lock that people's commands need under that release of Python: what `dependencies` without
    servers need, by the packages that are installed in `folder`. Raises LockError."""
    environment = image_environment(python)
    entries = {one.name: one for one in locked_in(lock, environment)}
    packages = {one.locked.name: one for one in described(entries.values(), installed_below(folder), environment)}
    todo = [str(canonicalize_name(Requirement(one).name)) for one in dependencies]
    todo = [name for name in todo if name not in SERVERS]
    found: dict[str, Locked] = {}
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = entries[name]
            todo += packages[name].needs
    return [found[name] for name in sorted(found)]


def download(platform: PluginPlatform, python: str, locked: Sequence[Locked], folder: Path) -> None:
    """By pip, checked by the digests of the lock. Raises CalledProcessError."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        for one in locked:
            hashes = " ".join(f"--hash=sha256:{digest}" for digest in one.digests)
            file.write(f"{one.name}=={one.version} {hashes}\n")
        file.flush()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), "--require-hashes"]
        command += ["--no-deps", "--only-binary", ":all:", "--implementation", "cp", "--python-version", python]
        for tag in platform.tags:
            command += ["--platform", tag]
        subprocess.run([*command, "--requirement", file.name], check=True)


def build(
    folder: Path,
    version: str,
    locked: Mapping[str, Sequence[Locked]],
    fetch: Fetch,
    platform: PluginPlatform,
    *,
    level: int = 9,
) -> Path:
    """The archive of a platform, in `folder`: the same bytes from the same input. `locked`: by release of Python;
    `level`: of compression."""
    with tempfile.TemporaryDirectory() as made:
        tree = Path(made) / "tree"
        for python, packages in locked.items():
            wheels = Path(made) / python
            wheels.mkdir()
            fetch(platform, python, packages, wheels)
            for wheel in sorted(wheels.glob("*.whl")):
                _unpack(wheel, tree / "lib")
        _add_program(tree, version, tuple(locked))
        archive = folder / platform.archive
        archive.write_bytes(_packed(tree, level))
        return archive


def _unpack(wheel: Path, lib: Path) -> None:
    """Beside others that are for the same Pythons."""
    _, _, _, tags = parse_wheel_filename(wheel.name)
    abis = {tag.abi for tag in tags}
    place = "any" if abis == {"none"} else "abi3" if "abi3" in abis else next(iter(tags)).interpreter
    with zipfile.ZipFile(wheel) as content:
        for name in content.namelist():
            top, _, rest = name.partition("/")
            kind, _, inner = rest.partition("/")
            if not top.endswith(".data"):
                content.extract(name, lib / place)
            elif kind in ("purelib", "platlib") and inner and not name.endswith("/"):
                path = lib / place / inner
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read(name))


def _add_program(tree: Path, version: str, pythons: Sequence[str]) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / "lib" / "any" / package, ignore=ignored)
    about = tree / "lib" / "any" / f"longhorn_scheduler_extender-{version}.dist-info" / "METADATA"
    about.parent.mkdir(parents=True)
    about.write_text(f"Metadata-Version: 2.1\nName: longhorn-scheduler-extender\nVersion: {version}\n")
    pairs = ", ".join(f"({one.replace('.', ', ')})" for one in pythons)
    names = " ".join(f"python{one}" for one in reversed(pythons))
    text = LAUNCHER.format(names=names, pairs=f"({pairs},)", first=pythons[0], last=pythons[-1])
    for name in (PROGRAM, COMPLETES):
        (tree / name).write_text(text)
        (tree / name).chmod(0o755)
    (tree / "launch.py").write_text(LAUNCH)
    shutil.copy(ROOT / "LICENSE", tree / "LICENSE")


def _packed(tree: Path, level: int) -> bytes:
    made = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=made, mode="wb", compresslevel=level, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for path in sorted(tree.rglob("*")):
            entry = archive.gettarinfo(path, str(path.relative_to(tree)))
            entry.mtime = entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mode = 0o755 if entry.isdir() or path.name in (PROGRAM, COMPLETES) else 0o644
            if entry.isdir():
                archive.addfile(entry)
            else:
                with path.open("rb") as content:
                    archive.addfile(entry, content)
    return made.getvalue()


def manifest(version: str, url: str, archives: Mapping[PluginPlatform, Path]) -> dict[str, Any]:
    """What krew reads. `version`: as Helm says it; `url`: of the folder with the archives."""
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": NAME},
        "spec": {
            "version": f"v{version}",
            "homepage": url,
            "shortDescription": "Says why pods wait for Longhorn storage",
            "description": "Shows what Longhorn's scheduler extender sees: why a pod waits for room, what would help, "
            "what still fits, and what is wrong with the installation.",
            "caveats": f"Needs Python {PYTHONS[0]} to {PYTHONS[-1]} on the machine.\n",
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": platform.os, "arch": platform.arch}},
                    "uri": f"{url.rstrip('/')}/{platform.archive}",
                    "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                    "bin": PROGRAM,
                }
                for platform, path in archives.items()
            ],
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m release.plugin", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", required=True, help="of the folder in which the archives will be")
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "plugin")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    lock = (ROOT / "requirements" / "runtime.lock").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = sysconfig.get_path("purelib")
    locked = {one: needed(lock, project["dependencies"], folder, f"{one}.0") for one in PYTHONS}
    archives = {}
    for platform in PLATFORMS:
        archives[platform] = made = build(options.output, project["version"], locked, download, platform)
        print(f"{made}: {made.stat().st_size / 2**20:.0f} MiB")
    path = options.output / f"{NAME}.yaml"
    path.write_text(yaml.safe_dump(manifest(str(current()), options.url, archives), sort_keys=False, width=120))
    print(path)


if __name__ == "__main__":
    main()
