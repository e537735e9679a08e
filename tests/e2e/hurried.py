"""The product with some of its times changed, for tests that cannot wait for them.

`python -m tests.e2e.hurried run --time MODULE.NAME=SECONDS ...` takes the arguments of `tests.e2e.paced` and of the
product as well. What changes is the name in the module that reads it.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from types import ModuleType

from tests.e2e import paced


def flags_of(module: ModuleType, **seconds: float) -> list[str]:
    """The flags that set these names of the module."""
    assert seconds.keys() <= vars(module).keys()
    return [word for name, value in seconds.items() for word in ("--time", f"{module.__name__}.{name}={value}")]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--time", action="append", default=[])
    options, rest = parser.parse_known_args()
    for one in options.time:
        path, _, seconds = one.partition("=")
        module, _, name = path.rpartition(".")
        vars(import_module(module))[name] = float(seconds)
    sys.argv[1:] = [*rest, "--paced", "controller"]
    return paced.main()


if __name__ == "__main__":
    sys.exit(main())
