"""Gives Replicas their disks in place of Longhorn, which the gate keeps from doing so."""
