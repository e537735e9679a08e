"""A real Kubernetes control plane on this machine, without containers. How it works: `docs/test-cluster.md`."""
