"""Tests of the stand-in for Longhorn itself."""
