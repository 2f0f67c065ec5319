"""Check a user's value by one rule for payloads, results and progress reports.

Depth and size are counted from the value itself, at any place in a request: alone, in a batch, in a workflow, in
a file of schedules. A value that was read and is written again must pass again, so the size counts both as the text was
sent and as it is written compactly: `1e15` grows to `1000000000000000.0` in most languages.

Left out: whether the text is sound JSON. `api.json.scan` finds that for whole requests, `client.documents` for objects.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from raftsched import limits
from raftsched.errors import Malformed, TooLarge

_EXPONENT: Final = re.compile(rb"[0-9][eE]")
_GROWTH_MAX: Final = 5
"""Factor by which text can grow when it is written again: 4 characters of a number become 18."""
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")


def check_value(text: bytes, *, bytes_max: int, field: str) -> None:
    """Check a value that is sound JSON; raises `TooLarge` or `Malformed` naming `field`. Linear in its length."""
    size = _size(text, bytes_max)
    if size > bytes_max:
        raise TooLarge(f"{field}: has {size} bytes, at most {bytes_max} are allowed", field=field)
    if nests_deeper(text, limits.VALUE_DEPTH_MAX):
        raise Malformed(f"{field}: nests deeper than {limits.VALUE_DEPTH_MAX} levels", field=field)


def _size(text: bytes, bytes_max: int) -> int:
    """Return the bytes of a value, as it was sent or as it is written compactly, whichever are more."""
    size = len(text)
    if bytes_max // _GROWTH_MAX < size <= bytes_max and _EXPONENT.search(text):
        return max(size, len(msgspec.json.encode(msgspec.json.decode(text))))
    return size


def nests_deeper(text: bytes, levels: int) -> bool:
    """Return whether a sound JSON text has more than `levels` levels of objects and arrays."""
    if text.count(b"[") + text.count(b"{") <= levels:
        return False
    bare = text.replace(rb"\\", b"__").replace(rb"\"", b"__")
    brackets = b"".join(bare.split(b'"')[::2]).translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(levels):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")  # the innermost level of each part
    return bool(brackets)
