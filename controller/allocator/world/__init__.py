"""What the cluster shows."""
