"""Watch every running lease, and propose the end of those that ran out.

Theory of operation. A lease has up to four deadlines on the leader's monotonic clock: its worker's silence (one term
after the grant or the latest heartbeat), its handler's silence (if the job asks for it: `heartbeat_timeout_ms` after
the grant or the latest sign of life, a heartbeat that says so or a change of the record such as progress), its job's
timeout (counted from the grant), and, once cancelled, the end of the grace. One timer in a wheel represents the
earliest. A heartbeat only notes the time; a timer that fires too early is set again, so a renewal costs no work in the
wheel. If worker and handler are both silent, the worker is the one that is lost.

A lease ends only by a committed operation. Once its expiry is proposed, its heartbeats are refused. A lease whose
worker has been refused never becomes valid again, even if the log keeps it: the expiry is proposed again. So a worker
that was answered "valid" keeps its job for a full term, and one that was answered "not valid" can stop at once (case
W17).

A new leader does not know the heartbeats of its predecessor, so it gives every lease one full term from its own start,
but no more than `LEASE_TERMS_MAX` terms from when the lease was certainly renewed last (`evidence`). So a lease that
nobody renews ends after that time, however many leaders there are meanwhile. In return, a heartbeat is answered as
valid only if the log proves a renewal within `proven_span_ms` before it: then no later leader ends the lease within the
term that the answer promises. Otherwise the worker's mark is committed first, and the answer waits for it. The same
holds for a grant that took long to get into the log.

An outage is not counted as silence: terms count from its end. A lease whose last certain sign of life is from before it
ends without counting against its job: its worker may have stopped by its own clock. The same holds for the silence of
handlers, which report through their workers: theirs counts from the worker's first heartbeat on; and for cancelled
jobs, whose workers may not have been notified yet. Timeouts continue from the times in the record. A lease whose run
awaits a callback has no worker any more: only its timeout counts, and a cancel ends it at once. Left out: whether this
node may still answer heartbeats at all (fresh contact with a quorum) is its caller's check.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from raftsched import limits
from raftsched.core.explain import LeaseLiveness
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import ExpiredLease, ExpireLeases
from raftsched.core.records.ids import FencingToken, JobId
from raftsched.core.records.job import AttemptEnd, Job, SilentLease, Status
from raftsched.core.records.retry import JITTER_MAX
from raftsched.core.state.results import Expired, Result
from raftsched.leader.leases.evidence import Evidence
from raftsched.leader.now import NEVER_MS, Now
from raftsched.leader.settings import LeaderSettings
from raftsched.leader.timers.wheel import Timer, Wheel
from raftsched.ports import Randomness

_NOTHING_PROVEN_MS: Final = -1
"""For a lease that was taken over, until its first heartbeat asks for proof (`Duties.unproven`)."""
RETRY_MS: Final = 100
"""An expiry that the log refused is proposed again after this: the clocks disagreed by some milliseconds."""
LEASE_TERMS_MAX: Final = 3
"""A lease that nobody renews ends after this number of terms, however many leaders there are. Less than two is not
enough: a living worker's last renewal can be one term older in the log than it is."""


class HeartbeatAnswer(NamedTuple):
    """The answer to a worker about one of its leases."""

    valid: bool
    """False: the lease is over or about to be; the worker must stop, and its outcome won't count."""
    cancel_requested: bool


_VALID: Final = HeartbeatAnswer(valid=True, cancel_requested=False)
_CANCEL: Final = HeartbeatAnswer(valid=True, cancel_requested=True)
_OVER: Final = HeartbeatAnswer(valid=False, cancel_requested=False)


