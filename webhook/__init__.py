"""Admission: pods opt in to the scheduler extender by themselves."""
