"""Make the request of a run: its method, headers and body; and what of it another origin gets after a redirect.

Headers that identify the run are the executor's own: a job can't replace them. A request with a signing secret is
signed as Standard Webhooks says (https://www.standardwebhooks.com): HMAC-SHA256 of its id, time and body.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from raftsched.executors.http.verdicts import InvalidCall
from raftsched.executors.placeholders import UnknownPlaceholder, facts_of, filled, timestamp
from raftsched.executors.secrets import Redaction
from raftsched.tracing import passed_on
from raftsched.wire.calls import HttpCall, is_reserved_header
from raftsched.wire.workers import CALLBACK_TOKEN_HEADER
from raftsched.worker import Context

CALLBACK_TOKEN: Final = CALLBACK_TOKEN_HEADER.lower()
_FOR_ANY_ORIGIN: Final = frozenset(
    ("accept", "accept-encoding", "accept-language", "content-type", "traceparent", "tracestate", "user-agent")
)
"""Headers of a job that are sent to another origin after a redirect; any other may be a credential."""
_ABOUT_BODY: Final = frozenset(("content-encoding", "content-language", "content-type"))
_NOT_IN_A_HEADER: Final = re.compile(r"[^\t -~]")
_SIGNING_PREFIX: Final = "whsec_"
_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
_SEE_OTHER: Final = 303
_FOR_ANY_METHOD: Final = frozenset((307, 308))


@dataclass(frozen=True, slots=True)
class Message:
    """A request without its address; the names of `headers` are in lower case."""

    method: str
    headers: Mapping[str, str]
    own_headers: Mapping[str, str]
    """Facts of the run, which every origin gets."""
    credentials: Mapping[str, str]
    """Bearer, signature and callback token, which only the first origin gets."""
    body: bytes | None
    has_secret_body: bool = False
    """The body has the content of a secret, which only the first origin may get."""

    @property
    def asks_for_callback(self) -> bool:
        """Return whether who gets it can report the outcome of the run."""
        return CALLBACK_TOKEN in self.credentials

    @property
    def all_headers(self) -> Mapping[str, str]:
        return {**self.headers, **self.own_headers, **self.credentials}

    def for_other_origin(self) -> Message:
        """Return the request for another scheme, host or port: without credentials, and headers that may be some.

        Raises `InvalidCall` if its body has a secret.
        """
        if self.has_secret_body:
            raise InvalidCall("body: has a secret, which is not sent to another host after a redirect")
        kept = {name: value for name, value in self.headers.items() if name in _FOR_ANY_ORIGIN}
        return replace(self, headers=kept, credentials={})

    def redirected(self, status: int) -> Message:
        """Return the request after a redirect: 307 and 308 repeat it, 303 asks with GET, 301 and 302 do so for a POST."""
        is_same = self.method == "HEAD" or (status != _SEE_OTHER and self.method != "POST")
        if status in _FOR_ANY_METHOD or is_same:
            return self
        kept = {name: value for name, value in self.headers.items() if name not in _ABOUT_BODY}
        return replace(self, method="GET", headers=kept, body=None, has_secret_body=False)


def is_redirect(status: int) -> bool:
    """Return whether the status names another address to ask."""
    return status in _REDIRECTS


def message_of(call: HttpCall, ctx: Context, payload: Any, secrets: Mapping[str, str], now_seconds: int) -> Message:
    """Return the request of a run; `secrets` has the values by name. Raises `InvalidCall`."""
    headers = {"user-agent": "raftsched", "accept": "*/*", "accept-encoding": "identity"}
    body, content_type = _body(ctx, payload, secrets)
    if content_type:
        headers["content-type"] = content_type
    headers |= passed_on(ctx.traceparent)
    headers |= _job_headers(call)
    own = {
        "idempotency-key": ctx.run_id,
        "raftsched-job-id": ctx.job_id,
        "raftsched-run-id": ctx.run_id,
        "raftsched-fencing-token": str(ctx.fencing_token),
        "raftsched-attempt": str(ctx.attempt_number),
    }
    if scheduled_at := timestamp(ctx.instant or ctx.run_at):
        own["raftsched-scheduled-at"] = scheduled_at
    credentials = {}
    if call.bearer is not None:
        credentials["authorization"] = f"Bearer {_token(call.bearer.secret, secrets)}"
    if ctx.callback_token is not None:
        credentials[CALLBACK_TOKEN] = ctx.callback_token
    if call.signing_secret is not None:
        key = _signing_key(call.signing_secret, secrets[call.signing_secret])
        credentials |= signature_of(key, ctx.run_id, now_seconds, body or b"")
    has_secret = body is not None and Redaction(secrets).content(body) != body
    return Message(call.method, headers, own, credentials, body, has_secret_body=has_secret)


def signature_of(key: bytes, message_id: str, now_seconds: int, body: bytes) -> Mapping[str, str]:
    """Return the headers that sign `body`."""
    signed = b"%b.%d.%b" % (message_id.encode(), now_seconds, body)
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return {"webhook-id": message_id, "webhook-timestamp": str(now_seconds), "webhook-signature": f"v1,{digest}"}


def _job_headers(call: HttpCall) -> Mapping[str, str]:
    """Return the headers that the job gives. The API has checked them; a header must not be forged if it had not."""
    headers: dict[str, str] = {}
    for name, value in call.headers.items():
        lowered = name.lower()
        if is_reserved_header(lowered):
            raise InvalidCall(f"headers: {name} is set by the executor")
        if lowered in headers or (lowered == "authorization" and call.bearer is not None):
            raise InvalidCall(f"headers: {name} is given twice")
        headers[lowered] = value
    return headers


def _body(ctx: Context, payload: Any, secrets: Mapping[str, str]) -> tuple[bytes | None, str]:
    """Return the body and its type: a text as it is, anything else as JSON; (None, "") if there is none."""
    if payload is None:
        return None, ""
    try:
        content = filled(payload, facts_of(ctx, secrets))
    except UnknownPlaceholder as error:
        raise InvalidCall(f"body: {error}") from None
    if isinstance(content, str):
        return content.encode("utf-8", "backslashreplace"), "text/plain; charset=utf-8"
    return msgspec.json.encode(content), "application/json"


def _token(name: str, secrets: Mapping[str, str]) -> str:
    if _NOT_IN_A_HEADER.search(secrets[name]):
        raise InvalidCall(f"bearer: the secret {name} has characters that a header can't carry")
    return secrets[name]


def _signing_key(name: str, value: str) -> bytes:
    text = value.removeprefix(_SIGNING_PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise InvalidCall(f"signing_secret: the secret {name} must be {_SIGNING_PREFIX} followed by base64")
    return key
