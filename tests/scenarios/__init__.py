"""Transcripts of what the allocator answers, and their runner."""
