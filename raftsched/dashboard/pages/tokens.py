"""List the tokens of the API, make new ones, and rotate and revoke them. The text of a token is shown once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, cast, get_args

from raftsched.client.records import TokenInfo
from raftsched.dashboard import fields
from raftsched.dashboard.page import Answer, Page, Redirect, Rendered
from raftsched.dashboard.problems import not_found
from raftsched.dashboard.rendering import url
from raftsched.dashboard.view import View
from raftsched.errors import Invalid
from raftsched.wire.tokens import RoleName

ROLES: Final[Sequence[tuple[str, str]]] = (
    ("viewer", "reads"),
    ("submitter", "also submits and changes single jobs, schedules and workflows"),
    ("worker", "only runs jobs, and reads results"),
    ("operator", "as a submitter; also changes queues and many jobs at once, and reads the audit trail"),
    ("admin", "everything, also tokens; of all tenants also the cluster"),
)
"""The roles, and what each may do."""
assert [name for name, _ in ROLES] == [*get_args(RoleName)], "the roles of the API, in its order"
OVERLAPS: Final = ((0, "at once"), (3_600, "in 1 hour"), (86_400, "in 1 day"), (7 * 86_400, "in 7 days"))
"""Seconds for which the former text of a rotated token is accepted, and when it ends, in words."""
_PAGE_TOKENS: Final = 100
_EXPIRES_SOON: Final = timedelta(days=14)
_DAY_SECONDS: Final = 86_400
_HOME: Final = url("/tokens")


async def show(view: View) -> Answer:
    """Return a page of the tokens, and the form for a new one."""
    query = {"limit": _PAGE_TOKENS, "cursor": view.query.get("cursor")}
    tokens, cursor = await view.client.page(TokenInfo, "/tokens", "tokens", query)
    variables = {
        "tokens": tokens,
        "own_id": own_id(view),
        "soon": view.now + _EXPIRES_SOON,
        "next_url": url("/tokens", cursor=cursor) if cursor else None,
        "is_first": "cursor" not in view.query,
        "roles": ROLES,
        "values": view.form,
    }
    return Rendered("tokens/list.html", variables)


def own_id(view: View) -> str:
    """Return the id of the reader's own token; "" if it is that of a node's file, or a certificate."""
    parts = view.session.token.split("_", 2)
    return parts[1] if len(parts) == 3 and view.session.has_cookie else ""


async def create(view: View) -> Answer:
    """Make a token, and show its text."""
    role, days = view.form.get("role", ""), fields.number(view.form, "expires_in_days")
    if role not in get_args(RoleName):
        raise Invalid(f"role: choose one of {', '.join(get_args(RoleName))}", field="role")
    if days is not None and days <= 0:
        raise Invalid(
            "expires_in_days: expected a number above 0; leave it empty for a token without end", field="days"
        )
    made = await view.client.tokens.create(
        cast("Any", role),
        tenant=view.form.get("tenant"),
        name=view.form.get("name"),
        queues=fields.words(view.form, "queues"),
        expires_in_seconds=None if days is None else days * _DAY_SECONDS,
    )
    return _shown_once(view, made, "made")


def _shown_once(view: View, token: TokenInfo, what: str) -> Rendered:
    """Return the page with the text of a token, which no cache stores and no other page repeats."""
    return Rendered("tokens/text.html", {"token": token, "what": what, "is_own": token.id == own_id(view)})


async def show_rotate(view: View) -> Answer:
    """Ask whether a token shall have another text."""
    return await _about_one(view, "tokens/rotate.html", {"overlaps": OVERLAPS})


async def rotate(view: View) -> Answer:
    """Give a token another text, and show it."""
    seconds = fields.whole(view.form, "overlap_seconds") or 0
    rotated = await view.client.tokens.rotate(view.match["id"], overlap_seconds=seconds)
    return _shown_once(view, rotated, "rotated")


async def show_revoke(view: View) -> Answer:
    """Ask whether a token shall be revoked."""
    return await _about_one(view, "tokens/revoke.html", {})


async def revoke(view: View) -> Answer:
    """Revoke a token."""
    await view.client.tokens.revoke(view.match["id"])
    return Redirect(
        _HOME, f"The token {view.form.get('name', view.match['id'])} was revoked; every node refuses it now."
    )


async def _about_one(view: View, template: str, variables: dict[str, Any]) -> Answer:
    async for token in view.client.tokens.list(page_size=1_000):
        if token.id == view.match["id"]:
            is_own = token.id == own_id(view)
            return Rendered(template, {"token": token, "is_own": is_own, "roles": dict(ROLES), **variables})
    return Rendered("problem.html", {"problem": not_found()}, 404)


PAGES: Final = (
    Page(path="/tokens", nav="Tokens", access="admin", show=show, act=create),
    Page(path="/tokens/{id}/rotate", access="admin", show=show_rotate, act=rotate),
    Page(path="/tokens/{id}/revoke", access="admin", show=show_revoke, act=revoke),
)