class _Lease:
    """A running lease; all times are monotonic milliseconds."""

    __slots__ = (
        "awaits_callback",
        "cancel_by_ms",
        "expiring",
        "handler_heartbeat_at_ms",
        "handler_ms",
        "handler_silent_at_ms",
        "heartbeat_at_ms",
        "is_heard",
        "is_of_outage",
        "is_taken_over",
        "job_id",
        "proven_until_ms",
        "refused",
        "silent_at_ms",
        "timeout_at_ms",
        "timer",  # None: it fired, and the lease is looked at or its expiry is on its way
        "token",
        "ttl_ms",
        "worker",
    )

    def __init__(self, job_id: JobId, token: FencingToken, worker: str, ttl_ms: int) -> None:
        self.job_id: Final = job_id
        self.token: Final = token
        self.worker: Final = worker
        self.ttl_ms: Final = ttl_ms
        self.silent_at_ms = NEVER_MS
        self.heartbeat_at_ms = 0
        """Time of its last renewal, the grant included; for a lease taken over, the last one that is certain."""
        self.proven_until_ms = 0
        """Until then a heartbeat may be answered as valid without a newer proof in the log."""
        self.is_heard = False
        """This leader received a heartbeat for it."""
        self.is_taken_over = False
        """An earlier leader granted it."""
        self.is_of_outage = False
        """As far as this leader knows, its last sign of life is from before an outage."""
        self.handler_ms = 0
        """Longest silence of the handler; 0 = its job sets none."""
        self.handler_silent_at_ms = NEVER_MS
        """`NEVER_MS` also while no sign of the handler is possible: its worker is not back yet."""
        self.handler_heartbeat_at_ms = 0
        """Time of its handler's last sign of life, as `heartbeat_at_ms`."""
        self.timeout_at_ms = NEVER_MS
        self.cancel_by_ms = NEVER_MS
        self.awaits_callback = False
        """Nobody renews it: its run's target reports the outcome, or its timeout comes."""
        self.expiring = False
        """Its expiry is proposed."""
        self.refused = False
        """Its worker was answered that it is over."""
        self.timer: Timer[_Lease] | None = None

    def deadline_ms(self) -> int:
        return min(self.silent_at_ms, self.handler_silent_at_ms, self.timeout_at_ms, self.cancel_by_ms)

    def await_callback(self) -> None:
        """Expect no more heartbeats, of worker and handler."""
        self.awaits_callback = True
        self.handler_ms = 0
        self.silent_at_ms = self.handler_silent_at_ms = NEVER_MS

    def note_handler(self, now_ms: int) -> None:
        """Note a sign of life of the handler."""
        if self.handler_ms:
            self.handler_heartbeat_at_ms = now_ms
            self.handler_silent_at_ms = now_ms + self.handler_ms

    def cause(self, now_ms: int) -> AttemptEnd:
        if self.cancel_by_ms < NEVER_MS:
            return AttemptEnd.CANCELLED
        if self.timeout_at_ms <= now_ms:
            return AttemptEnd.TIMEOUT
        if self.silent_at_ms > now_ms:
            return AttemptEnd.TIMEOUT
        return AttemptEnd.OUTAGE if self.is_of_outage and not self.is_heard else AttemptEnd.WORKER_LOST


def proven_span_ms(ttl_ms: int) -> int:
    """Return how long after a proven renewal heartbeats may be answered as valid.

    Their term then ends one whole term before the bound. That term is left for steps of cluster time between leaders: a
    longer step looks like an outage, from whose end terms are counted again.
    """
    return (LEASE_TERMS_MAX - 2) * ttl_ms


def _proven_until_ms(ttl_ms: int, proven_at_ms: int, now: Now) -> int:
    return now.monotonic_before(proven_at_ms) + proven_span_ms(ttl_ms)


