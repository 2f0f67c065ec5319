"""Encrypt the commands in records of the journal, and decrypt them.

Theory of operation. Only commands hold what users have sent; all else in a journal are numbers and names of nodes. The
checksum of a record covers its encrypted body. So torn tails and rot are found as in a plain journal, and without keys.
The body is bound to the kind, index and term of its record. A segment can have plain and encrypted records, in any order.
"""

from __future__ import annotations

import struct
from typing import Final

from raftsched.consensus.journal.segments import ENCRYPTED, ENTRY, RESET, JournalCorrupt, Record, segment_name
from raftsched.encryption.cipher import Cipher, DataUnreadable

_COMMANDS: Final = frozenset({ENTRY, RESET})
_place: Final = struct.Struct(">8sBQQ").pack
_JOURNAL: Final = b"journal"


def encrypted_records(records: list[Record], cipher: Cipher) -> list[Record]:
    """Return the records as they are written."""
    return [_encrypted(record, cipher) for record in records] if cipher else records


def decrypted_record(record: Record, cipher: Cipher, *, segment: int, offset: int) -> Record:
    """Return a record that was read at `offset` of `segment` as it was before it was written.

    Raises `JournalCorrupt` if it was changed with care, so that its checksum fits, and `KeyMissing`.
    """
    kind, index, term, body = record
    if not kind & ENCRYPTED:
        return record
    kind ^= ENCRYPTED
    try:
        return kind, index, term, cipher.decrypt(_place(_JOURNAL, kind, index, term), body)
    except DataUnreadable as error:
        raise JournalCorrupt(segment_name(segment), offset, f"the record can't be decrypted: {error}") from None


def _encrypted(record: Record, cipher: Cipher) -> Record:
    kind, index, term, command = record
    if kind not in _COMMANDS:
        return record
    return kind | ENCRYPTED, index, term, cipher.encrypt(_place(_JOURNAL, kind, index, term), command)
