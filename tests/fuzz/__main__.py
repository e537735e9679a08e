"""A coverage-guided run over all routes (`make fuzz`, or `python -m tests.fuzz --seconds 60`), or over the planner's
documents (`make fuzz-plan`, or with `--target plans`).

The fuzzer sees which branches of the product a request reaches, and bends those requests further that reach new ones.
It ends after its time, or at the first request that breaks a promise of tests/fuzz/target.py or plans.py, which it
prints. What it learned stays in the corpus folder, and the next run begins there.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from pathlib import Path
from typing import Any, Final

from hypothesis import given, settings

# By target: its module and class, and what of the product is looked at.
PRODUCT: Final = {
    "routes": ("tests.fuzz.target", "VerbTarget", ["extender", "controller.allocator", "controller.model"]),
    "plans": ("tests.fuzz.plans", "PlanTarget", ["controller.plan", "controller.model", "controller.rules"]),
}
LONGEST: Final = 4_096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="how long to look for something new")
    parser.add_argument("--target", choices=PRODUCT, default="routes", help="what is thrown at")
    parser.add_argument(
        "--corpus", type=Path, help="what was learned; bench-output/fuzz-corpus, or one of the target's own"
    )
    options = parser.parse_args()
    corpus = options.corpus or Path("bench-output/fuzz-corpus" + "-plans" * (options.target == "plans"))
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        raise SystemExit("this needs the package atheris (requirements/fuzz.lock); `make fuzz` installs it") from None
    corpus.mkdir(parents=True, exist_ok=True)
    logging.disable()
    name, kind, product = PRODUCT[options.target]
    with atheris.instrument_imports(include=product):  # nothing may have imported the product before
        module = importlib.import_module(name)
    target = getattr(module, kind)()

    @settings(deadline=None, database=None)
    @given(throws=module.THROWS)
    def throw_all(throws: Any) -> None:
        try:
            target.throw_all(throws)
        except Exception:
            print(f"broken by one of these, in this order: {throws}", file=sys.stderr)
            raise

    flags = [f"-max_total_time={options.seconds}", f"-max_len={LONGEST}", "-len_control=0"]
    flags += ["-timeout=20", "-rss_limit_mb=2048"]
    throw_bytes: Any = vars(throw_all)["hypothesis"].fuzz_one_input
    atheris.Setup([sys.argv[0], *flags, str(corpus)], lambda data: throw_bytes(data + bytes(LONGEST)))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
