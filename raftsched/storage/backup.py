r"""Define the format of a backup: a copy of the state in one file or stream that shows whether it is whole.

    raftsched backup 1\n        the format and its version
    {...}\n                     `Manifest`, one line of JSON
    content_bytes bytes         the copy: LMDB's `data.mdb`, as the node stores it
    end SHA-256\n               of all bytes before it, in hexadecimal

The end tells a whole stream from one that was cut off, whoever cut it. The digest of the content is in the manifest too,
so that the content alone can be checked. Rows have their own seals; they are verified before the manifest is written,
and again by a restore.

A copy of a node with keys holds the rows as its disk does: encrypted. The manifest names the keys without which they
can't be read. The manifest itself is plain: it tells names, times and sizes, nothing of jobs.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from raftsched.core.records.texts import time_text
from raftsched.encryption.cipher import Cipher
from raftsched.encryption.keys import KeyCheck
from raftsched.errors import RaftschedError
from raftsched.storage.directory import open_readonly
from raftsched.storage.store.lmdb_store import open_read_only
from raftsched.storage.store.port import CopyFailed, DamagedCopy, Table
from raftsched.storage.store.row_codec import KEYS_KEY, needed_keys
from raftsched.storage.tables.position import FORMAT_VERSION as STATE_FORMAT
from raftsched.storage.verification import row_faults, verify_elsewhere

FORMAT_VERSION: Final = 1
_NAME: Final = b"raftsched backup "
_HEAD: Final = b"%s%d\n" % (_NAME, FORMAT_VERSION)
_END: Final = b"end "
_END_BYTES: Final = len(_END) + 2 * hashlib.sha256().digest_size + 1
_HEAD_BYTES_MAX: Final = 64
_MANIFEST_BYTES_MAX: Final = 64 * 1024
_CHUNK_BYTES: Final = 256 * 1024


class DamagedBackup(RaftschedError):
    """The file is no backup, is not whole, or is in a format that this release does not read."""

    code = "damaged_backup"


class NeededKey(msgspec.Struct, frozen=True):
    """Name a key without which a backup can't be read."""

    id: str
    check: str
    """A value by which another key of the same id is recognized; it does not reveal the key."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a backup."""

    cluster: str
    """Name of the cluster, which is its identity."""
    node: str
    """The node whose state it is."""
    applied_index: int
    """Index of the last log entry whose effects it holds."""
    applied_term: int
    fencing_token: int
    """The last fencing token that was issued until then."""
    cluster_time: str
    taken_at: str
    release: str
    """The release that wrote it."""
    state_format: int
    operation_version: int
    keys: tuple[NeededKey, ...]
    """The keys of its encrypted rows; without them it can't be restored."""
    content_bytes: int
    content_sha256: str

    def key_checks(self) -> tuple[KeyCheck, ...]:
        """Return `keys` as directories of nodes record them."""
        return tuple(KeyCheck(key.id, key.check) for key in self.keys)


def describe(copy: Path, cipher: Cipher, *, cluster: str, node: str, taken_at_ms: int, release: str) -> Manifest:
    """Verify every row of a copy, and return its manifest. Blocks; a child process reads the rows.

    Raises `DamagedCopy`, `KeyMissing`, and `CopyFailed` if only the child failed.
    """
    if found := verify_elsewhere(copy, cipher):
        _require_sound(copy, cipher)
        raise CopyFailed(f"the copy can't be verified: {found[0]}")
    reader = open_readonly(copy, cipher)
    reader.close()
    content_bytes, digest = _measured(copy)
    return Manifest(
        cluster=cluster,
        node=node,
        applied_index=reader.applied_index,
        applied_term=reader.applied_term,
        fencing_token=reader.fence,
        cluster_time=time_text(reader.cluster_time_ms),
        taken_at=time_text(taken_at_ms),
        release=release,
        state_format=STATE_FORMAT,
        operation_version=reader.operation_version,
        keys=_needed_keys(copy, cipher),
        content_bytes=content_bytes,
        content_sha256=digest,
    )


class OpenBackup:
    """A backup of a copy that is open; `close` must be called."""

    def __init__(self, manifest: Manifest, content: IO[bytes]) -> None:
        self.manifest = manifest
        self._content = content

    def parts(self) -> Iterator[bytes]:
        """Yield its bytes, once; see `stream`."""
        return stream(self.manifest, self._content)

    def close(self) -> None:
        """Close the copy; if it has no name any more, its space is free then."""
        self._content.close()


