"""The one exception tree. A "no" is a value; only failures are raised."""

from __future__ import annotations


class SchedulerError(Exception):
    """Every failure of this product."""


class MalformedRequestError(SchedulerError):
    """A value from outside that does not fit; `field` is its path. Maps to 400."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}" if field else problem)
        self.field = field
        self.problem = problem


class NotReadyError(SchedulerError):
    """This process cannot answer now; another time or another copy can. Maps to 503."""


class NotLeaderError(NotReadyError):
    """Another process leads, or nobody does."""


class NotSyncedError(NotReadyError):
    """Stores are not caught up, or their data is too old to decide on."""


class CallerGoneError(NotReadyError):
    """The caller no longer waits for the answer, so nothing was done."""


class RefusedWriteError(NotReadyError):
    """The API server refuses the record of `node` as it was to be written."""

    def __init__(self, problem: str, node: str = "") -> None:
        super().__init__(problem)
        self.node = node


class ConfigError(SchedulerError):
    """A setting that cannot work; the message names it. Ends the process with code 2."""


class PreconditionError(SchedulerError):
    """The state of the system does not allow it, and asking again does not help until that has changed."""


class BugError(SchedulerError):
    """A broken invariant: the key that caused it is put into quarantine."""


class ClusterError(SchedulerError):
    """The API server refused a call, or could not be reached."""


class ForbiddenError(ClusterError):
    """403: a right is missing, or a policy refuses it."""


class NotFoundError(ClusterError):
    """404."""


class ConflictError(ClusterError):
    """409, or a JSON patch that does not fit: written by somebody else meanwhile, or it exists already."""


class GoneError(ClusterError):
    """410: the resource version is too old."""


class TooManyReadsError(ClusterError):
    """So much is being read for others that this was not: the API server was not asked."""


class UnavailableError(ClusterError):
    """429, 5xx, a timeout or no connection: worth another try."""
