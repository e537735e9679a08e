"""`python -m controller.plan` answers questions about saved objects."""

import sys

from controller.plan.command import main

sys.exit(main())
