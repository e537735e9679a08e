"""Runs `python -m controller.record`."""

import sys

from controller.record.command import main

sys.exit(main())
