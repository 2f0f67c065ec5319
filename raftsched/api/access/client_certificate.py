"""Read who a client is from its certificate."""

from __future__ import annotations

from aiohttp import web

from raftsched.tls.names import client_names


def client_certificate_names(request: web.Request) -> tuple[str, ...]:
    """Return the DNS names and the common names in the client's certificate; none if it showed none.

    TLS has verified the certificate by `api_tls.client_ca`, so the names can be trusted. They are those of whoever
    made this connection: for a forwarded request that is another node, not its client.
    """
    return client_names(request.get_extra_info("peercert"))
