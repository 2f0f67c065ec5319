"""Set the headers by which browsers restrict what a page may do."""

from __future__ import annotations

from typing import Final

from aiohttp import web

POLICY: Final = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
"""Everything comes from this node. Without 'unsafe-inline', neither script nor style in a page is obeyed."""
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send forms with the origin "null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_OF_THE_API: Final = ("Raftsched-Revision", "Raftsched-Leader", "WWW-Authenticate")
"""Headers that the API adds to every reply, and that tell strangers about the cluster."""


async def restrict(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers to a reply of the dashboard."""
    del request
    for name in _OF_THE_API:
        response.headers.popall(name, None)
    response.headers.update(_HEADERS)
