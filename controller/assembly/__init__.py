"""Builds the controller's process from its parts, and orders start, terms and stop."""
