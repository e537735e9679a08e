"""The old name of `longhorn-scheduler-extender plan`."""

import sys

from controller.plan.command import command
from controller.process.command_line import run_by_old_name

sys.exit(run_by_old_name(command, "python -m controller.plan"))
