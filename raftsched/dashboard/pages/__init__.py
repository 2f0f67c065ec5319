"""The pages, one module for each noun, in the order of the navigation."""

from __future__ import annotations

from typing import Final

from raftsched.dashboard.page import Page
from raftsched.dashboard.pages import overview

PAGES: Final[tuple[Page, ...]] = (*overview.PAGES,)
"""All pages of the dashboard."""
