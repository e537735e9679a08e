"""Builds the leader's process out of its parts, and gives start, terms and stop their order."""
