"""`python -m controller.allocations` looks after the record of what is allocated."""

import sys

from controller.allocations.command import main

sys.exit(main())
