"""Encrypt and decrypt bytes under the keys of a node, with AES-256-GCM.

Theory of operation. Encrypted bytes say for themselves how they are read:

    head     version 1, length of the key's id, the key's id, salt (16 bytes)
    count    8 bytes
    content  the ciphertext, with its tag of 16 bytes

An `Encryptor` draws a salt, and derives from it and the key the key that it encrypts with (HMAC-SHA256). The nonce is a
count that begins at 0. Key, salt and count are one object that never changes and is never copied: a process makes one at
its start, and another one when it begins to encrypt under another key. So no derived key is ever used twice with the same
nonce, however much is written, and also by a thread that still holds the encryptor of before. Random nonces would limit a
key to 2^32 values (NIST SP 800-38D, section 8.3), which a busy cluster writes in some days.

The associated data are the head and the *place*, a name of the place on the disk. So bytes that were changed, or moved to
another place, are not decrypted.

Left out: an older value that comes back at its own place. The checksums around it show that (`storage.store.seals`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from raftsched.encryption.keys import FIELD, KEY_ID_CHARS_MAX, Key, KeyCheck, KeyMissing
from raftsched.errors import Invalid, RaftschedError

_VERSION: Final = 1
_SALT_BYTES: Final = 16
_HEAD_BYTES: Final = 2 + _SALT_BYTES
"""Bytes of a head without the key's id."""
_COUNT_BYTES: Final = 8
_TAG_BYTES: Final = 16
OVERHEAD_BYTES_MAX: Final = _HEAD_BYTES + KEY_ID_CHARS_MAX + _COUNT_BYTES + _TAG_BYTES
"""Bytes by which encrypted bytes are at most longer than their content."""
_NONCE_FILL: Final = bytes(12 - _COUNT_BYTES)
_PURPOSE: Final = b"raftsched: key of one encryptor"
_DERIVED_KEPT_MAX: Final = 4_096
"""Derived keys kept in memory. One for each encryptor since the data was last re-encrypted; a kilobyte each."""


class DataUnreadable(RaftschedError):
    """Encrypted data on the disk was changed, or is not at the place for which it was encrypted. It was not used.

    The data of the other nodes is not affected.
    """

    code = "data_unreadable"


