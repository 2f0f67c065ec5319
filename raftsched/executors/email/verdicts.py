"""Verdicts of e-mail jobs; their error types are stable, so that `retry_on` and people can rely on them."""

from __future__ import annotations

from raftsched.worker.handlers.verdicts import GiveUp, Retry


class InvalidEmail(GiveUp):
    """The payload is no e-mail that this executor may send; the message names the field."""

    error_type = "EmailPayload"


class MessageRefused(GiveUp):
    """The server refuses the message, its sender or all its recipients for good."""

    error_type = "SmtpRefused"


class MessageDeferred(Retry):
    """The server does not take the message now."""

    error_type = "SmtpDeferred"


class NoSession(Retry):
    """The server can't be reached, the connection broke, or it refuses this executor: greeting, TLS or login.

    None of these is about the message, so it may be sent once the server or the settings are right.
    """

    error_type = "SmtpConnection"


class NoAnswerInTime(Retry):
    """The server took longer than the executor waits. It may have taken the message all the same."""

    error_type = "SmtpTimeout"
