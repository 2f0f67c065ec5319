"""What a client's behaviour over the network can be tuned by, each with its unit and reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from raftsched import limits

_LATER: Final = 1.1
"""What waited behind a silent node leaves a little after that node was suspected, so that it goes to another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Timeouts, retries and batching; the defaults suit a cluster in one region."""

    request_timeout_seconds: float = 10.0
    """One request, from connecting to the last byte of the reply."""
    connect_timeout_seconds: float = 2.0
    """A node that doesn't take the connection by then counts as down, and the next one is asked."""
    retry_seconds: float = 30.0
    """How long one call is retried in all: longer than a change of leader takes, by far."""
    backoff_base_seconds: float = 0.05
    """Pause before the first retry; it doubles with each."""
    backoff_cap_seconds: float = 0.5
    """An election takes about a second; a longer pause would often add as much again."""
    hedge_seconds: float = 1.0
    """A node that has said nothing for so long is suspected, and another one is asked as well, where the answer to
    both is the same: reads, and changes that carry a key. Far longer than a commit takes, and shorter than an election.
    """
    avoid_seconds: float = 5.0
    """A node that could not be reached, or was silent, is probed after so long, beside the work, then ever less often;
    until it answers it gets no work while another node is left."""
    follow_leader: bool = True
    """False: ask only the addresses that were given, as behind a load balancer. True: also those that the cluster names,
    once they have answered from here."""
    consistency: Literal["linearizable", "quorum", "stale"] = "linearizable"
    """How fresh what is read must be. `quorum`: as `linearizable`, but a majority of nodes is asked for each read, so that
    no clock of theirs is trusted. `stale`: as the node that answers has it."""
    batch_jobs_max: int = 500
    """Jobs in one request of gathered submits."""
    batch_bytes_max: int = limits.ENTRY_BYTES_MAX
    """A request closes when it passes this, so that one of large payloads stays far below the largest body."""
    requests_in_flight_max: int = 4
    """Requests of gathered submits at the same time."""
    early_batch_jobs: int = 100
    """While a request is in flight, the next one leaves early only with so many: large requests are cheap ones."""
    late_requests_max: int = 16
    """Requests that got no answer for more than `hedge_seconds` hold up none of the later ones; so many at most."""
    waiting_jobs_max: int = 10_000
    """Submits that wait for a request; beyond it `submit` itself waits, so that memory stays bounded."""

    @property
    def late_seconds(self) -> float:
        """A request that takes longer holds up none of the later ones."""
        return self.hedge_seconds * _LATER
