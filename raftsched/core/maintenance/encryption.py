"""Handle AdoptKey: record the key with which the leader encrypts its files."""

from __future__ import annotations

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.changes import invalid
from raftsched.core.operations.encryption import AdoptKey
from raftsched.core.records.bounds import name_problem, range_problem
from raftsched.core.records.encryption import SECRET_BYTES, ClusterKey
from raftsched.core.state.audit import audited
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, Counted
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutClusterKey

ACTOR = "encryption"


@handles(AdoptKey)
def adopt_key(view: View, operation: AdoptKey, context: Context) -> Applied:
    problem = (
        name_problem("key_id", operation.key_id)
        or range_problem("check characters", len(operation.check), 1, limits.NAME_CHARS_MAX)
        or range_problem("secret bytes", len(operation.secret), SECRET_BYTES, SECRET_BYTES)
    )
    if problem:
        return invalid(problem)
    known = view.cluster_key
    new = ClusterKey(operation.key_id, operation.check, operation.secret)
    if known is not None:
        new = replace(new, secret=known.secret)
    if new == known:
        return Applied(Counted(0))
    detail = f"key: {known.key_id if known is not None else 'none'} -> {new.key_id}"
    audit = audited(context, "cluster.encrypt", f"key:{new.key_id}", actor=ACTOR, detail=detail)
    return Applied(Counted(1), (PutClusterKey(new), audit))
