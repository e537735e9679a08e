"""Why a pod, a claim or a volume waits, and which change would help."""
