"""Read the addresses of e-mail: `ops@example.org`, or `Ops Team <ops@example.org>`.

Only what is safe in a header and in a command of SMTP passes: no line breaks, no quoted or commented forms.
"""

from __future__ import annotations

import re
from email.headerregistry import Address
from typing import Final

from raftsched.errors import Invalid

_CHARS_MAX: Final = 254
_NAME_CHARS_MAX: Final = 200
_NAMED: Final = re.compile(r"(?P<name>[^<>]*?) *<(?P<address>[^<>]+)>")
_LOCAL: Final = re.compile(r"[A-Za-z0-9!#$%&'*+/=^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=^_`{|}~-]+)*")
"""Without the question mark: `=?` begins an encoded word, which readers of mail decode."""
_LABEL: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")


def address_of(text: str, field: str) -> Address:
    """Return the address with its name, "" if it has none; a domain in other letters is turned into its `xn--` form.

    Raises `Invalid` naming `field`.
    """
    named = _NAMED.fullmatch(text)
    name, address = (named["name"].strip(), named["address"]) if named else ("", text)
    if len(name) > 1 and name.startswith('"') and name.endswith('"'):
        name = name[1:-1]
    if not name.isprintable() or len(name) > _NAME_CHARS_MAX:
        raise _invalid(field, f"the name must be at most {_NAME_CHARS_MAX} printable characters of one line")
    local, _, domain = address.rpartition("@")
    domain = _ascii_domain(domain)
    if local and not local.isascii():
        raise _invalid(field, f"{address!r} has letters before the @ that are not ASCII; they are not supported")
    if not _LOCAL.fullmatch(local) or not all(map(_LABEL.fullmatch, domain.split("."))):
        raise _invalid(field, f"{text[:_CHARS_MAX]!r} is not one address as ops@example.org or Ops <ops@example.org>")
    if len(local) + 1 + len(domain) > _CHARS_MAX:
        raise _invalid(field, f"an address has at most {_CHARS_MAX} characters")
    return Address(display_name=name, username=local, domain=domain)


def _ascii_domain(domain: str) -> str:
    try:
        return domain if domain.isascii() else domain.encode("idna").decode()
    except UnicodeError:
        return ""


def _invalid(field: str, fault: str) -> Invalid:
    return Invalid(f"{field}: {fault}", field=field)
