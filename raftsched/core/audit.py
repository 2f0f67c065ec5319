"""Lines of the audit trail: who did what to what, kept in the state itself, in the log entry that did it."""

from __future__ import annotations

from raftsched.core.view import AuditEntry, Context, PutAudit


def audited(
    context: Context, action: str, subject: str, *, tenant: str = "", actor: str = "", detail: str = ""
) -> PutAudit:
    """Return the write of one line. `action` is `<noun>.<verb>`, `subject` is `<noun>:<id or name>`."""
    return PutAudit(AuditEntry(context.now_ms, actor, action, subject, tenant, detail, context.index))
