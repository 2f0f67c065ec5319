"""Encode JSON fast, and never silently different from the caller's values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from raftsched.errors import Invalid

_encode = msgspec.json.Encoder().encode


def encode_document(value: object, *, field: str) -> bytes:
    """Return `value` as JSON text.

    Besides JSON's types it takes dataclasses, msgspec Structs, datetimes, UUIDs, enums, sets, bytes (as base64). Raises
    `Invalid` naming `field` for a value without a JSON form, NaN and infinities included.
    """
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        raise Invalid(f"{field}: has no JSON form: {error}", field=field) from None
    # msgspec writes NaN as null. The search costs nothing if the text has no null, which is nearly always.
    if b"null" in text and _has_non_finite(value):
        raise Invalid(f"{field}: NaN and infinities have no JSON form", field=field)
    return text


def encode_fields(document: msgspec.Struct | Mapping[str, object], *, whole: str) -> bytes:
    """Return `document` as JSON text; raises `Invalid` naming the first field without a JSON form, else `whole`."""
    try:
        return encode_document(document, field=whole)
    except Invalid:
        fields = document if isinstance(document, Mapping) else msgspec.structs.asdict(document)
        for name, value in fields.items():
            encode_document(value, field=name)
        raise


def _has_non_finite(value: object) -> bool:
    """Return whether any float within `value` is NaN or infinite; `value` must have no cycles."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, str | bytes | int) or value is None:
        return False
    if isinstance(value, Mapping):
        return any(map(_has_non_finite, value.values()))
    if isinstance(value, Iterable):
        return any(map(_has_non_finite, value))
    return any(map(_has_non_finite, _attributes(value)))


def _attributes(value: object) -> Iterable[object]:
    """Return the field values of a Struct, dataclass or attrs object."""
    names = getattr(value, "__struct_fields__", None) or getattr(value, "__dataclass_fields__", None)
    if names is None:
        names = [attribute.name for attribute in getattr(value, "__attrs_attrs__", ())]
    return [getattr(value, name) for name in names]
