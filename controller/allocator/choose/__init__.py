"""Which disk, and whether that one may be it."""
