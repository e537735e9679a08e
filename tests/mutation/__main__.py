from __future__ import annotations

import sys

from tests.mutation.run import main

sys.exit(main())
