"""Certificates of our own: an authority, what it signs, and their renewal."""
