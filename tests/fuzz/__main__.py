"""A coverage-guided run over all routes (`make fuzz`, or `python -m tests.fuzz --seconds 60`).

The fuzzer sees which branches of the product a request reaches, and bends those requests further that reach new ones.
It ends after its time, or at the first request that breaks a promise of tests/fuzz/target.py, which it prints. What it
learned stays in the corpus folder, and the next run begins there.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # the product must not be imported before the fuzzer can look into it
    from tests.fuzz.requests import Request

PRODUCT: Final = ["extender", "controller.allocator", "controller.model"]
LONGEST: Final = 4_096
REQUESTS: Final = 4  # at most, one after the other in the same world


class BytesChooser:
    """Choices out of the fuzzer's bytes; zeros when they are used up."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    def number(self, most: int) -> int:
        return int(self._provider.ConsumeIntInRange(0, most))

    def text(self) -> str:
        return str(self._provider.ConsumeUnicodeNoSurrogates(20))

    def raw(self) -> bytes:
        return bytes(self._provider.ConsumeBytes(200))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="how long to look for something new")
    parser.add_argument("--corpus", type=Path, default=Path("bench-output/fuzz-corpus"))
    options = parser.parse_args()
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        raise SystemExit("this needs the package atheris (requirements/fuzz.lock); `make fuzz` installs it") from None
    options.corpus.mkdir(parents=True, exist_ok=True)
    logging.disable()
    with atheris.instrument_imports(include=PRODUCT):
        target_module = importlib.import_module("tests.fuzz.target")
        requests_module = importlib.import_module("tests.fuzz.requests")
    target = target_module.Target()
    faults = list(target_module.Fault)

    def throw_all(data: bytes) -> None:
        chooser = BytesChooser(atheris.FuzzedDataProvider(data))
        target.reset()
        thrown: list[Request] = []
        try:
            for _ in range(1 + chooser.number(REQUESTS - 1)):
                fault, checks = faults[chooser.number(len(faults) - 1)], chooser.number(3)
                thrown.append(requests_module.make_request(chooser, target_module.PODS, tuple(target_module.NODES)))
                target.throw(thrown[-1], fault, checks)
        except Exception:
            print(f"after {thrown[:-1]}\nbroken by {thrown[-1:]}", file=sys.stderr)
            raise

    flags = [f"-max_total_time={options.seconds}", f"-max_len={LONGEST}", "-len_control=0"]
    flags += ["-timeout=20", "-rss_limit_mb=2048"]
    atheris.Setup([sys.argv[0], *flags, str(options.corpus)], throw_all)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
