"""`python -m controller.record` looks at the record of what is allocated."""

import sys

from controller.record.command import main

sys.exit(main())
