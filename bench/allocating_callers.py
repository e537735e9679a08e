"""Callers that ask the leader for room, in a process of their own: `python -m bench.allocating_callers ADDRESS FOLDER`.

Standard input: how many at a time, in a line, and one request in each further line: `replica VOLUME REPLICA`, `expand
VOLUME BYTES`, or `new VOLUME`, for which volume and replica are made first, with the `--kubeconfig`. Standard output:
one JSON object with the number of calls and the seconds that they took together.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.cluster.client import ApiClient
from tests.e2e.disk_callers import NAME, answer, asked
from tests.e2e.manager_writes import make_volume
from tests.fakes.rpc_client import DiskSchedulerClient, MountedMaterial
from tests.longhorn.options import GIB


def main(address: str, folder: str, kubeconfig: str) -> None:
    callers, api = int(sys.stdin.readline()), ApiClient.from_kubeconfig(Path(kubeconfig))

    def call(words: list[str]) -> None:
        if words[0] == "new":
            words = ["replica", words[1], *make_volume(api, words[1], GIB, 1)]
        found = answer(lambda: asked(client, words))
        if "given" not in found:
            raise RuntimeError(f"{words}: {found}")

    with DiskSchedulerClient(address, NAME, MountedMaterial(Path(folder))) as client:
        requests = [line.split() for line in sys.stdin]
        began = time.perf_counter()
        with ThreadPoolExecutor(callers) as pool:
            done = len(list(pool.map(call, requests)))
        seconds = time.perf_counter() - began
    print(json.dumps({"calls": done, "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
