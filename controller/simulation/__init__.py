"""What would happen if workloads came, a node went, a claim grew or a setting changed; and the bundle to ask it of."""
