"""The stand-in as a process, until it is told to end.

python -m tests.longhorn --kubeconfig FILE [--options FILE] [--delays late-figures,attach=0.5..1]
"""

from __future__ import annotations

import argparse
import logging
import signal
import threading
from dataclasses import replace
from pathlib import Path

from tests.cluster.client import ApiClient
from tests.longhorn.longhorn import Longhorn
from tests.longhorn.options import LonghornOptions


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.longhorn")
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--options", type=Path, help="JSON with the fields of LonghornOptions")
    parser.add_argument("--delays", default="", help="presets, and delays as NAME=SECONDS or NAME=LOW..HIGH")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(threadName)s %(message)s")
    options = LonghornOptions.load(given.options) if given.options else LonghornOptions()
    options = replace(options, delays=options.delays.changed_by(given.delays))
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    with Longhorn(ApiClient.from_kubeconfig(given.kubeconfig, user_agent="longhorn-stand-in"), options):
        print("ready", flush=True)
        end.wait()


if __name__ == "__main__":
    main()
