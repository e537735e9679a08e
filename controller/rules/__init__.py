"""Longhorn's rules as pure functions on facts."""
