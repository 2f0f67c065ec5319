"""Build the dashboard as a part of the node's application: routes, the check of every request, errors as pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from aiohttp import web

from raftsched.dashboard import headers, live
from raftsched.dashboard.assets import Assets
from raftsched.dashboard.channel import Channel
from raftsched.dashboard.csrf import check_origin
from raftsched.dashboard.pages import PAGES
from raftsched.dashboard.rendering import Renderer
from raftsched.dashboard.session import ROOT, Door
from raftsched.dashboard.sign_in import SignIn
from raftsched.dashboard.site import OriginHeaders, Site
from raftsched.errors import RaftschedError

_BODY_BYTES_MAX: Final = 1024 * 1024
"""Forms with a payload of the largest size, as browsers encode it."""
log = structlog.get_logger()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def add_dashboard(app: web.Application, door: Door, node_id: str, origin_headers: OriginHeaders = dict) -> Channel:
    """Add the pages to the application of a node's API; `/` leads to them.

    `origin_headers` tell the API where the readers' requests come from.

    The channel that is returned must get its `runner` before the first request.
    """
    channel = Channel()
    assets = Assets()
    shown = [(page.nav, f"{ROOT}{page.path}", page.access) for page in PAGES if page.nav]
    site = Site(channel, door, node_id, Renderer(assets, shown), origin_headers)
    part = web.Application(middlewares=[_answer_every_request(site)])
    part.router.add_get("/static/{name}", assets.get)
    SignIn(site).add_to(part)
    live.Live(site).add_to(part)
    for page in PAGES:
        if page.show is not None:
            part.router.add_get(page.path, site.shown(page))
        if page.act is not None:
            part.router.add_post(page.path, site.acted(page))

    async def close(_: web.Application) -> None:
        await channel.close()

    part.on_response_prepare.append(headers.restrict)
    part.on_cleanup.append(close)
    app.router.add_get("/", _to_first_page)
    app.router.add_get(ROOT, _to_first_page)
    app.add_subapp(ROOT, part)
    return channel


async def _to_first_page(request: web.Request) -> web.StreamResponse:
    del request
    return web.Response(status=303, headers={"Location": f"{ROOT}/"})


def _answer_every_request(site: Site) -> Any:
    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if request.method not in ("GET", "HEAD"):
                check_origin(request)
                request = request.clone(client_max_size=_BODY_BYTES_MAX)
            return await handler(request)
        except web.HTTPException as error:
            return site.refused(request, error.status, error.reason)
        except RaftschedError as error:
            return site.failed(request, error)
        except Exception:  # any fault is answered by a page, and the log has the trace
            log.exception("page_failed", method=request.method, path=request.path)
            return site.refused(request, 500, "")

    return answer
