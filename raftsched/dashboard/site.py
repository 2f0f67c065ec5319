"""Answer requests for pages: find out who asks, let the page read, and render what it returns.

A page reads what is current. If there is no leader, it reads what this node has, and says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec
from aiohttp import web

from raftsched.client import Client
from raftsched.client.http.settings import ClientSettings
from raftsched.dashboard import notices
from raftsched.dashboard.channel import OWN_NODE, NotingHttp
from raftsched.dashboard.csrf import FIELD, check_form
from raftsched.dashboard.download import sent
from raftsched.dashboard.page import Answer, Download, Page, Redirect, Rendered
from raftsched.dashboard.preferences import preferences_of
from raftsched.dashboard.problems import Problem, fault, http_problem, not_found, problem_of
from raftsched.dashboard.rendering import FRAGMENT, WHOLE_PAGE, Renderer, csrf_field, url
from raftsched.dashboard.session import (
    ROOT,
    Door,
    Session,
    is_secure,
    local_path,
    read_session,
    remember_visitor,
    sign_out,
)
from raftsched.dashboard.view import View, filled, utc_now
from raftsched.errors import Forbidden, Invalid, RaftschedError, Rejected, Unavailable
from raftsched.exchange import Http
from raftsched.wire.cluster import ClusterStatus

BACK: Final = "back"
"""The field of a form with the page to return to."""
FRAGMENT_HEADER: Final = "Raftsched-Fragment"
_UNAUTHORIZED: Final = 401
_ACTOR: Final = "dashboard"
"""The actor of changes if access control is off, so that nobody has a name."""
_CURRENT: Final = ClientSettings(follow_leader=False, retry_seconds=1.0, request_timeout_seconds=15.0)
_STALE: Final = ClientSettings(
    follow_leader=False, retry_seconds=0.0, request_timeout_seconds=15.0, consistency="stale"
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

OriginHeaders = Callable[[], Mapping[str, str]]
"""Return the headers that tell the API where the request came from that is being handled."""


class Site:
    """The pages of one node."""

    def __init__(
        self, http: Http, door: Door, node_id: str, renderer: Renderer, origin_headers: OriginHeaders = dict
    ) -> None:
        self.http = http
        self.door = door
        self._origin_headers = origin_headers
        self.node_id = node_id
        self._renderer = renderer

    # -- requests -----------------------------------------------------------------------------------------------------

    def shown(self, page: Page) -> Handler:
        """Return the handler of GET."""
        assert page.show is not None
        show = page.show

        async def answer(request: web.Request) -> web.StreamResponse:
            session = read_session(request, self.door)
            if not session.is_signed_in:
                return self.to_sign_in(request)
            view = await self._view(request, session, page, {}, request.query)
            view.notice, view.error = notices.take(request)
            return await self._answered(request, view, await self._read(view, show))

        return answer

    def acted(self, page: Page) -> Handler:
        """Return the handler of POST."""
        assert page.act is not None
        act = page.act

        async def answer(request: web.Request) -> web.StreamResponse:
            session = read_session(request, self.door)
            if not session.is_signed_in:
                return self.to_sign_in(request)
            fields = await request.post()
            form = filled(fields)
            check_form(session.csrf, form.pop(FIELD, ""))
            view = await self._view(request, session, page, form, fields)
            try:
                answered = await act(view)
            except (Invalid, Rejected) as error:
                if _is_for_all(error):
                    raise
                view.error = str(error)
                answered = await self._refused_form(view, page)
            return await self._answered(request, view, answered)

        return answer

    async def _refused_form(self, view: View, page: Page) -> Answer:
        if page.show is not None:
            return await page.show(view)
        return Redirect(local_path(view.form.get(BACK, "")))

    async def _view(
        self, request: web.Request, session: Session, page: Page, form: Mapping[str, str], lists: Any
    ) -> View:
        """Return what the page gets; raises `Rejected` for a token that is not valid."""
        client = self.client(session)
        cluster, caller = await asyncio.gather(client.cluster(), client.whoami())
        view = View(
            client=client,
            session=session,
            caller=caller,
            cluster=msgspec.convert(cluster, ClusterStatus),
            node_id=self.node_id,
            path=request.path,
            match=dict(request.match_info),
            query=filled(request.query),
            form=form,
            lists={name: [text for text in lists.getall(name) if isinstance(text, str)] for name in lists},
            now=utc_now(),
        )
        if page.access not in caller.may:
            role = caller.role
            raise Forbidden(f"this page needs the right to {page.access}, which the role {role} does not have")
        return view

    def client(self, session: Session, http: Http | None = None, *, is_stale: bool = False) -> Client:
        """Return a client with the rights of the session, over `http` or the node's own channel."""
        return Client(
            OWN_NODE,
            token=session.token,
            tenant="",
            actor=_ACTOR if session.is_open else None,
            settings=_STALE if is_stale else _CURRENT,
            http=http or NotingHttp(self.http, self._origin_headers),
        )

    async def _read(self, view: View, show: Callable[[View], Awaitable[Answer]]) -> Answer:
        """Return what the page shows of the current state, or else of this node's state."""
        if view.cluster.leader:
            try:
                return await show(view)
            except Unavailable:
                view.now = utc_now()
        noting = NotingHttp(self.http)
        view.client = self.client(view.session, noting, is_stale=True)
        answer = await show(view)
        age_ms = noting.age_ms
        view.stale_since = view.now - timedelta(milliseconds=max(0, age_ms or 0))
        return answer

    # -- replies ------------------------------------------------------------------------------------------------------

    async def _answered(self, request: web.Request, view: View, answer: Answer) -> web.StreamResponse:
        if isinstance(answer, Download):
            return await sent(request, answer)
        if isinstance(answer, Redirect):
            response = redirect(answer.path)
            if answer.notice or view.error:
                notices.leave(response, answer.notice or view.error, is_error=bool(view.error))
            return response
        await self._renderer.prepare(answer.template)
        response = self.page(request, view.session, answer, view)
        notices.forget(request, response)
        return response

    def page(
        self, request: web.Request, session: Session, rendered: Rendered, view: View | None = None
    ) -> web.Response:
        """Render a page; without `view` one for somebody who is not known."""
        is_fragment = FRAGMENT_HEADER in request.headers
        preferences = preferences_of(request)
        variables = {
            "layout": FRAGMENT if is_fragment else WHOLE_PAGE,
            "view": view,
            "session": session,
            "may": view.may if view is not None else lambda _: False,
            "csrf_field": lambda: csrf_field(session.csrf),
            "node_id": self.node_id,
            "path": request.path,
            "here": local_path(request.raw_path),
            **preferences,
            **rendered.variables,
        }
        text = self._renderer.render(rendered.template, variables)
        response = web.Response(text=text, content_type="text/html", status=rendered.status)
        remember_visitor(response, session, secure=is_secure(request))
        return response

    def to_sign_in(self, request: web.Request) -> web.StreamResponse:
        """Return the way to sign in and to come back."""
        if FRAGMENT_HEADER in request.headers:
            return web.Response(status=_UNAUTHORIZED)
        if request.method == "GET" and request.headers.get("Sec-Fetch-Site") == "cross-site":
            # Browsers leave our cookie out when another site links here. From our own page they send it.
            return self.page(
                request, read_session(request, self.door), Rendered("sign_in/again.html", {"next": request.raw_path})
            )
        wanted = local_path(request.raw_path) if request.method == "GET" else f"{ROOT}/"
        return redirect(url("/sign-in", next=wanted))

    def failed(self, request: web.Request, error: RaftschedError) -> web.StreamResponse:
        """Return the page for an error of the API; one without a valid token leads to the sign-in."""
        if isinstance(error, Rejected) and error.http_status == _UNAUTHORIZED:
            response = self.to_sign_in(request)
            sign_out(response)
            notices.leave(response, "Your token is no longer valid: it was revoked or has expired.", is_error=True)
            return response
        return self._problem(request, problem_of(error))

    def refused(self, request: web.Request, status: int, reason: str) -> web.StreamResponse:
        """Return the page for a request that no page takes, or for a fault of ours."""
        return self._problem(request, fault() if status >= 500 else http_problem(status, reason))

    def _problem(self, request: web.Request, problem: Problem) -> web.StreamResponse:
        session = read_session(request, self.door)
        if not session.is_signed_in:
            problem = not_found() if problem.status == 404 else problem
        return self.page(request, session, Rendered("problem.html", {"problem": problem}, problem.status))


def redirect(path: str) -> web.Response:
    """Return a redirect to a path of this node, to be read by GET."""
    return web.Response(status=303, headers={"Location": path})


def _is_for_all(error: RaftschedError) -> bool:
    """Return whether an error concerns the page as a whole, not what its form says."""
    return isinstance(error, Rejected) and error.http_status in (_UNAUTHORIZED, 403, 404)
