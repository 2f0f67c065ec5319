"""Find this machine's node among those of a config file by its host name, so that one file serves all machines.

A node whose disk is lost joins under a new id. Ids that follow from a place, as the pods of a StatefulSet have, would be
the old ones again. So the file says which id a place has at present, and this finds the place.

`raftsched healthcheck` uses it as well: only the standard library is imported.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence


def nodes_here(addresses: Iterable[tuple[str, str]], hostname: str = "") -> Sequence[str]:
    """Return the ids, out of pairs (id, HOST:PORT), whose host is this machine's; `hostname` replaces the system's.

    A short name and one with a domain are the same host if the short one is the first part of the other.
    """
    own = hostname or socket.gethostname()
    return [node_id for node_id, address in addresses if _is_same_host(address.rpartition(":")[0], own)]


def _is_same_host(one: str, other: str) -> bool:
    short, long = sorted((one.lower(), other.lower()), key=len)
    return bool(short) and (long == short or long.startswith(short + "."))
