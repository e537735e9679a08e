"""Pods that were refused, and what is kept for them."""
