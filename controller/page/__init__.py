"""The page on the status port: what the leader sees, for people with a browser."""
