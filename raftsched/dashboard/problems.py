"""Turn an error into a page that says what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from raftsched.errors import Invalid, OutcomeUnknown, RaftschedError, Rejected, Unavailable


@dataclass(frozen=True, slots=True)
class Problem:
    """An error page."""

    status: int
    title: str
    detail: str
    advice: str


def problem_of(error: RaftschedError) -> Problem:
    """Return the page for an error of the API."""
    detail = str(error)
    if isinstance(error, OutcomeUnknown):
        return Problem(
            503,
            "It is not known whether this took effect",
            detail,
            "Look whether the change is there before you try again. Nothing was done twice.",
        )
    if isinstance(error, Unavailable):
        return Problem(
            error.http_status,
            "The cluster can't do this now",
            detail,
            "Nothing was changed. Try again in some seconds. If it lasts, look at the page Cluster: a majority of the"
            " nodes must run and reach each other.",
        )
    if isinstance(error, Rejected) and error.http_status == 404:
        return not_found()
    if isinstance(error, Rejected) and error.http_status == 403:
        return Problem(
            403,
            "You may not do this",
            detail,
            "Nothing was changed. Sign in with a token that has the right, or ask an admin for one.",
        )
    if isinstance(error, Invalid | Rejected):
        return Problem(
            error.http_status,
            "This was refused",
            detail,
            "Nothing was changed. Go back, correct what is named here, and send it again.",
        )
    return fault()


def not_found() -> Problem:
    """Return the page for what does not exist, or is another tenant's."""
    return Problem(
        404,
        "There is no such page or object",
        "It was deleted, never existed, or belongs to another tenant.",
        "Check the address, or search for its id, name or tag. Finished jobs are deleted when their retention ends.",
    )


def fault() -> Problem:
    """Return the page for a fault of ours."""
    return Problem(
        500,
        "This is a fault of the dashboard",
        "The log of this node has the details.",
        "Load the page again. If the fault is still there, report it with the lines of the log.",
    )


def http_problem(status: int, reason: str) -> Problem:
    """Return the page for a request that no page takes."""
    if status == 404:
        return not_found()
    if status == 413:
        return Problem(413, "The form is too large", reason, "Use the API or the command line for this payload.")
    return Problem(status, "This request can't be answered", reason, "Open the page again from the navigation.")
