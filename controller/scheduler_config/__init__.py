"""The configuration that makes kube-scheduler ask this extender, for each way in which kube-scheduler runs.

Pure but for `command`, which reads the files that the command line names. `options` says what can be asked for,
`config` writes a KubeSchedulerConfiguration or merges into one, `fragments` writes what stands around it.
"""
