"""The webhook configurations, which the leader keeps as they should be."""
