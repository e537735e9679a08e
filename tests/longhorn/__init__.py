"""Stands in for Longhorn on a real control plane, by what Longhorn's documents and releases do. Imports no product
code."""
