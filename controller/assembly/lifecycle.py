"""The order of start and stop, of the beginning and end of a term, and of the modes.

One thread, `lifecycle`, does all of it in turn, so no two of these steps ever overlap. The elector's thread only notes
that a term began or ended, closes the gate itself, and goes on renewing the Lease.

    start:  informers, feed -> all stores synced -> elector
    term:   former writes fenced off -> stores caught up past the win -> plans, holds, record loaded -> allocator ->
            gate open -> sweeper, waker -> EndpointSlice, last
    end:    gate closed (by the elector, first) -> sweeper, waker -> allocator follows again, warm
    stop:   gate closed -> plans and holds stored -> EndpointSlice cleared -> Lease released -> everything else

Losing the Lease or the API server never ends the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from controller.allocator.allocator import Allocator
from controller.allocator.outcome import Mode, Wakeup
from controller.assembly.certificates import CertificateWorker
from controller.assembly.configuration import MODE_TEXTS, Configured, mode_of
from controller.clock import Clock
from controller.election.gate import Gate
from controller.errors import ClusterError, NotReadyError, SchedulerError
from controller.kube.endpoint_slice import Endpoint, clear_at_end
from controller.log_line import say
from controller.model.allocations import Allocation
from controller.model.times import rfc3339
from controller.placement.plan_objects import Loaded
from controller.process.common_metrics import StoreState
from controller.process.repeated import QUIET_SECONDS, Said
from controller.process.worker import Part, ProcessPart, Worker, waiting
from controller.settings import NOT_SET, LiveSettings, changed_settings
from controller.views.decisions import NoteDecision, log_decision

TICK_SECONDS: Final = 0.5
CATCH_UP_SECONDS: Final = 8.0
REASSERT_SECONDS: Final = 10.0  # the EndpointSlice is looked at so often, in case somebody else wrote it
RETRY_SECONDS: Final = 1.0
RULE_OUT_SECONDS: Final = 5.0  # switched off, answers are still given so long if the pod rule cannot be taken out
STOP_SECONDS: Final = 10.0  # for everything to end
WAKE_AGAIN_SECONDS: Final = 2.0  # calls in flight when bypass began may still have been refused
MODE_REASON: Final = "SchedulerExtenderMode"
SETTING_REASON: Final = "SchedulerExtenderSetting"

log = logging.getLogger(__name__)


class Follower(ProcessPart, Protocol):
    """One informer with its store."""

    def catch_up(self, timeout: float) -> bool: ...
    def state(self) -> StoreState: ...


class TermSteps(Protocol):
    """What placement does in a term, so that no write of a former leader changes what this one decides by; in the
    product `PlacementTerms`. `fence` and `load` raise ClusterError or NotReadyError: then nothing may be decided
    yet."""

    def fence(self, term: int) -> None: ...
    def load(self, term: int) -> Loaded: ...
    def changed(self) -> None: ...
    def end(self) -> None: ...


class WakesPods(ProcessPart, Protocol):
    def wake(self, wakeups: Iterable[Wakeup]) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What the lifecycle starts and stops, as `assemble` builds it."""

    elector: ProcessPart  # its stop releases the Lease, when we hold it
    sweeper: ProcessPart
    waker: WakesPods
    endpoint: Endpoint
    certificates: CertificateWorker  # of the server that the endpoint leads to
    terms: TermSteps
    load_record: Callable[[], Collection[Allocation]]  # what was given by name, as the API server has it; ClusterError
    begun: Callable[[], None]  # a term has begun: for parts that look for it only now and then
    always: Sequence[ProcessPart]  # what runs on followers too: Events, the status page
    tell: Callable[[str, str, bool], None]  # a reason, a text, whether it is a warning: about the settings, for people
    no_pod_opts_in: Callable[[], bool]  # whether the webhook's pod rule is out


