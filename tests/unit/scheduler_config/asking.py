"""The command `render-scheduler-config`, called as the program calls it.

`python -m tests.unit.scheduler_config.asking` writes the golden files anew; look at the difference before it is kept.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import yaml

from controller.scheduler_config import command
from controller.scheduler_config.config import Rendered

GOLDEN = Path(__file__).parent / "golden"
IMAGE = "registry.k8s.io/kube-scheduler:v1.36.3"
CASES: dict[str, list[str]] = {
    "plain": [],
    "kubeadm": ["--service-address", "10.96.0.7"],
    "k3s": ["--service-address", "192.0.2.10", "--port", "30504"],
    "rke2": ["--service-address", "fd00:10::7", "--ignorable", "--large-cluster"],
    "second": ["--image", IMAGE],
}


def ask(*words: str) -> Rendered:
    """What the command prints to these words. Raises ConfigError, and SystemExit as argparse does."""
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers(dest="command"))
    return command.render(parser.parse_args([command.NAME, *words]))


def config(*words: str) -> dict[str, Any]:
    """The KubeSchedulerConfiguration alone, read back."""
    document: dict[str, Any] = yaml.safe_load(ask(*words, "--part", "config").text)
    return document


def golden_path(platform: str) -> Path:
    return GOLDEN / f"{platform}.yaml"


def main() -> None:
    for platform, words in CASES.items():
        golden_path(platform).write_text(ask("--for", platform, *words).text)


if __name__ == "__main__":
    main()
