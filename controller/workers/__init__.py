"""Loops of the leader besides the allocator: promises that expire, wake-ups, Events, the version of Longhorn."""