class Lifecycle(Part):
    """Starts and stops the parts of the process. It is made before the parts that ask it, and gets them by
    `take_parts`, before `start`.

    Threads: `begin_term`, `end_term`, `settings_changed` and `begin_stop` are called from any; the rest runs in
    `lifecycle`. Blocks: `stop`, until everything has ended. I/O: only what its parts do.
    """

    _parts: Parts

    def __init__(
        self,
        clock: Clock,
        allocator: Allocator,
        gate: Gate,
        followers: Sequence[Follower],
        read_settings: Callable[[], Configured],
        end_process: Callable[[], None],
        note: NoteDecision = log_decision,
    ) -> None:
        """`end_process` ends the process at once; another one is started in its place."""
        self._clock, self._allocator, self._gate, self._followers = clock, allocator, gate, followers
        self._read_settings, self._end_process, self._note = read_settings, end_process, note
        # Written by the thread, read by all.
        self.mode = Mode.CLOSED
        self.configured: Configured | None = None
        self.term: int | None = None  # the Lease's, in which this process answers; None while it follows
        self.since = ""  # of that term, RFC 3339; "" while it follows
        self.points_here = False  # this process has pointed the Service at itself
        # Written by the elector's thread.
        self._wanted_term: int | None = None
        self._has_predecessor = True
        # The thread's own.
        self._next_endpoint_at = 0.0
        self._off_since: float | None = None
        self._let_through = ""  # said of bypass: how many pods it lets through that had been refused
        self._wake_at: list[float] = []  # when pods that wait are to be woken because bypass began
        self._endpoint_problem = Said(partial(log.warning, "EndpointSlice: %s"), QUIET_SECONDS, clock.now)
        self._term_problem = Said(partial(log.warning, "the term cannot begin, trying again %s"))
        self._told_mode: Mode | None = None  # of this term
        self._told_problems: frozenset[tuple[str, str]] = frozenset()
        self._is_electing = False
        self._settings_are_new = True
        self._has_given_up = False
        self._is_stop_asked = False
        self.worker = Worker(
            "lifecycle", self._round, retry_seconds=(RETRY_SECONDS, RETRY_SECONDS), at_end=self._end_everything
        )

    def take_parts(self, parts: Parts) -> None:
        self._parts = parts

    # Called from other threads

    def live_settings(self) -> LiveSettings:
        """The live settings; the defaults until they were read."""
        return self.configured.live if self.configured is not None else LiveSettings()

    def start(self) -> None:
        for worker in self._parts.always:
            worker.start()
        for follower in self._followers:
            follower.start()
        self.worker.start(TICK_SECONDS)
        if self._is_stop_asked:  # while the parts were starting
            self.worker.begin_stop()

    def begin_term(self, term: int, has_predecessor: bool) -> None:
        """The election is won: the term begins as soon as the stores have caught up."""
        self._has_predecessor = has_predecessor
        self._wanted_term = term
        self.worker.wake()

    def end_term(self) -> None:
        """The election is lost, or the Lease was not renewed in time."""
        self._wanted_term = None  # before the gate: whoever opens it looks here afterwards
        self._gate.close()
        self.worker.wake()

    def holds(self, term: int) -> bool:
        """Whether this process holds the Lease in that term at this moment, also before the term has begun."""
        return self._wanted_term == term and self._gate.is_held

    def settings_changed(self, _changes: object = ()) -> None:
        self._settings_are_new = True
        self.worker.wake()

    def begin_stop(self) -> None:
        """Asks the process to end. Safe in a signal handler, also in one that interrupts another: a terminal and
        gunicorn both send a signal, and an Event that is just being set cannot be set in the same thread."""
        if not self._is_stop_asked:
            self._is_stop_asked = True
            self.worker.begin_stop()

    def stop(self) -> None:
        if not self.worker.stop(STOP_SECONDS):
            log.error("the process did not end in time; its Lease expires by itself")

    @property
    def workers(self) -> Sequence[Worker]:
        """The workers of all parts."""
        parts = self._parts
        runs = (*self._followers, parts.elector, parts.sweeper, parts.waker, *parts.always)
        return (self.worker, *(worker for one in runs for worker in one.workers))

    # The lifecycle thread

    def _round(self) -> float:
        self.step()
        return TICK_SECONDS

    def step(self) -> None:
        """Brings the process to the state that settings, election and stores call for."""
        if self._allocator.failure:
            self._give_up(self._allocator.failure)
            return
        if not all(follower.state().is_synced for follower in self._followers) and not self._is_electing:
            return
        self._apply_settings()
        self._apply_mode()
        if not self._is_electing:
            self._is_electing = True
            log.info("stores synced, taking part in the election")
            self._parts.elector.start()
        if self.term is not None and (self._wanted_term != self.term or not self._gate.is_open):
            self._end_term()
        wanted = self._wanted_term
        if wanted is not None and self.term is None:
            self._begin_term(wanted)
        self._apply_endpoint()
        self._wake_bypassed()
        self._tell()

    def _give_up(self, why: str) -> None:
        """Ends the process because its table cannot be trusted, and for no other fault; the next one derives it
        anew."""
        if not self._has_given_up:
            self._has_given_up = True
            self._gate.close()
            log.critical("the process ends: %s", why)
            self._end_process()

    def _apply_settings(self) -> None:
        if not self._settings_are_new:
            return
        self._settings_are_new = False
        try:
            configured = self._read_settings()
            if configured == self.configured:
                return
            for setting, problem in configured.problems.items():
                is_unsaid = problem.startswith(NOT_SET)  # yet, or any more: the mode says what that means
                level = logging.INFO if is_unsaid else logging.ERROR
                say(log, "setting not used", level, setting=setting, problem=problem)
            self._allocator.configure(configured.live, configured.longhorn)
        except Exception:
            self._settings_are_new = True
            raise
        self._say_settings(configured.live)
        self.configured = configured
        self._parts.terms.changed()

    def _say_settings(self, live: LiveSettings) -> None:
        """What is not as by default, and then what changes."""
        if self.configured is None:
            say(log, "settings", **{name: new for name, (_, new) in changed_settings(LiveSettings(), live).items()})
            return
        changed = changed_settings(self.configured.live, live)
        if changed:
            say(log, "settings changed", **{name: f"{old} -> {new}" for name, (old, new) in changed.items()})

    def _apply_mode(self) -> None:
        assert self.configured is not None
        live, rule_is_out = self.configured.live, self._parts.no_pod_opts_in
        mode = mode_of(live, self._allocator.pending_opted_in, rule_is_out)
        if live.enabled:
            self._off_since = None
        elif self._off_since is None:
            self._off_since = self._clock.now()
        if mode is self.mode or self._awaits_rule(live):
            return
        refused = self._allocator.snapshot().refused_count if mode is Mode.BYPASS else 0
        self._let_through = f". {refused} pods that were refused are let through now" if refused else ""
        self._note("mode", "", mode, text=MODE_TEXTS[mode] + self._let_through)
        self.mode = mode
        self._parts.terms.changed()
        self._allocator.set_mode(mode)
        self._next_endpoint_at = 0.0
        self._wake_all_in_bypass()

    def _wake_all_in_bypass(self) -> None:
        """Bypass begins, or a term in bypass: pods that any leader refused before are to be tried again."""
        if self.mode is Mode.BYPASS:
            now = self._clock.now()
            self._wake_at = [now, now + WAKE_AGAIN_SECONDS]

    def _awaits_rule(self, live: LiveSettings) -> bool:
        """Whether to go on as before for now: before the extender is switched off, pods have to stop opting in."""
        if self.mode is not Mode.ACTIVE or live.bypass or self._off_since is None or self._parts.no_pod_opts_in():
            return False
        return self._gate.is_open and self._clock.now() < self._off_since + RULE_OUT_SECONDS

    def _begin_term(self, term: int) -> None:
        """First nothing more of the previous leader arrives, then the stores catch up with all that it could have
        caused, then the allocator, then the gate."""
        try:
            self._parts.terms.fence(term)
            if not self._catch_up():
                raise NotReadyError("stores did not catch up in time")
            loaded, record = self._parts.terms.load(term), self._parts.load_record()
        except (ClusterError, NotReadyError) as error:
            self._term_problem.note(f"term {term}: {error}")
            return
        self._term_problem.note()
        if self._wanted_term != term:
            return
        self._allocator.begin_term(
            has_predecessor=self._has_predecessor, plans=loaded.plans, holds=loaded.holds, record=record
        )
        self.term, self.since = term, rfc3339(self._clock.now_utc())
        self._gate.open()
        if self._wanted_term != term:
            self._gate.close()  # lost between the look above and the opening; the next step ends the term
        self._parts.begun()
        self._parts.sweeper.start()
        self._parts.waker.start()
        self._next_endpoint_at = 0.0
        self._wake_all_in_bypass()
        self._told_mode, self._told_problems = None, frozenset()
        facts = {"term": term, "mode": self.mode}
        self._note("term", "", "leading", text=f"term {term}, mode {self.mode}", facts=facts)

    def _catch_up(self) -> bool:
        """Catches up all stores at once: each may need a few seconds for its watch's bookmark."""

        def one(follower: Follower) -> bool:
            try:
                return follower.catch_up(CATCH_UP_SECONDS)
            except ClusterError as error:
                log.warning("catching up failed: %s", error)
                return False

        with waiting(), ThreadPoolExecutor(max(1, len(self._followers)), thread_name_prefix="catch-up") as pool:
            return all([*pool.map(one, self._followers)])  # any other fault of theirs fails this round

    def _end_term(self) -> None:
        self._gate.close()
        self._parts.waker.stop()
        self._parts.sweeper.stop()
        self._allocator.end_term()
        self._note("term", "", "following", text=f"term {self.term} has ended", facts={"term": self.term})
        self.term, self.since = None, ""
        self.points_here = False

    def _apply_endpoint(self) -> None:
        """Points the Service at this process while it leads and is not switched off; repeated from time to time."""
        now = self._clock.now()
        if not self._gate.is_open or now < self._next_endpoint_at:
            return
        should = self.mode is not Mode.CLOSED
        try:
            if not should:
                self._parts.endpoint.clear()
            elif self._parts.certificates.is_serving:
                self._parts.endpoint.point_here()
            else:
                raise NotReadyError("there is no server certificate yet")
        except SchedulerError as error:
            self._endpoint_problem.note(error)
            self._next_endpoint_at = now + RETRY_SECONDS
            return
        self._endpoint_problem.note()
        if should is not self.points_here:
            log.info("EndpointSlice %s", "points here" if should else "is empty")
        self.points_here = should
        self._next_endpoint_at = now + REASSERT_SECONDS

    def _wake_bypassed(self) -> None:
        """After bypass began: all waiting pods are tried again, and those refused meanwhile once more."""
        if not self._wake_at or self._clock.now() < self._wake_at[0] or not self._gate.is_open:
            return
        self._wake_at.pop(0)
        if self.mode is Mode.BYPASS:
            pods = self._allocator.pending_opted_in()
            self._parts.waker.wake(Wakeup(pod.uid, pod.namespace, pod.name, len(self._wake_at)) for pod in pods)

    def _tell(self) -> None:
        """The leader reports each setting that is not used, and its mode, when its term begins and after changes."""
        if not self._gate.is_open or self.configured is None:
            return
        problems = frozenset(self.configured.problems.items())
        for setting, problem in sorted(problems - self._told_problems):
            self._parts.tell(SETTING_REASON, f"{setting}: {problem}", True)
        self._told_problems = problems
        if self.mode is not self._told_mode:
            is_warning = self.mode in (Mode.BYPASS, Mode.UNKNOWN)
            text = f"Mode {self.mode}: {MODE_TEXTS[self.mode]}{self._let_through}"
            self._parts.tell(MODE_REASON, text, is_warning)
            self._told_mode = self.mode

    def _end_everything(self) -> None:
        parts = self._parts
        self._gate.close()  # first, so that no yes is given that is not stored; the Lease is still ours
        if self.term is not None:
            parts.terms.end()
        # Whatever is known of the Lease, of the last write, which may be done although its answer never came, and of
        # what a worker wrote that died in this pod before: only our own endpoint is taken away.
        clear_at_end(parts.endpoint)
        if self._is_electing:
            parts.elector.stop()
        if self.term is not None:
            parts.waker.stop()
            parts.sweeper.stop()
        for worker in self.workers[1:]:
            worker.begin_stop()  # so that none waits for another one's end
        for one in (*parts.always, *self._followers):
            one.stop()
        log.info("stopped")
