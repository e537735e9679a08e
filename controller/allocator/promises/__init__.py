"""The one form in which room is claimed."""
