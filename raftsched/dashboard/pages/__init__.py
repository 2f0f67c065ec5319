"""The pages, one module for each noun, in the order of the navigation."""

from __future__ import annotations

from typing import Final

from raftsched.dashboard.page import Page
from raftsched.dashboard.pages import (
    audit,
    cluster,
    dead_letters,
    job,
    job_actions,
    jobs,
    overview,
    queues,
    schedules,
    search,
    submit,
    tenants,
    tokens,
    workers,
    workflows,
)

PAGES: Final[tuple[Page, ...]] = (
    *overview.PAGES,
    *jobs.PAGES,
    *schedules.PAGES,
    *workflows.PAGES,
    *queues.PAGES,
    *dead_letters.PAGES,
    *workers.PAGES,
    *submit.PAGES,
    *job.PAGES,
    *job_actions.PAGES,
    *search.PAGES,
    *cluster.PAGES,
    *audit.PAGES,
    *tokens.PAGES,
    *tenants.PAGES,
)
"""All pages of the dashboard."""
