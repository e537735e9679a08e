"""The leader process, and the core that the other packages lean on."""
