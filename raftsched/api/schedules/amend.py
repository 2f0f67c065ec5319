"""Amend and compare the documents of schedules.

An amendment is a JSON Merge Patch (RFC 7396) of the schedule's document, with two exceptions: one of `cron`, `every`
and `at` replaces another, and a payload is replaced as a whole, since its content is the user's. Values are kept byte
for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from raftsched.api.http.json_reply import encode
from raftsched.wire.schedules import ChangeDocument

_WHEN: Final = frozenset({"cron", "every", "at"})
_REPLACED_WHOLE: Final = frozenset({"payload"})
_OTHER_SPELLING: Final = {"max_retries": "max_attempts"}
"""Two spellings of one setting: a change in one replaces a value in the other."""
_NULL: Final = msgspec.Raw(b"null")
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def amended(document: dict[str, Any], patch: bytes) -> bytes:
    """Return the document with the patch, which must be a valid `SchedulePatch`, as JSON."""
    changes = _decode(patch)
    if any(changes.get(name, _NULL) != _NULL for name in _WHEN):
        document = {name: value for name, value in document.items() if name not in _WHEN}
    return _merged(encode(document), changes)


def _merged(text: bytes | msgspec.Raw, changes: dict[str, msgspec.Raw]) -> bytes:
    fields = _decode(text)
    for name, change in changes.items():
        fields.pop(_OTHER_SPELLING.get(name, ""), None)
        if change == _NULL:
            fields.pop(name, None)
        elif name in _REPLACED_WHOLE or not _is_object(change):
            fields[name] = change
        else:
            known = fields.get(name)
            fields[name] = msgspec.Raw(
                _merged(known if known is not None and _is_object(known) else b"{}", _decode(change))
            )
    return encode(fields)


def _is_object(text: msgspec.Raw) -> bool:
    return bytes(text).startswith(b"{")


def changes_between(
    before: dict[str, Any], after: dict[str, Any], path: str = ""
) -> Iterator[ChangeDocument[msgspec.Raw]]:
    """Yield the fields in which two documents differ, with their values; payloads are only named."""
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        field = f"{path}{name}"
        if isinstance(old, dict) and isinstance(new, dict):
            yield from changes_between(old, new, f"{field}.")
        elif name in _REPLACED_WHOLE:
            yield ChangeDocument(field=field, before=None, after=None)
        else:
            yield ChangeDocument(field=field, before=_json(old), after=_json(new))


def _json(value: Any) -> msgspec.Raw:
    return msgspec.Raw(encode(value))
