"""The proof that kube-scheduler asks the extender: a pod that only the extender can let pass."""
