"""`python -m webhook` is the command `longhorn-scheduler-webhook`."""

import sys

from webhook.cli import main

sys.exit(main())
