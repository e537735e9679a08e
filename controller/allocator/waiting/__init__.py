"""Refused pods, and the room that is kept for them."""
