"""Store dependencies: for each child the list of its parents, and for each parent an edge to each child.

Theory of operation. Both are written and removed with the child. The verdict is stored with the edge from the parent. If
a parent is removed before its child, the child's edges stay, since the child's list leads to them. So removing a parent
with thousands of dependants costs nothing, and every edge is removed exactly once.
"""

from __future__ import annotations

import msgspec

from raftsched.core.records.ids import JobId
from raftsched.core.records.job import Condition, Dependency, Verdict
from raftsched.core.state.entries import Dependant
from raftsched.core.state.writes import PutDependant, PutDependencies
from raftsched.errors import InvariantBroken
from raftsched.storage.store.port import Rows, Table
from raftsched.storage.tables import keys

_decode = msgspec.msgpack.Decoder(tuple[Dependency, ...]).decode
_encode = msgspec.msgpack.Encoder().encode


def dependencies(store: Rows, child: JobId) -> tuple[Dependency, ...]:
    """Return the dependencies of `child`, in the order of its submission."""
    stored = store.get(Table.DEPENDENCIES, child)
    return () if stored is None else _decode(stored)


def dependants(store: Rows, parent: JobId, *, after: JobId | None, limit: int) -> list[Dependant]:
    """Return up to `limit` children of `parent`, by id, behind `after`."""
    start = parent if after is None else keys.after(keys.pair_key(parent, after))
    rows = store.scan(Table.DEPENDANTS, start, keys.after_id(parent), limit=limit)
    return [_read(keys.job_id_at_end(key), value) for key, value in rows]


def put(store: Rows, write: PutDependencies) -> None:
    """Store a new job's edges.

    Raises `InvariantBroken` if it has edges already, or a parent twice.
    """
    child, wanted = write
    if not wanted:
        return
    if len({each.parent for each in wanted}) < len(wanted):
        raise InvariantBroken(f"job {child.hex()} depends on a job twice")
    if store.get(Table.DEPENDENCIES, child) is not None:
        raise InvariantBroken(f"job {child.hex()} has its dependencies already")
    store.put(Table.DEPENDENCIES, child, _encode(wanted))
    for each in wanted:
        store.put(Table.DEPENDANTS, keys.pair_key(each.parent, child), _value(each.condition, Verdict.PENDING))


def judge(store: Rows, write: PutDependant) -> None:
    """Store an edge's verdict. Raises `InvariantBroken` if there is no such edge."""
    parent, (child, condition, verdict) = write
    key = keys.pair_key(parent, child)
    if store.get(Table.DEPENDANTS, key) is None:
        raise InvariantBroken(f"job {child.hex()} does not depend on {parent.hex()}")
    store.put(Table.DEPENDANTS, key, _value(condition, verdict))


def remove(store: Rows, child: JobId) -> None:
    """Remove the child's edges."""
    wanted = dependencies(store, child)
    store.delete(Table.DEPENDENCIES, child)
    for each in wanted:
        if not store.delete(Table.DEPENDANTS, keys.pair_key(each.parent, child)):
            raise InvariantBroken(f"job {each.parent.hex()} does not know that {child.hex()} depends on it")


def read_dependencies(key: bytes, value: bytes) -> tuple[JobId, tuple[Dependency, ...]]:
    """Return the child and its dependencies from a row of `DEPENDENCIES`."""
    return JobId(key), _decode(value)


def read_dependant(key: bytes, value: bytes) -> tuple[JobId, Dependant]:
    """Return the parent and the dependant, with its verdict, from a row of `DEPENDANTS`."""
    parent, child = keys.read_pair_key(key)
    return JobId(parent), _read(child, value)


def _value(condition: Condition, verdict: Verdict) -> bytes:
    return bytes([condition, verdict])


def _read(child: JobId, value: bytes) -> Dependant:
    return Dependant(child, Condition(value[0]), Verdict(value[1]))
