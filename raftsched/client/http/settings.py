"""Define the network settings of a client, each with its unit and reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from raftsched import limits

_LATER: Final = 1.1
"""A request is late a little after its silent node was suspected, so that the waiting items go to another node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Timeouts, retries and batching; the defaults suit a cluster in one region."""

    request_timeout_seconds: float = 10.0
    """Limit for one request, from connecting to the last byte of the reply."""
    connect_timeout_seconds: float = 2.0
    """A node that has not accepted the connection by then counts as down, and the next one is asked."""
    retry_seconds: float = 30.0
    """Total time in which one call is retried; far longer than a change of leader takes."""
    backoff_base_seconds: float = 0.05
    """Pause before the first retry; it doubles with each."""
    backoff_cap_seconds: float = 0.5
    """Longest pause. An election takes about a second; a longer pause would often double that."""
    hedge_seconds: float = 1.0
    """Wait for one node before it is suspected. Another node is then asked as well, if both would give the same answer:
    for reads, and for changes that carry a key. It is far longer than a commit takes, and shorter than an election."""
    avoid_seconds: float = 5.0
    """Time until a node that could not be reached or did not answer is probed, in the background and at growing
    intervals. Until it answers, it gets no work while another node is left."""
    follow_leader: bool = True
    """False: ask only the given addresses, for example behind a load balancer. True: also ask addresses named by the
    cluster, once they have answered from here."""
    consistency: Literal["linearizable", "quorum", "stale"] = "linearizable"
    """Freshness of reads. `quorum`: as `linearizable`, but a majority of nodes is asked for each read, so that it
    depends on no clock. `stale`: the state of the answering node."""
    batch_jobs_max: int = 500
    """Maximum number of jobs in one batch of submits."""
    batch_bytes_max: int = limits.ENTRY_BYTES_MAX
    """Size at which a batch closes, so that large payloads stay far below the largest body."""
    requests_in_flight_max: int = 4
    """Maximum number of batches in flight."""
    early_batch_jobs: int = 100
    """While a batch is in flight, the next one is sent early only with this many jobs: large batches are cheap."""
    late_requests_max: int = 16
    """Maximum number of batches without an answer for more than `hedge_seconds`. They do not delay later ones."""
    waiting_jobs_max: int = 10_000
    """Maximum number of submits that wait to be sent; then `submit` itself waits, so that memory stays bounded."""

    @property
    def late_seconds(self) -> float:
        """Return the time after which a request delays no later ones."""
        return self.hedge_seconds * _LATER
