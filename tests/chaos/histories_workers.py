"""The workers of `histories`: each lease in the hands of one that keeps time, stalls, fails, or is told to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chaos.checkers.history.events import Downstream, Effect, Granted, Reply
from tests.chaos.histories_cluster import TTL_US

if TYPE_CHECKING:
    from tests.chaos.histories import Run

TERM_US = TTL_US * 98 // 100
"""What a worker trusts: a term less the error of its clock."""


class Attempt:
    """One lease in the hands of a worker that keeps time."""

    def __init__(self, run: Run, worker: str, grant: Granted, asked_at: int, node: str) -> None:
        self.run, self.worker, self.grant, self.node = run, worker, grant, node
        self.deadline = asked_at + TERM_US
        self.is_working = False
        self.count = 0
        random = run.random
        self.stalls = not node and not run.is_healed and run.chance(0.12)
        long = TTL_US * 5 // 2 if run.chance(0.1) else 0
        self.length = random.randint(1_000, 200_000) + long
        outcomes = ("completed", "failed", "snoozed")
        self.outcome = "completed" if node else random.choices(outcomes, (70, 20, 10))[0]
        self.retryable = not (self.outcome == "failed" and run.chance(0.2))

    def begin(self) -> None:
        run = self.run
        if run.now >= self.deadline:
            return
        self.note("begin")
        self.is_working = True
        self.touch()
        self.watch()
        if self.stalls:
            run.after(TTL_US * 3 // 2, self.wake_up)
            return
        run.after(TTL_US // 3, self.beat)
        run.after(self.length, self.end)

    def note(self, phase: Any) -> None:
        grant = self.grant
        self.run.emit(
            Effect(
                t=self.run.now,
                phase=phase,
                job=grant.job,
                run=grant.run,
                attempt=grant.attempt,
                token=grant.token,
                worker=self.worker,
            )
        )

    def touch(self) -> None:
        """Write to something that checks fencing tokens."""
        received = self.run.received
        accepted = self.grant.token >= received.get(self.grant.job, 0)
        self.run.emit(Downstream(t=self.run.now, resource=self.grant.job, token=self.grant.token, accepted=accepted))
        if accepted:
            received[self.grant.job] = self.grant.token

    def stop(self) -> None:
        if self.is_working:
            self.is_working = False
            self.note("end")

    def watch(self) -> None:
        if self.is_working and self.run.now >= self.deadline:
            self.stop()
        elif self.is_working:
            self.run.after(self.deadline - self.run.now, self.watch)

    def wake_up(self) -> None:
        """A worker that stalled writes, and reports, much too late."""
        self.touch()
        self.report()

    def end(self) -> None:
        if self.is_working:
            self.stop()
            self.report()

    def beat(self) -> None:
        if not self.is_working:
            return

        def then(reply: Reply) -> None:
            if reply.type == "ok" and not reply.valid:
                self.stop()
            elif reply.type == "ok" and self.run.now < self.deadline:
                self.deadline = max(self.deadline, call.t + TERM_US)
                if reply.cancel_requested and self.is_working and self.run.chance(0.5):
                    self.end()
            self.run.after(TTL_US // 3, self.beat)

        call = self.run.ask(
            f"{self.worker}.{self.grant.token}.b{self.next()}",
            "heartbeat",
            then,
            job=self.grant.job,
            run=self.grant.run,
            token=self.grant.token,
            worker=self.worker,
            node=self.node,
        )

    def report(self) -> None:
        def then(reply: Reply) -> None:
            if reply.type == "ok" and self.node:
                self.run.served.add(self.node)
            unsure = reply.type == "info" or reply.error == "not_leader"
            if (unsure or (reply.type == "ok" and self.run.chance(0.05))) and self.count < 8:
                self.run.after(60_000, self.report)

        self.run.ask(
            f"{self.worker}.{self.grant.token}.r{self.next()}",
            "outcome",
            then,
            job=self.grant.job,
            run=self.grant.run,
            token=self.grant.token,
            worker=self.worker,
            outcome=self.outcome,
            completion_id=f"done-{self.grant.token}",
            retryable=self.retryable,
            node=self.node,
        )

    def next(self) -> int:
        self.count += 1
        return self.count
