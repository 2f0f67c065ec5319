"""People who read the dashboard of a simulated node with tokens, on which two tenants have things of every kind."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from raftsched.api.access.rules import OF_ALL_TENANTS, ROLES, Access
from raftsched.core.records.api_token import Role
from raftsched.dashboard.csrf import form_token
from raftsched.dashboard.page import Page
from raftsched.dashboard.pages import PAGES
from raftsched.dashboard.session import ROOT, SESSION_COOKIE
from tests.api.access.scene import Caller
from tests.api.access.test_tenants import CALLERS, Twin, World, world
from tests.dashboard.cost import SELECTED, with_dashboard

READERS: Final = {
    "viewer": Caller(Role.VIEWER),
    "submitter": Caller(Role.SUBMITTER),
    "operator": Caller(Role.OPERATOR),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A reply of the dashboard."""

    status: int
    location: str
    cookies: str
    text: str
    cache: str = ""
    policy: str = ""


@dataclass(slots=True)
class Form:
    """A form of a page."""

    method: str
    action: str
    fields: dict[str, str] = field(default_factory=dict)


class Elements(HTMLParser):
    """The parts of a page that matter here."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.faults: list[str] = []
        """Elements and attributes that no template of ours has."""
        self._in_main = False
        self.main_links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._in_main |= tag == "main"
        if tag == "form":
            self.forms.append(Form(given.get("method", "get"), given.get("action", "")))
        if tag in ("input", "button") and self.forms and "name" in given:
            self.forms[-1].fields.setdefault(given["name"], given.get("value", ""))
        if tag == "a" and self._in_main:
            self.main_links.append(given.get("href", ""))
        if tag == "script" and not given.get("src", "").startswith(f"{ROOT}/static/"):
            self.faults.append(f"a script in the page: {given}")
        is_ours = given.get("src", "").startswith(f"{ROOT}/static/")
        if tag in ("iframe", "object", "embed", "base", "style") or (tag == "img" and not is_ours):
            self.faults.append(f"<{tag}> {given}")
        self.faults += [f"<{tag} {name}>" for name in given if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action"):
            if urlsplit(given.get(name, "")).scheme not in ("", "http", "https"):
                self.faults.append(f"<{tag} {name}={given[name]!r}>")

    def handle_endtag(self, tag: str) -> None:
        self._in_main &= tag != "main"


@dataclass(slots=True)
class Visitor:
    """Somebody who reads the dashboard with a token."""

    scene: World
    token: str
    role: Role
    is_bound: bool

    @property
    def csrf(self) -> str:
        return form_token(self.token)

    def may(self, access: str) -> bool:
        wanted = Access(access)
        return self.role in ROLES[wanted] and not (self.is_bound and wanted in OF_ALL_TENANTS)

    async def ask(self, method: str, path: str, fields: dict[str, str] | None = None, **headers: str) -> Seen:
        api = self.scene.a
        sent = {"Cookie": f"{SESSION_COOKIE}={self.token}", **headers}
        url = f"{api.node.api_url}{ROOT}{path}"
        async with api.session.request(method, url, data=fields, headers=sent, allow_redirects=False) as reply:
            text = "" if "attachment" in reply.headers.get("Content-Disposition", "") else await reply.text()
            cookies = re.sub(r"Max-Age=\d+|expires=[^;]+", "", " ".join(reply.headers.getall("Set-Cookie", [])))
            cache, policy = (reply.headers.get(name, "") for name in ("Cache-Control", "Content-Security-Policy"))
            return Seen(reply.status, reply.headers.get("Location", ""), cookies, text, cache, policy)


@asynccontextmanager
async def visited(directory: Path) -> AsyncIterator[World]:
    async with world(directory, READERS, extend=with_dashboard) as scene:
        seen = await visitor(scene, "all").ask("GET", "/dead-letters")
        groups = re.findall(r"/dead-letters/groups/(\w+)", seen.text)
        yield replace(scene, twins=(*scene.twins, *(Twin("dead-letters", name, "0" * len(name)) for name in groups)))


def visitor(scene: World, name: str) -> Visitor:
    caller = {**CALLERS, **READERS}[name]
    return Visitor(scene, caller.token(name), caller.role, caller.tenant != "*")


def noun_of(page: Page) -> str:
    return page.path.split("/")[1]


def paths_of(page: Page, scene: World, *, missing: bool = False) -> Iterator[str]:
    """Yield the path of a page for each thing of `acme`, or for what nobody has; a page without names has one."""
    if "{" not in page.path:
        yield page.path + SELECTED.get(page.path, "")
        return
    for twin in scene.of(noun_of(page)):
        name = twin.missing if missing else twin.foreign
        yield re.sub(r"\{\w+\}", name, page.path)
    if page.path.startswith("/cluster/nodes/"):
        yield re.sub(r"\{\w+\}", "n1", page.path)


def page_of(link: str) -> Page | None:
    """Return the page to which a link leads."""
    path = urlsplit(link).path.removeprefix(ROOT)
    exact = [page for page in PAGES if page.path == path]
    fitting = [page for page in PAGES if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", page.path), path)]
    return next(iter([*exact, *fitting]), None)
