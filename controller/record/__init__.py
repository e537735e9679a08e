"""The durable record of what is allocated on Longhorn's disks: where it is kept, and who writes it."""