class Encryptor:
    """Encrypt under one key and one salt, which `random_bytes` draws. May be used by several threads."""

    __slots__ = ("_counts", "_encrypt", "_head", "key_id", "overhead")

    def __init__(self, key: Key, random_bytes: Callable[[int], bytes]) -> None:
        self.key_id = key.id
        key_id = key.id.encode()
        self._head = bytes([_VERSION, len(key_id)]) + key_id + random_bytes(_SALT_BYTES)
        self._encrypt = _derived(key.secret, self._head).encrypt
        self._counts = count()
        self.overhead = len(self._head) + _COUNT_BYTES + _TAG_BYTES
        """Bytes by which encrypted bytes are longer than their content."""

    def encrypt(self, place: bytes, content: bytes) -> bytes:
        """Return `content`, encrypted for `place`."""
        number = next(self._counts).to_bytes(_COUNT_BYTES, "big")
        head = self._head
        return head + number + self._encrypt(_NONCE_FILL + number, content, head + place)

    def encrypt_all(self, place: bytes, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
        """Yield the content of each of `rows`, encrypted for the place that begins with `place` and ends with its key.

        It is `encrypt`, written out: the calls are a third of its cost.
        """
        head, counts, encrypt = self._head, self._counts, self._encrypt
        prefix = head + place
        for key, content in rows:
            number = next(counts).to_bytes(_COUNT_BYTES, "big")
            yield head + number + encrypt(_NONCE_FILL + number, content, prefix + key)


class Cipher:
    """Encrypt under the first of `keys`, and decrypt under all of them; without keys it does neither.

    `random_bytes` draws salts. `source` is the keys file, for child processes. A cipher may be used by several threads.
    """

    def __init__(
        self, keys: Sequence[Key] = (), random_bytes: Callable[[int], bytes] = os.urandom, *, source: Path | None = None
    ) -> None:
        self.keys = tuple(keys)
        self.source = source
        self._secrets = {key.id: key.secret for key in keys}
        self._derived: dict[bytes, AESGCM] = {}
        """The key of each head."""
        self._random_bytes = random_bytes
        self._encryptor = Encryptor(keys[0], random_bytes) if keys else None

    def __bool__(self) -> bool:
        """Return whether it encrypts."""
        return bool(self.keys)

    @property
    def key_id(self) -> str:
        """Return the id of the key under which it encrypts; "" if it does not."""
        return self._encryptor.key_id if self._encryptor else ""

    @property
    def overhead(self) -> int:
        """Return by how many bytes the encrypted bytes of now are longer than their content."""
        return self._encryptor.overhead if self._encryptor else 0

    @property
    def encryptor(self) -> Encryptor:
        """Return what encrypts now; the cipher must have keys. Hold it for bytes that must be under the same key."""
        assert self._encryptor is not None
        return self._encryptor

    @property
    def checks(self) -> tuple[KeyCheck, ...]:
        """Return the names and check values of all keys."""
        return tuple(KeyCheck(key.id, key.check) for key in self.keys)

    def require_known(self, keys: Sequence[Key]) -> None:
        """Raise `Invalid` if one of `keys` has the id of a key of this cipher, and other bytes."""
        for key in keys:
            if self._secrets.get(key.id, key.secret) != key.secret:
                raise Invalid(f"{FIELD}: the key {key.id} has other bytes now: a new key needs a new id", field=FIELD)

    def add(self, keys: Sequence[Key]) -> list[str]:
        """Add keys that only decrypt; return their ids. Those that it has already are left as they are."""
        new = [key for key in keys if key.id not in self._secrets]
        self._secrets |= {key.id: key.secret for key in new}
        self.keys = (*self.keys, *new)
        return [key.id for key in new]

    def encrypt_under(self, key_id: str) -> None:
        """Encrypt under this key from now on, one that it has already: it becomes the first."""
        (first,) = (key for key in self.keys if key.id == key_id)
        self.keys = (first, *(key for key in self.keys if key.id != key_id))
        self._encryptor = Encryptor(first, self._random_bytes)

    def encrypt(self, place: bytes, content: bytes) -> bytes:
        """Return `content`, encrypted for `place`; the cipher must have keys."""
        return self.encryptor.encrypt(place, content)

    def decrypt(self, place: bytes, encrypted: bytes) -> bytes:
        """Return the content of bytes that were encrypted for `place`. Raises `DataUnreadable`, and `KeyMissing`."""
        length = len(encrypted)
        end = _HEAD_BYTES + encrypted[1] if length > 1 else length
        begin = end + _COUNT_BYTES
        if length < begin + _TAG_BYTES:
            raise DataUnreadable(_UNREADABLE)
        head = encrypted[:end]
        derived = self._derived.get(head) or self._derive(head, _key_id(head))
        try:
            return derived.decrypt(_NONCE_FILL + encrypted[end:begin], encrypted[begin:], head + place)
        except InvalidTag:
            raise DataUnreadable(_UNREADABLE) from None

    def _derive(self, head: bytes, key_id: str) -> AESGCM:
        secret = self._secrets.get(key_id)
        if secret is None:
            raise KeyMissing(
                f"data is encrypted under the key {key_id}, which the keys file of this node does not have"
            )
        if len(self._derived) >= _DERIVED_KEPT_MAX:
            self._derived = {}
        derived = self._derived[head] = _derived(secret, head)
        return derived


def _derived(secret: bytes, head: bytes) -> AESGCM:
    return AESGCM(hmac.digest(secret, _PURPOSE + head, hashlib.sha256))


_UNREADABLE: Final = "it was changed after it was written, or belongs to another place"


def key_id_of(encrypted: bytes) -> str:
    """Return the id of the key under which bytes were encrypted; raises `DataUnreadable`."""
    end = _HEAD_BYTES + encrypted[1] if len(encrypted) > 1 else 0
    if len(encrypted) < end + _COUNT_BYTES + _TAG_BYTES:
        raise DataUnreadable(_UNREADABLE)
    return _key_id(encrypted[:end])


def _key_id(head: bytes) -> str:
    if not head or head[0] != _VERSION:
        raise DataUnreadable(_UNREADABLE)
    try:
        return head[2:-_SALT_BYTES].decode("ascii")
    except UnicodeDecodeError:
        raise DataUnreadable(_UNREADABLE) from None


NO_KEYS: Final = Cipher()
"""The cipher of a node without keys. It decrypts nothing."""
