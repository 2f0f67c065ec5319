"""Render templates: escaped by default, and an error for every name that a page did not give."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from raftsched.dashboard.assets import Assets
from raftsched.dashboard.csrf import FIELD
from raftsched.dashboard.formats import FILTERS
from raftsched.dashboard.session import ROOT

FOLDER: Final = Path(__file__).parent / "templates"
WHOLE_PAGE: Final = "base.html"
FRAGMENT: Final = "fragment.html"
"""The layout of a page that is fetched to update an open one."""
_PARTS: Final = (WHOLE_PAGE, FRAGMENT, "macros.html", "state.html")
"""Templates that every page includes."""


class Renderer:
    """The templates of the dashboard."""

    def __init__(self, assets: Assets, nav: Sequence[tuple[str, str, str]]) -> None:
        """`nav` has the label, the path and the access of each page in the navigation."""
        self._environment = Environment(
            loader=FileSystemLoader(FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._prepared: set[str] = set()
        self._environment.filters.update(FILTERS)
        self._environment.globals.update(
            asset=lambda name: f"{ROOT}/static/{assets.name_of(name)}", nav=nav, root=ROOT, url=url
        )

    async def prepare(self, template: str) -> None:
        """Compile a template that was never rendered, in a thread: it takes the time of some dozen requests."""
        if template not in self._prepared:
            await asyncio.to_thread(self._compile, template)
            self._prepared.add(template)

    def _compile(self, template: str) -> None:
        for name in (template, *_PARTS):
            self._environment.get_template(name)

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """Return a page; raises jinja2's `UndefinedError` for a name that `variables` lack."""
        return self._environment.get_template(template).render(variables)


def csrf_field(token: str) -> Markup:
    """Return the hidden field that every form carries."""
    return Markup('<input type="hidden" name="{}" value="{}">').format(FIELD, token)


def url(path: str, fields: Mapping[str, Any] | None = None, /, **more: Any) -> str:
    """Return a path below `/ui` with a query of the fields that have a value; lists give repeated fields."""
    given = {name: value for name, value in {**(fields or {}), **more}.items() if value not in (None, "", [])}
    return f"{ROOT}{path}" + (f"?{urlencode(given, doseq=True)}" if given else "")
