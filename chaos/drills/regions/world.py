"""Five regions, and the round trips between them: rounded figures of public clouds, in milliseconds."""

from __future__ import annotations

from itertools import permutations
from typing import Final

from chaos.drills.backends import Quality

REGIONS: Final = ("Frankfurt", "Virginia", "Oregon", "Tokyo", "Sydney")
ROUND_TRIPS_MS: Final = (
    # to Frankfurt, Virginia, Oregon, Tokyo, Sydney
    (1, 90, 150, 230, 280),
    (90, 1, 60, 150, 200),
    (150, 60, 1, 100, 140),
    (230, 150, 100, 1, 105),
    (280, 200, 140, 105, 1),
)
"""By region, in the order of `REGIONS`."""
JITTER: Final = 0.1
"""Part of a link's delay that a packet may take longer."""
LOST: Final = 0.001
"""Part of the packets that are lost between regions."""
NODES: Final = range(1, len(REGIONS) + 1)
USERS_AFTER: Final = 10
"""The users of region N are on the host of this number more."""
USERS: Final = range(NODES.start + USERS_AFTER, NODES.stop + USERS_AFTER)


def region_of(host: int) -> int:
    """Return the position among `REGIONS` of a host of nodes or of users."""
    return (host - USERS_AFTER if host in USERS else host) - NODES.start


def usual_links() -> dict[tuple[int, int], Quality]:
    """Return the links between all hosts, by (sender, receiver)."""
    return {
        (one, other): _between(region_of(one), region_of(other)) for one, other in permutations((*NODES, *USERS), 2)
    }


def _between(one: int, other: int) -> Quality:
    delay_ms = ROUND_TRIPS_MS[one][other] / 2
    return Quality(delay_ms=delay_ms, jitter_ms=JITTER * delay_ms, lost=LOST if one != other else 0.0)
