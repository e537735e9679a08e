"""Facts: frozen values parsed from cluster objects, with no behaviour beyond arithmetic."""
