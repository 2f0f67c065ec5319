"""Handle operations on tokens. Each change of one leaves a line in the audit trail, without digests; a use leaves none."""

from __future__ import annotations

from msgspec.structs import replace

from raftsched import limits
from raftsched.core.jobs.changes import invalid, refused
from raftsched.core.operations.access import CreateToken, NoteTokenUses, RevokeToken, RotateToken
from raftsched.core.operations.codec import RejectCode
from raftsched.core.records.api_token import DIGEST_BYTES, EVERY_TENANT, ApiToken
from raftsched.core.records.bounds import TIME_MS_MAX, actor_problem, name_problem, range_problem
from raftsched.core.records.ids import TimeMs
from raftsched.core.state.audit import audited
from raftsched.core.state.handlers import handles
from raftsched.core.state.results import Applied, Context, Counted, TokenSaved
from raftsched.core.state.view import View
from raftsched.core.state.writes import PutAudit, PutToken, RemoveToken


@handles(CreateToken)
def create_token(view: View, operation: CreateToken, context: Context) -> Applied:
    problem = _problem_of_new(operation)
    if problem:
        return invalid(problem)
    if view.api_token(operation.id) is not None:
        return refused(RejectCode.EXISTS, "there is a token of this id")
    if view.api_token_count() >= limits.TOKENS_MAX:
        return refused(RejectCode.LIMIT_REACHED, f"there are {limits.TOKENS_MAX} tokens, and no more may be")
    token = ApiToken(
        operation.id,
        operation.digest,
        operation.name,
        operation.role,
        operation.tenant,
        operation.queues,
        operation.expires_at_ms,
        created_at_ms=context.now_ms,
        created_by=operation.actor,
        revision=context.index,
    )
    detail = f"{token.name}: {token.role.label} of {token.tenant}"
    return Applied(TokenSaved(token), (PutToken(token), _audit(token, context, "create", operation.actor, detail)))


@handles(RotateToken)
def rotate_token(view: View, operation: RotateToken, context: Context) -> Applied:
    problem = (
        _digest_problem(operation.digest)
        or range_problem("former_until_ms", operation.former_until_ms, 0, TIME_MS_MAX)
        or actor_problem(operation.actor)
    )
    if problem:
        return invalid(problem)
    known = _found(view, operation.id)
    if known is None:
        return _unknown()
    if known.digest == operation.digest:
        return Applied(TokenSaved(known))  # a repetition
    token = replace(
        known,
        digest=operation.digest,
        former_digest=known.digest,
        former_until_ms=operation.former_until_ms,
        rotated_at_ms=context.now_ms,
        revision=context.index,
    )
    return Applied(TokenSaved(token), (PutToken(token), _audit(token, context, "rotate", operation.actor, token.name)))


@handles(NoteTokenUses)
def note_token_uses(view: View, operation: NoteTokenUses, context: Context) -> Applied:
    problem = range_problem("uses", len(operation.uses), 0, limits.TOKEN_USES_MAX)
    latest: dict[str, TimeMs] = {}
    for token_id, used_at_ms in operation.uses:
        problem = problem or name_problem("id", token_id) or range_problem("used_at_ms", used_at_ms, 0, TIME_MS_MAX)
        latest[token_id] = max(latest.get(token_id, TimeMs(0)), min(used_at_ms, context.now_ms))
    if problem:
        return invalid(problem)
    known = ((view.api_token(token_id), used_at_ms) for token_id, used_at_ms in latest.items())
    changed = [
        replace(token, used_at_ms=at_ms) for token, at_ms in known if token is not None and token.used_at_ms < at_ms
    ]
    return Applied(Counted(len(changed)), tuple(map(PutToken, changed)))


@handles(RevokeToken)
def revoke_token(view: View, operation: RevokeToken, context: Context) -> Applied:
    problem = actor_problem(operation.actor)
    if problem:
        return invalid(problem)
    token = _found(view, operation.id)
    if token is None:
        return _unknown()
    return Applied(
        TokenSaved(token), (RemoveToken(token.id), _audit(token, context, "revoke", operation.actor, token.name))
    )


def _found(view: View, token_id: str) -> ApiToken | None:
    return None if name_problem("id", token_id) else view.api_token(token_id)


def _unknown() -> Applied:
    return refused(RejectCode.NOT_FOUND, "there is no such token")


def _audit(token: ApiToken, context: Context, verb: str, actor: str, detail: str) -> PutAudit:
    tenant = "" if token.tenant == EVERY_TENANT else token.tenant
    return audited(context, f"token.{verb}", f"token:{token.id}", tenant=tenant, actor=actor, detail=detail)


def _problem_of_new(operation: CreateToken) -> str:
    problem = (
        name_problem("id", operation.id)
        or _digest_problem(operation.digest)
        or name_problem("name", operation.name)
        or actor_problem(operation.name)
        or name_problem("tenant", operation.tenant)
        or range_problem("queues", len(operation.queues), 0, limits.TOKEN_QUEUES_MAX)
        or range_problem("expires_at_ms", operation.expires_at_ms, 0, TIME_MS_MAX)
        or actor_problem(operation.actor)
    )
    for queue in operation.queues:
        problem = problem or name_problem("queues", queue)
    return problem


def _digest_problem(digest: bytes) -> str:
    return range_problem("digest bytes", len(digest), DIGEST_BYTES, DIGEST_BYTES)
