"""What makes a job unique, as a digest: equal jobs have equal digests, whatever the order of keys in their payloads."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from raftsched.errors import Invalid
from raftsched.wire.jobs import UniqueRequest

_DIGEST_BYTES: Final = 16
_canonical = msgspec.json.Encoder(order="sorted").encode


def digest_of(value: Any) -> bytes:
    """Return the digest of a document of plain objects, whatever the order of its keys."""
    return hashlib.blake2b(_canonical(value), digest_size=_DIGEST_BYTES).digest()


def unique_key(unique: UniqueRequest, name: str, payload: msgspec.Raw | UnsetType, prefix: str) -> bytes:
    """Return the digest of what must not be there twice; raises `Invalid` where `by` and `key` don't fit."""
    by = unique.by or (["name", "payload"] if unique.key is None else ["name", "key"])
    if ("key" in by) != (unique.key is not None):
        field = f"{prefix}unique.key"
        raise Invalid(f"{field}: must be given exactly where `by` names it", field=field)
    values = {
        "name": name,
        "key": unique.key,
        "payload": None if payload is UNSET or "payload" not in by else json.loads(bytes(payload)),
    }
    return digest_of({part: values[part] for part in by})
