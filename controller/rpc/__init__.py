"""The leader's gRPC service DiskScheduler, for calls from other processes of Longhorn's namespace.

disk_scheduler_pb2.py and its .pyi are generated from disk_scheduler.proto by `make proto` and committed: an install
needs no compiler then, and a reader of the code sees what it calls. tests/unit/rpc checks that they are of that file.
"""
