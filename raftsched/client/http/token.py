"""Find the token of the API and the tenant to act for: what the program gives, else the environment's."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from raftsched.errors import Invalid
from raftsched.wire.common import NAME_RULE, is_name

TOKEN_VARIABLE: Final = "RAFTSCHED_TOKEN"  # noqa: S105  # a name
TOKEN_FILE_VARIABLE: Final = "RAFTSCHED_TOKEN_FILE"  # noqa: S105  # a name
TENANT_VARIABLE: Final = "RAFTSCHED_TENANT"
_is_token: Final = re.compile(r"[!-~]{1,512}").fullmatch


def caller_headers(token: str | None, tenant: str | None) -> dict[str, str]:
    """Return the headers that tell who makes a request; None = as the environment says.

    Raises `Invalid` for a token or a tenant that can't be sent, without its text.
    """
    token = token_of_environment() if token is None else token
    tenant = os.environ.get(TENANT_VARIABLE) if tenant is None else tenant
    headers = {"Authorization": f"Bearer {checked_token(token)}"} if token else {}
    if tenant:
        if not is_name(tenant):
            raise Invalid(f"tenant: expected {NAME_RULE}", field="tenant")
        headers["Raftsched-Tenant"] = tenant
    return headers


def token_of_environment() -> str | None:
    """Return the token in RAFTSCHED_TOKEN, or in the file that RAFTSCHED_TOKEN_FILE names; None if there is none.

    Raises `Invalid` for a file that can't be read.
    """
    text = os.environ.get(TOKEN_VARIABLE)
    if text:
        return text.strip()
    path = os.environ.get(TOKEN_FILE_VARIABLE)
    return token_in(Path(path), field=TOKEN_FILE_VARIABLE) if path else None


def token_in(path: Path, *, field: str) -> str:
    """Return the token in a file: its first word. Raises `Invalid` naming `field` for a file without one."""
    try:
        words = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{field}: {path}: {error}", field=field) from error
    if not words:
        raise Invalid(f"{field}: {path}: there is no token in it", field=field)
    return words[0]


def checked_token(token: str) -> str:
    """Return the token; raises `Invalid`, without its text, if it can't be sent in a header."""
    if not _is_token(token):
        raise Invalid("token: expected 1 to 512 printable ASCII characters without spaces", field="token")
    return token
