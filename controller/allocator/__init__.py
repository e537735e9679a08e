"""The allocator: what is free, what is promised, and who may have it. No I/O, no wall clock, no Kubernetes client."""
