"""Find the path of a flaw in a document that the scan has rejected.

The scan stops at a number or a text that JSON does not allow, without its path. Here the document is parsed once more
with a marker in place of each flaw, and the path to the first marker is returned.
"""

from __future__ import annotations

import json
import re
from math import isinf
from typing import Any, Final

_KEY_CHARS_MAX: Final = 60
_NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")
_FLAW: Final = object()
"""Marker of a constant or a number that JSON does not allow."""


def path_of_flaw(text: str) -> str:
    """Return the path to the first NaN, infinity, NUL or lone surrogate in `text`, as `payload.a[3]`.

    Returns "" if the document itself is the flaw, or is not JSON before it.
    """
    try:
        document = _decode(text)
    except ValueError:
        return ""
    return (_find(document) or "").removeprefix(".")


def _find(value: Any) -> str | None:
    """Return the path from `value` to a flaw in it; None if there is none. Documents are at most 64 levels deep."""
    if value is _FLAW or (isinstance(value, str) and not _is_text(value)):
        return ""
    if isinstance(value, dict):
        for key, child in value.items():
            if not _is_text(key):
                return f".{_shown(key)}"
            if (path := _find(child)) is not None:
                return f".{_shown(key)}{path}"
    elif isinstance(value, list):
        for number, child in enumerate(value):
            if (path := _find(child)) is not None:
                return f"[{number}]{path}"
    return None


def _is_text(value: str) -> bool:
    return _NO_TEXT.search(value) is None


def _shown(key: str) -> str:
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in key[:_KEY_CHARS_MAX])


def _float(text: str) -> Any:
    return _FLAW if isinf(float(text)) else 0.0


_decode = json.JSONDecoder(parse_float=_float, parse_constant=lambda _: _FLAW).decode
