"""`python -m controller.rpc` calls the leader by hand."""

import sys

from controller.rpc.command import main

sys.exit(main())
