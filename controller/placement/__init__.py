"""Places Replica objects without a disk, for a Longhorn whose own placement is off."""
