"""The page on the status port."""
