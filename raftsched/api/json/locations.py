"""Where in a document a flaw is: a second, slower look at one that the scan has refused, to name the field.

The scan stops at a number or a text that JSON doesn't have without knowing where it stands. Here the document is read
once more with a marker in the place of each flaw, and the path to the first one is told.
"""

from __future__ import annotations

import json
import re
from math import isinf
from typing import Any, Final

_KEY_CHARS_MAX: Final = 60
_NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")
_FLAW: Final = object()
"""Stands for a constant or a number that JSON doesn't have."""


def path_of_flaw(text: str) -> str:
    """Return the path to the first NaN, infinity, NUL or lone surrogate in `text`, as `payload.a[3]`.

    Returns "" where the document itself is the flaw, or isn't JSON up to there.
    """
    try:
        document = _decode(text)
    except ValueError:
        return ""
    return (_find(document) or "").removeprefix(".")


def _find(value: Any) -> str | None:
    """The path from `value` to a flaw in it, None where there is none; documents are at most 64 levels deep."""
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
