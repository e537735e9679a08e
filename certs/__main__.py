"""The old name of `longhorn-scheduler-extender certs`."""

import sys

from certs.cli import command
from controller.process.command_line import run_by_old_name

sys.exit(run_by_old_name(command, "python -m certs"))
