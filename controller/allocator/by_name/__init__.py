"""Disks that are given by name, to callers who place replicas and images themselves."""
