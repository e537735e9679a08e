"""What the leader shows to people: disks, pods that wait, decisions, and why."""
