"""List the audit trail: who did what to what, and when; each line leads to its object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from raftsched.client.http.calls import part
from raftsched.client.records import AuditEntry
from raftsched.dashboard.page import Answer, Page, Rendered
from raftsched.dashboard.rendering import url
from raftsched.dashboard.view import View

_PAGE_LINES: Final = 100
_FILTERS: Final = ("actor", "action", "subject", "tenant")
NOUNS: Final = ("job", "workflow", "schedule", "queue", "tenant", "token", "node", "key", "cluster")
"""Kinds of objects; each can be a filter of subjects."""


async def show(view: View) -> Answer:
    """Return a page of the lines that match the filter in the URL."""
    kept = {name: view.query[name] for name in _FILTERS if name in view.query}
    order = "asc" if view.query.get("order") == "asc" else "desc"
    query = {**kept, "order": order, "limit": _PAGE_LINES, "cursor": view.query.get("cursor")}
    entries, cursor = await view.client.page(AuditEntry, "/audit", "entries", query)
    variables = {
        "lines": [(entry, object_url(entry, view.may), *_parts(entry.subject)) for entry in entries],
        "next_url": url("/audit", kept, order=view.query.get("order"), cursor=cursor) if cursor else None,
        "is_first": "cursor" not in view.query,
        "kept": kept,
        "order": order,
        "nouns": NOUNS,
    }
    return Rendered("audit/audit.html", variables)


def _parts(subject: str) -> tuple[str, str]:
    noun, _, name = subject.partition(":")
    return noun, name


def object_url(entry: AuditEntry, may: Callable[[str], bool]) -> str:
    """Return the page of the object of a line; "" if no page has it, or if its reader may not see that page."""
    noun, name = _parts(entry.subject)
    made = _PAGES_OF.get(noun)
    if noun == "token" and not may("admin"):
        return ""
    return made(part(name), entry) if made is not None and name else ""


def _of_tenant(entry: AuditEntry) -> Mapping[str, str]:
    return {"tenant": entry.tenant} if entry.tenant not in (None, "", "default") else {}


_PAGES_OF: Final[Mapping[str, Callable[[str, AuditEntry], str]]] = {
    "job": lambda name, _: url(f"/jobs/{name}"),
    "workflow": lambda name, _: url(f"/workflows/{name}"),
    "schedule": lambda name, entry: url(f"/schedules/{name}", _of_tenant(entry)),
    "queue": lambda name, _: url(f"/queues/{name}"),
    "tenant": lambda name, _: url(f"/tenants/{name}"),
    "token": lambda name, _: url("/tokens") + f"#token-{name}",
    "node": lambda name, _: url("/cluster") + f"#node-{name}",
    "key": lambda *_: url("/cluster") + "#encryption",
    "cluster": lambda *_: url("/cluster"),
}
PAGES: Final = (Page(path="/audit", nav="Audit", access="audit", show=show),)
