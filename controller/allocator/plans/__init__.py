"""What the leader has decided and the cluster does not show yet."""
