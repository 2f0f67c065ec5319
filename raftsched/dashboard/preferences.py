"""Read and store how a reader wants to see pages: colours, and times. Both are in cookies that scripts may read."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from raftsched.dashboard.session import ROOT

CHOICES: Final = {"theme": ("auto", "light", "dark"), "times": ("utc", "local", "relative")}
"""The choices, the default first."""
_YEAR_SECONDS: Final = 365 * 86_400


def preferences_of(request: web.Request) -> dict[str, str]:
    """Return the choice of each preference."""
    return {name: _choice(name, request.cookies.get(f"raftsched_{name}", "")) for name in CHOICES}


def prefer(response: web.StreamResponse, name: str, choice: str) -> None:
    """Store a choice; another name is ignored, and another choice is the default."""
    if name in CHOICES:
        response.set_cookie(
            f"raftsched_{name}", _choice(name, choice), path=ROOT, samesite="Strict", max_age=_YEAR_SECONDS
        )


def _choice(name: str, choice: str) -> str:
    return choice if choice in CHOICES[name] else CHOICES[name][0]
