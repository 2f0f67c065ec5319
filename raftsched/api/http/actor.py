"""Read the actor of a request: the name shown in job histories and the audit trail."""

from __future__ import annotations

from aiohttp import web
from msgspec.structs import replace

from raftsched.api.access.principal import principal_of
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.records.bounds import ANONYMOUS


def actor_of(request: web.Request) -> str:
    """Return the actor of the request."""
    return principal_of(request).name


def signed(operation: SubmitJob, actor: str) -> SubmitJob:
    """Return the submission with its actor; unchanged if the actor is anonymous."""
    return operation if actor == ANONYMOUS else replace(operation, actor=actor)
