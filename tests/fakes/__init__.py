"""Doubles for pure logic, and for faults that a real server does not produce on demand."""
