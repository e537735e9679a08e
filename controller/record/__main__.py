"""The old name of `longhorn-scheduler-extender record`."""

import sys

from controller.process.command_line import run_by_old_name
from controller.record.command import command

sys.exit(run_by_old_name(command, "python -m controller.record"))
