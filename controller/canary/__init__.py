"""Proves that kube-scheduler asks the extender, by a pod that only the extender could let pass."""
