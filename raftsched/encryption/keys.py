"""Read the keys of a node from its keys file, and compare them with the keys that data on its disk needs.

Each line of the file is an id and 32 bytes in base64, separated by a space; lines that begin with `#` are comments. The
first key encrypts what is written from now on, and the others only decrypt. All nodes of a cluster have the same file.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from raftsched.errors import Invalid, RaftschedError

FIELD: Final = "encryption.keys_file"
KEY_BYTES: Final = 32
KEYS_MAX: Final = 16
"""Keys in one file; each rotation adds one, and those that no node needs any more can be removed."""
_FILE_BYTES_MAX: Final = 64 * 1024
KEY_ID_CHARS_MAX: Final = 32
_is_id: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{KEY_ID_CHARS_MAX - 1}}}").fullmatch
_CHECK: Final = b"raftsched: check value of a key"
_CHECK_BYTES: Final = 8


class Key(NamedTuple):
    """Carry a key of AES-256 and its id."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Key({self.id!r}, …)"

    @property
    def check(self) -> str:
        """Return a value by which another key of the same id is recognized. It does not reveal the key."""
        return hmac.digest(self.secret, _CHECK, hashlib.sha256)[:_CHECK_BYTES].hex()


class KeyCheck(msgspec.Struct, frozen=True, array_like=True):
    """Name a key that data on a disk needs, without revealing it."""

    id: str
    check: str
    """`Key.check`."""


class KeyMissing(RaftschedError):
    """Data on the disk is encrypted under a key that the keys file of this node does not have, or has with other bytes.

    Nothing was changed. The data can be read once the key is in the file.
    """

    code = "encryption_key_missing"


def read_keys(path: Path) -> tuple[Key, ...]:
    """Return the keys of a file, the first one first; raises `Invalid` naming the line at fault, never its content."""
    try:
        status = path.stat()
        if status.st_size > _FILE_BYTES_MAX:
            raise _invalid(f"{path} has more than {_FILE_BYTES_MAX} bytes: this is no keys file")
        if status.st_mode & stat.S_IRWXO:
            raise _invalid(f"{path} can be read by every user of this machine: run `chmod 0600 {path}`")
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it has characters that are not ASCII"
        raise _invalid(f"{path} can't be read: {reason}") from error
    texts = [(number, line.strip()) for number, line in enumerate(lines, 1)]
    keys = tuple(_key(text, f"{path}, line {number}") for number, text in texts if text and not text.startswith("#"))
    if not 1 <= len(keys) <= KEYS_MAX:
        raise _invalid(f"{path} has {len(keys)} keys, and must have 1 to {KEYS_MAX}: lines `ID BASE64`")
    if repeated := _repeated([key.id for key in keys]) or _repeated([key.check for key in keys]):
        raise _invalid(f"{path} has a key twice: {repeated}")
    return keys


def require_keys(needed: Sequence[KeyCheck], keys: Sequence[Key], *, whose: str) -> None:
    """Raise `KeyMissing`, naming the ids, unless `keys` has all that is `needed`; `whose` names the data."""
    known = {key.id: key.check for key in keys}
    missing = [each.id for each in needed if each.id not in known]
    if missing:
        has = f"the keys file has only {', '.join(known)}" if known else f"{FIELD} is not set"
        raise KeyMissing(
            f"{whose} is encrypted under the key {', '.join(missing)}, and {has}: add the key, with the bytes that it had"
        )
    wrong = [each.id for each in needed if known[each.id] != each.check]
    if wrong:
        raise KeyMissing(
            f"{whose} is encrypted under the key {', '.join(wrong)}, and the keys file has other bytes under that id: "
            "put the original key back; a new key needs a new id"
        )


def _key(text: str, place: str) -> Key:
    key_id, _, encoded = text.partition(" ")
    if not _is_id(key_id):
        raise _invalid(f"{place}: an id has 1 to 32 letters, digits, dots, dashes and underscores")
    try:
        secret = base64.b64decode(encoded.strip(), validate=True)
    except binascii.Error as error:
        raise _invalid(f"{place}: the key {key_id} is not base64") from error
    if len(secret) != KEY_BYTES:
        raise _invalid(f"{place}: the key {key_id} has {len(secret)} bytes, and must have {KEY_BYTES}")
    return Key(key_id, secret)


def _repeated(texts: Sequence[str]) -> str:
    return next((text for position, text in enumerate(texts) if text in texts[:position]), "")


def _invalid(message: str) -> Invalid:
    return Invalid(f"{FIELD}: {message}", field=FIELD)
