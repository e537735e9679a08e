"""Certificates of one authority, as files of mounted Secrets, for benches that speak TLS."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from certs.authority import LeafSpec, make_authority, sign

DAY: Final = timedelta(days=1)


def write_certificates(folder: Path, leaves: Mapping[str, LeafSpec]) -> None:
    """A directory for each leaf, of its name, with `tls.crt`, `tls.key` and `ca.crt`."""
    now = datetime.now(UTC)
    ca = make_authority("bench", DAY, now)
    for name, spec in leaves.items():
        leaf = sign(ca, spec, now)
        (folder / name).mkdir()
        (folder / name / "tls.crt").write_bytes(leaf.certificate)
        (folder / name / "tls.key").write_bytes(leaf.key)
        (folder / name / "ca.crt").write_bytes(ca.certificate)
