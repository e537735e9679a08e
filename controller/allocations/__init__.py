"""The durable record of what is allocated on Longhorn's disks: where it stands, who writes it, and its repair."""
