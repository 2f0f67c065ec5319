"""Define the operation that takes a worker out of service, and back. Rules of the codec: see `codec`."""

from __future__ import annotations

from raftsched.core.operations.base import Operation


class DrainWorker(Operation, frozen=True, tag=38):
    """Give a worker no further jobs, or give it jobs again. Its running jobs continue. A repeat succeeds.

    Result: `WorkerSaved`. Rejected: `not_found`.
    """

    name: str
    drained: bool
    reason: str = ""
    actor: str = ""
