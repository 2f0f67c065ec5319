"""Handle RecordBackup: record the latest backup of the cluster, and who has it."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from raftsched.core.jobs.changes import invalid
from raftsched.core.operations.backup import RecordBackup
from raftsched.core.records.backup import LastBackup
from raftsched.core.records.bounds import TIME_MS_MAX, actor_problem, name_problem, range_problem
from raftsched.core.state.audit import audited
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, Counted
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutBackup

_DIGEST_CHARS: Final = 64
_BYTES_MAX: Final = 1 << 60


@handles(RecordBackup)
def record_backup(view: View, operation: RecordBackup, context: Context) -> Applied:
    problem = _problem(operation.backup, context) or actor_problem(operation.actor)
    if problem:
        return invalid(problem)
    # A clock that is ahead must not hide that later backups are missing.
    new = replace(operation.backup, taken_at_ms=min(operation.backup.taken_at_ms, context.now_ms))
    known = view.last_backup
    if known is not None and (known.taken_at_ms, known.applied_index) >= (new.taken_at_ms, new.applied_index):
        return Applied(Counted(0))
    detail = f"index {new.applied_index}, {new.byte_count} bytes, sha256 {new.sha256}"
    audit = audited(context, "cluster.backup", f"node:{new.node}", actor=operation.actor, detail=detail)
    return Applied(Counted(1), (PutBackup(new), audit))


def _problem(new: LastBackup, context: Context) -> str:
    return (
        range_problem("taken_at_ms", new.taken_at_ms, 1, TIME_MS_MAX)
        or range_problem("applied_index", new.applied_index, 1, context.index - 1)
        or name_problem("node", new.node)
        or range_problem("byte_count", new.byte_count, 1, _BYTES_MAX)
        or range_problem("sha256 characters", len(new.sha256), _DIGEST_CHARS, _DIGEST_CHARS)
    )