def stream(manifest: Manifest, content: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a backup, `stream_bytes` in all; `content` is an open copy. Blocks for the disk.

    Raises `DamagedCopy` if the copy is not the one that the manifest describes.
    """
    digest = hashlib.sha256()
    for part in (_HEAD, _encoded(manifest)):
        digest.update(part)
        yield part
    left = manifest.content_bytes
    while left:
        part = content.read(min(_CHUNK_BYTES, left))
        if not part:
            raise DamagedCopy("the copy has lost its end")
        left -= len(part)
        digest.update(part)
        yield part
    yield _end(digest.hexdigest())


def stream_bytes(manifest: Manifest) -> int:
    """Return the size of a whole backup."""
    return len(_HEAD) + len(_encoded(manifest)) + manifest.content_bytes + _END_BYTES


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of a backup, of which nothing else is checked. Raises `DamagedBackup` and OSError."""
    check = BackupCheck(str(path))
    with path.open("rb") as file:
        check.feed(file.read(len(_HEAD) + _MANIFEST_BYTES_MAX))
    return check.manifest or check.finish()


def verify(path: Path) -> Manifest:
    """Check the length and the digests of a backup, and return its manifest. Needs no keys.

    Raises `DamagedBackup` and OSError.
    """
    return _read(path, lambda _: None)


def extract(path: Path, copy: Path) -> Manifest:
    """Write the content of a backup to a new file, synced, while checking it as `verify` does; return the manifest.

    Raises `DamagedBackup` and OSError; then there is no file.
    """
    try:
        with os.fdopen(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            manifest = _read(path, file.write)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise
    except BaseException:
        copy.unlink(missing_ok=True)
        raise
    return manifest


class BackupCheck:
    """Check the bytes of a backup as they arrive, and give its content to `take`. `name` is for error texts."""

    def __init__(self, name: str, take: Callable[[bytes], object] = lambda _: None) -> None:
        self.manifest: Manifest | None = None
        """None until it has arrived."""
        self._name = name
        self._take = take
        self._begun = bytearray()
        """Bytes of the head, and later of the end."""
        self._whole, self._content = hashlib.sha256(), hashlib.sha256()
        self._left = 0
        self.total_bytes = 0
        """Size of the whole backup; 0 until the manifest has arrived."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises `DamagedBackup` as soon as they can't be right."""
        if self.manifest is None:
            self._begun += data
            data = self._after_head()
        content, rest = data[: self._left], data[self._left :]
        if content:
            self._left -= len(content)
            self._whole.update(content)
            self._content.update(content)
            self._take(content)
        if rest:
            self._begun += rest
            if len(self._begun) > _END_BYTES:
                raise self._damaged("there are bytes behind its end")

    def finish(self) -> Manifest:
        """Return the manifest once all bytes were given. Raises `DamagedBackup` if any is missing or changed."""
        if self.manifest is None:
            self._require_name(bytes(self._begun))
            raise DamagedBackup(f"{self._name} was cut short, within its manifest")
        missing = self._left + _END_BYTES - len(self._begun)
        if self._left or missing > 0:
            found = self.total_bytes - missing
            raise DamagedBackup(f"{self._name} was cut short: it has {found:,} of {self.total_bytes:,} bytes")
        is_right = self._content.hexdigest() == self.manifest.content_sha256
        if not is_right or bytes(self._begun) != _end(self._whole.hexdigest()):
            raise self._damaged("its bytes are not those that were written")
        return self.manifest

    def _after_head(self) -> bytes:
        """Read the head, if all of it is there, and return the bytes behind it."""
        if len(self._begun) >= _HEAD_BYTES_MAX or b"\n" in self._begun:
            self._require_name(bytes(self._begun))
        end = self._begun.find(b"\n", len(_HEAD))
        if end < 0:
            if len(self._begun) > _MANIFEST_BYTES_MAX:
                raise self._damaged("its manifest does not end")
            return b""
        head, rest = bytes(self._begun[: end + 1]), bytes(self._begun[end + 1 :])
        try:
            self.manifest = manifest = _decode(head[len(_HEAD) :])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._damaged(f"its manifest can't be read: {error}") from None
        self._begun.clear()
        self._whole.update(head)
        self._left = manifest.content_bytes
        self.total_bytes = len(head) + self._left + _END_BYTES
        return rest

    def _require_name(self, begun: bytes) -> None:
        if not begun.startswith(_NAME):
            raise DamagedBackup(f"{self._name} is not a backup of raftsched")
        if not begun.startswith(_HEAD):
            version = begun[len(_NAME) : _HEAD_BYTES_MAX].partition(b"\n")[0].decode("ascii", "replace")
            raise DamagedBackup(
                f"{self._name} is a backup in format {version}, and this release reads {FORMAT_VERSION}: use the release "
                "that wrote it"
            )

    def _damaged(self, reason: str) -> DamagedBackup:
        return DamagedBackup(f"{self._name} is damaged: {reason}")


def _read(path: Path, take: Callable[[bytes], object]) -> Manifest:
    """Read a whole backup, give its content to `take`, and return its manifest."""
    check = BackupCheck(str(path), take)
    with path.open("rb") as file:
        while data := file.read(_CHUNK_BYTES):
            check.feed(data)
    return check.finish()


_decode: Final = msgspec.json.Decoder(Manifest).decode


def _encoded(manifest: Manifest) -> bytes:
    return msgspec.json.encode(manifest) + b"\n"


def _end(digest: str) -> bytes:
    return b"%s%s\n" % (_END, digest.encode("ascii"))


def _require_sound(copy: Path, cipher: Cipher) -> None:
    """Raise `DamagedCopy` for a fault of the copy, and not of the child: its keys file may be gone, or its memory."""
    for fault in row_faults(copy, cipher):
        raise DamagedCopy(f"the copy {copy.name} is damaged: {fault}")


def _measured(path: Path) -> tuple[int, str]:
    """Return the size of a file, and the SHA-256 of its bytes."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), digest


def _needed_keys(copy: Path, cipher: Cipher) -> tuple[NeededKey, ...]:
    store = open_read_only(copy, cipher)
    try:
        return tuple(NeededKey(key.id, key.check) for key in needed_keys(store.get(Table.META, KEYS_KEY)))
    finally:
        store.close()
