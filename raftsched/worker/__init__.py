"""Run handlers for jobs that it leases over HTTP; see `raftsched.worker.worker`."""

from raftsched.worker.handlers.context import Cancelled, Context
from raftsched.worker.handlers.verdicts import GiveUp, Retry, Snooze, Verdict
from raftsched.worker.service import HungHandlers
from raftsched.worker.settings import WorkerSettings
from raftsched.worker.worker import Worker

__all__ = ["Cancelled", "Context", "GiveUp", "HungHandlers", "Retry", "Snooze", "Verdict", "Worker", "WorkerSettings"]
