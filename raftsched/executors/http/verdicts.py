"""Verdicts of HTTP jobs; their error types are stable, so that `retry_on`, people and the cluster can rely on them."""

from __future__ import annotations

from raftsched.worker import GiveUp, Retry


class TargetRefused(GiveUp):
    """The address is not one that requests may go to. The cluster records it with the reason `target_refused`."""

    error_type = "TargetRefused"


class FinalStatus(GiveUp):
    """The status is in neither list of the call."""

    error_type = "HttpStatus"


class RetryStatus(Retry):
    """The status is one that is tried again."""

    error_type = "HttpStatus"


class NoReply(Retry):
    """No whole reply came: the connection was refused or broke, or the reply is not HTTP."""

    error_type = "HttpConnection"


class NoReplyInTime(Retry):
    """The reply took longer than the call's `timeout_seconds`."""

    error_type = "HttpTimeout"


class InvalidCall(GiveUp):
    """The request can't be made: an unknown placeholder, a missing secret, a header that is not allowed."""

    error_type = "HttpCall"
