"""Sign people in and out, and store how they want to see pages."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from aiohttp import web

from raftsched.dashboard import notices
from raftsched.dashboard.csrf import FIELD, check_form
from raftsched.dashboard.page import Rendered
from raftsched.dashboard.preferences import prefer
from raftsched.dashboard.session import (
    ROOT,
    Session,
    is_possible,
    is_secure,
    local_path,
    read_session,
    sign_in,
    sign_out,
)
from raftsched.dashboard.site import BACK, Site, redirect
from raftsched.dashboard.view import filled
from raftsched.errors import Rejected, Unavailable

_LOG_SECONDS: Final = 5.0
log = structlog.get_logger()
_NO_TOKEN = "This is not a valid token. It may have been revoked or have expired."  # noqa: S105  # a message
_NO_READER = "This token belongs to a worker, which can't read. Use one with the role viewer or higher."


class SignIn:
    """The pages that need nobody to be signed in."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._refused_count = 0
        self._logged_at = float("-inf")

    def add_to(self, app: web.Application) -> None:
        """Add the routes."""
        app.router.add_get("/sign-in", self.show)
        app.router.add_post("/sign-in", self.sign_in)
        app.router.add_post("/sign-out", self.sign_out)
        app.router.add_post("/preferences", self.prefer)

    async def show(self, request: web.Request) -> web.StreamResponse:
        """Ask for a token, unless somebody is signed in."""
        session = read_session(request, self._site.door)
        if session.is_signed_in:
            return redirect(local_path(request.query.get("next", "")))
        _, error = notices.take(request)
        response = self._form(request, session, request.query.get("next", ""), error)
        notices.forget(request, response)
        return response

    async def sign_in(self, request: web.Request) -> web.StreamResponse:
        """Store the token in a cookie, if the API accepts it. The API slows down and counts what it refuses."""
        session = read_session(request, self._site.door)
        form = filled(await request.post())
        check_form(session.csrf, form.get(FIELD, ""))
        token = form.get("token", "")
        error = await self._reason_against(token)
        if error:
            self._note(request)
            return self._form(request, session, form.get("next", ""), error, 401)
        response = redirect(local_path(form.get("next", "")))
        sign_in(response, token, secure=is_secure(request))
        return response

    def _note(self, request: web.Request) -> None:
        """Count a refused sign-in, and log it with its address, at most once in a while."""
        self._refused_count += 1
        now = asyncio.get_running_loop().time()
        if now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            log.warning("sign_in_refused", remote=request.remote, refused_count=self._refused_count)

    async def _reason_against(self, token: str) -> str:
        """Return why a token can't be used here; "" if it can."""
        if not is_possible(token):
            return _NO_TOKEN
        wanted = Session(token, is_open=False, has_cookie=True, secret=token, is_new_visitor=False)
        try:
            caller = await self._site.client(wanted).whoami()
        except Rejected as refused:
            if refused.http_status != 401:
                raise
            return _NO_TOKEN
        except Unavailable as error:
            return f"The token can't be checked now: {error}. Try again in some seconds, or at another node."
        return "" if "read" in caller.may else _NO_READER

    def _form(self, request: web.Request, session: Session, wanted: str, error: str, status: int = 200) -> web.Response:
        variables = {"error": error, "next": local_path(wanted)}
        return self._site.page(request, session, Rendered("sign_in/form.html", variables, status))

    async def sign_out(self, request: web.Request) -> web.StreamResponse:
        """Remove the token from the browser."""
        session = read_session(request, self._site.door)
        check_form(session.csrf, filled(await request.post()).get(FIELD, ""))
        response = redirect(f"{ROOT}/sign-in")
        sign_out(response)
        return response

    async def prefer(self, request: web.Request) -> web.StreamResponse:
        """Store how pages are shown, and return to the page."""
        session = read_session(request, self._site.door)
        form = filled(await request.post())
        check_form(session.csrf, form.get(FIELD, ""))
        response = redirect(local_path(form.get(BACK, "")))
        for name, choice in form.items():
            prefer(response, name, choice)
        return response