class LeaseKeeper:
    """Keep all running leases of the cluster. `len` counts them."""

    name: Final = "lease_keeper"

    def __init__(self, settings: LeaderSettings, randomness: Randomness) -> None:
        self._settings: Final = settings
        self._randomness: Final = randomness
        self._leases: Final[dict[JobId, _Lease]] = {}
        self._wheel: Final[Wheel[_Lease]] = Wheel()
        self._rung: Final[deque[_Lease]] = deque()
        """Leases whose timer fired, to be checked; more than one operation holds, after a whole rack was lost."""

    def __len__(self) -> int:
        return len(self._leases)

    def running_counts(self) -> Counter[str]:
        """Return the number of leases of each worker."""
        return Counter(lease.worker for lease in self._leases.values())

    # -- what the log says --------------------------------------------------------------------------------------------

    def start(self, leased: Iterable[Job], evidence: Evidence, now: Now) -> None:
        """Take over the leases of an earlier leader, each for a full term from now if it can have been renewed
        lately.
        """
        for job in leased:
            lease = self._keep(job, now)
            liveness = evidence.of(job)
            lease.heartbeat_at_ms = now.monotonic_before(liveness.heartbeat_at_ms)
            lease.silent_at_ms = self._granted_until_ms(lease, liveness.terms_from_ms, now)
            lease.is_taken_over = True
            lease.proven_until_ms = _NOTHING_PROVEN_MS
            lease.is_of_outage = liveness.heartbeat_at_ms < evidence.outage_ended_at_ms
            lease.handler_heartbeat_at_ms = now.monotonic_before(liveness.handler_heartbeat_at_ms)
            lease.handler_silent_at_ms = NEVER_MS
            if lease.awaits_callback:
                lease.await_callback()
            if job.status is Status.CANCELLING:
                # A term, since the worker may not have been notified yet.
                grace_ends_ms = now.monotonic_at(job.cancel_requested_at_ms + self._settings.cancel_grace_ms)
                told_by_ms = self._granted_until_ms(
                    lease, max(job.cancel_requested_at_ms, evidence.outage_ended_at_ms), now
                )
                lease.cancel_by_ms = max(grace_ends_ms, told_by_ms)
            self._set_timer(lease)

    def outage_noted(self) -> None:
        """Adapt to the log's note that this leader ended an outage, which it may not have known when it took the leases
        over.

        Earlier heartbeats were still in the outage: no worker was answered that its lease is valid.
        """
        for lease in self._leases.values():
            if lease.is_taken_over:
                lease.is_of_outage, lease.is_heard = True, False

    def _granted_until_ms(self, lease: _Lease, terms_from_ms: int, now: Now) -> int:
        """Return a term from now, but at most `LEASE_TERMS_MAX` from a moment in cluster time."""
        ends_at_ms = terms_from_ms + LEASE_TERMS_MAX * lease.ttl_ms
        return now.monotonic_ms + max(0, min(lease.ttl_ms, ends_at_ms - now.cluster_ms))

    def leased(self, job: Job, now: Now) -> None:
        """Keep a lease that was granted, whose handler gave a sign, or whose cancellation was requested (then with the
        grace).
        """
        lease = self._leases.get(job.id)
        if lease is None or job.lease is None or lease.token != job.lease.token:
            if lease is not None:
                self.ended(job.id)
            self._set_timer(self._keep(job, now))
            return
        self._note_handler(lease, now.monotonic_ms, is_alive=True)
        if job.lease.awaits_callback:
            lease.await_callback()
        if job.status is Status.CANCELLING and lease.cancel_by_ms == NEVER_MS:
            lease.cancel_by_ms = now.monotonic_ms + self._settings.cancel_grace_ms
            if lease.timer is not None:
                self._set_timer(lease)

    def ended(self, job_id: JobId) -> None:
        """Drop a lease that the log ended. Unknown ids are ignored."""
        lease = self._leases.pop(job_id, None)
        if lease is not None and lease.timer is not None:
            self._wheel.cancel(lease.timer)

    # -- what workers say ---------------------------------------------------------------------------------------------

    def heartbeat(
        self, worker: str, runs: Sequence[tuple[JobId, int, FencingToken]], now: Now, *, alive: Container[JobId] = ()
    ) -> list[HeartbeatAnswer]:
        """Renew the leases named by (job, run number, token) for one term from now; return an answer for each, in
        order.

        `alive` are the jobs whose handlers gave a sign of life; for the others only the worker's silence ends.
        """
        leases = self._leases
        now_ms = now.monotonic_ms
        answers = []
        for job_id, _, token in runs:
            lease = leases.get(job_id)
            if lease is None or lease.token != token or lease.worker != worker:
                answers.append(_OVER)
            elif lease.expiring:
                lease.refused = True
                answers.append(_OVER)
            else:
                if not lease.awaits_callback:  # its worker's last heartbeat may be late
                    lease.silent_at_ms = now_ms + lease.ttl_ms
                lease.heartbeat_at_ms = now_ms
                lease.is_heard = True
                if lease.handler_ms:  # here already: most jobs don't ask
                    self._note_handler(lease, now_ms, is_alive=job_id in alive)
                answers.append(_VALID if lease.cancel_by_ms == NEVER_MS else _CANCEL)
        return answers

    def unproven(self, worker: str, runs: Sequence[tuple[JobId, int, FencingToken]], now: Now) -> list[JobId]:
        """Return the jobs whose heartbeats must not be answered as valid before the log proves a newer renewal.

        Those of another worker's leases are answered as invalid, so they need no proof.
        """
        found = []
        for job_id, _, token in runs:
            lease = self._leases.get(job_id)
            if (
                lease is not None
                and lease.token == token
                and lease.worker == worker
                and not lease.expiring
                and now.monotonic_ms > lease.proven_until_ms
            ):
                found.append(job_id)
        return found

    def proven(self, job_id: JobId, proven_at_ms: int, now: Now) -> None:
        """Note that the log proves a renewal of the lease no earlier than `proven_at_ms`, in cluster time."""
        lease = self._leases.get(job_id)
        if lease is not None:
            lease.proven_until_ms = _proven_until_ms(lease.ttl_ms, proven_at_ms, now)

    def liveness(self, job_id: JobId, now: Now) -> LeaseLiveness | None:
        """Return the signs of life of a job's lease, in cluster time; None if it has none that runs."""
        lease = self._leases.get(job_id)
        if lease is None:
            return None
        ahead_ms = now.cluster_ms - now.monotonic_ms
        over_at_ms = min(lease.timeout_at_ms, lease.cancel_by_ms)
        return LeaseLiveness(
            heartbeat_at_ms=lease.heartbeat_at_ms + ahead_ms if lease.is_heard else 0,
            ends_at_ms=min(lease.silent_at_ms, lease.handler_silent_at_ms) + ahead_ms,
            over_at_ms=over_at_ms + ahead_ms if over_at_ms < NEVER_MS else 0,
        )

    def silent_leases(self, now: Now) -> Mapping[str, tuple[SilentLease, ...]]:
        """Return the leases that were not renewed for a while, or whose handlers are silent as long, by worker.

        Costs a look at every lease: some milliseconds for ten thousand.
        """
        found: defaultdict[str, list[SilentLease]] = defaultdict(list)
        now_ms, silence_ms = now.monotonic_ms, self._settings.lease_silence_ms
        for lease in self._leases.values():
            if lease.awaits_callback:
                continue
            is_silent = now_ms - lease.heartbeat_at_ms > silence_ms
            if is_silent or (lease.handler_ms and now_ms - lease.handler_heartbeat_at_ms > lease.handler_ms // 2):
                silent = found[lease.worker]
                if len(silent) < limits.SILENT_LEASES_MAX:
                    heartbeat_at_ms = now.cluster_before(lease.heartbeat_at_ms)
                    silent.append(
                        SilentLease(lease.token, heartbeat_at_ms, now.cluster_before(lease.handler_heartbeat_at_ms))
                    )
        return {worker: tuple(silent) for worker, silent in found.items()}

    def _note_handler(self, lease: _Lease, now_ms: int, *, is_alive: bool) -> None:
        """Note a sign of the handler; the first heartbeat of its worker to a new leader gives it time, too."""
        is_first = bool(lease.handler_ms) and lease.handler_silent_at_ms == NEVER_MS
        if is_alive:
            lease.note_handler(now_ms)
        elif is_first:
            longest_ms = LEASE_TERMS_MAX * max(lease.handler_ms, lease.ttl_ms)
            lease.handler_silent_at_ms = min(now_ms + lease.handler_ms, lease.handler_heartbeat_at_ms + longest_ms)
        if is_first and lease.timer is not None:
            self._set_timer(lease)  # this deadline may come before the one of the timer

    # -- what time says -----------------------------------------------------------------------------------------------

    def step(self, now: Now) -> Sequence[Operation]:
        """Return the expiry of the leases that ran out, at most `limits.EXPIRE_LEASES_MAX`; () if none did."""
        now_ms = now.monotonic_ms
        for lease in self._wheel.advance(now_ms):
            lease.timer = None
            self._rung.append(lease)
        over: list[ExpiredLease] = []
        while self._rung and len(over) < limits.EXPIRE_LEASES_MAX:
            lease = self._rung.popleft()
            if self._leases.get(lease.job_id) is not lease:
                continue
            if lease.deadline_ms() > now_ms:
                self._set_timer(lease)
            else:
                lease.expiring = True
                jitter = self._randomness.randint(-JITTER_MAX, JITTER_MAX)
                over.append(ExpiredLease(lease.job_id, lease.token, lease.cause(now_ms), jitter))
        return (ExpireLeases(tuple(over)),) if over else ()

    def on_result(self, operation: Operation, result: Result | None, now: Now) -> None:
        """Note the result of the expiry, None if unknown; leases that still run are checked again."""
        assert isinstance(operation, ExpireLeases)
        for suspect in operation.leases:
            lease = self._leases.get(suspect.job_id)
            if lease is None or lease.token != suspect.token:
                continue
            lease.expiring = lease.refused or not isinstance(result, Expired)
            lease.timer = self._wheel.add(now.monotonic_ms + RETRY_MS, lease)

    def next_call_ms(self, now: Now) -> int:  # noqa: ARG002
        if self._rung:
            return 0
        next_ms = self._wheel.next_call()
        return NEVER_MS if next_ms is None else next_ms

    def _keep(self, job: Job, now: Now) -> _Lease:
        assert job.lease is not None
        lease = _Lease(job.id, job.lease.token, job.lease.worker, job.lease.ttl_ms)
        lease.heartbeat_at_ms = now.monotonic_ms
        lease.silent_at_ms = now.monotonic_ms + lease.ttl_ms
        lease.proven_until_ms = _proven_until_ms(lease.ttl_ms, job.lease.granted_at_ms, now)
        if job.spec.options is not None:
            lease.handler_ms = job.spec.options.heartbeat_timeout_ms
            lease.note_handler(now.monotonic_ms)
        if job.spec.timeout_ms:
            lease.timeout_at_ms = now.monotonic_at(job.lease.granted_at_ms + job.spec.timeout_ms)
        if job.lease.awaits_callback:
            lease.await_callback()
        self._leases[job.id] = lease
        return lease

    def _set_timer(self, lease: _Lease) -> None:
        if lease.timer is not None:
            self._wheel.cancel(lease.timer)
        lease.timer = self._wheel.add(lease.deadline_ms(), lease)
