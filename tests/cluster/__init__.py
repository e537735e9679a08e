"""A real Kubernetes control plane on this machine, without containers; `docs/test-cluster.md` tells how it is put together."""
