"""`raftsched node` with a planted bug: it answers reads from its own state, whoever leads.

python -m tests.drills.planted_node node --config FILE
"""

from __future__ import annotations

from raftsched.__main__ import run
from raftsched.consensus.replica import Replica


def _check_nothing(self: Replica) -> None:
    """Take any state for fresh."""


Replica.check_fresh = _check_nothing  # type: ignore[method-assign]

if __name__ == "__main__":
    run()
