"""Loops of the leader beside the allocator: what time ends, wake-ups, Events, which Longhorn runs."""
