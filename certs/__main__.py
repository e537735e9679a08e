"""`python -m certs` is the command line."""

import sys

from certs.cli import main

sys.exit(main())
