"""Which disk a replica goes to, and whether it may lie there."""
