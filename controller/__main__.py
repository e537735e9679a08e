"""`python -m controller` is the command `longhorn-scheduler-extender`."""

import sys

from controller.cli import main

sys.exit(main())
