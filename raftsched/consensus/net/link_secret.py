"""Authenticate a link by a secret that all nodes of the cluster share, for clusters without TLS between nodes.

    dialing node    ── hello + nonce ──►   accepting node
                    ◄── hello + nonce ──
                    ◄── sealed ping ───
                    ── sealed ping ────►   linked

Each side sends a fresh nonce in its hello. Both derive one key for each direction: HMAC-SHA256, under the secret, of
the direction, the cluster's name, both node ids and both nonces. Each later frame carries a MAC under the key of its
direction, of its number and its bytes. The first sealed frame of each side proves that it holds the secret and has seen
this very pair of nonces, so a link is up only after it.

A node may hold two secrets while one replaces the other. It seals with the first, and takes the first frame of the other
side under any of them; the rest of the link is then under that one. So the two directions of a link may have different
secrets. A new list of secrets is for new links: an open one keeps its keys.

A recorded handshake is worth nothing on a new link, since the other side's nonce differs. A frame that is altered,
repeated, left out, moved to another link or sent back to its sender has the wrong MAC, and ends the link.

Left out: encryption. Whoever can read the network reads all that nodes exchange. TLS hides it (`peer_tls`). A secret is
as strong as it is hard to guess: one recorded handshake is enough to try guesses against.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgpack

from raftsched.consensus.raft.messages import Message
from raftsched.errors import Invalid
from raftsched.limits import FRAME_BYTES_MAX

NONCE_BYTES: Final = 32
MAC_BYTES: Final = 16
"""The first half of HMAC-SHA256: 128 bits, each guess of which costs a new link."""
SECRET_BYTES_MIN: Final = 32
_SECRET_BYTES_MAX: Final = 4096
SECRETS_MAX: Final = 2
"""The present one and the one that it replaces, or that replaces it."""
_FILE_BYTES_MAX: Final = 3 * _SECRET_BYTES_MAX
_LABEL: Final = "raftsched link 1"
_TO_ACCEPTING: Final = "to the accepting node"
_TO_DIALING: Final = "to the dialing node"
_NUMBER_BYTES: Final = 8
_PROOF_BYTES_MAX: Final = 64
"""More than a ping has."""


def read_secrets(path: Path, *, setting: str = "cluster_secret_file") -> tuple[bytes, ...]:
    """Return the secrets in a file, one a line, without white space around them; empty lines do not count.

    Raises `Invalid` naming the setting, the file and the line.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise Invalid(f"{setting}: {path}: {error.strerror}", field=setting) from error
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    secrets_found = tuple(line for _, line in lines)
    for position, (number, secret) in enumerate(lines or [(1, b"")]):
        if fault := _fault_of(secret, secrets_found[:position]):
            raise Invalid(f"{setting}: {path}: line {number}: {fault}", field=setting)
    return secrets_found


def _fault_of(secret: bytes, before: Sequence[bytes]) -> str:
    """Return what is wrong with a secret behind others; "" if nothing is."""
    if len(before) == SECRETS_MAX:
        return f"expected at most {SECRETS_MAX} secrets: remove those that no node uses any more"
    if not SECRET_BYTES_MIN <= len(secret) <= _SECRET_BYTES_MAX:
        return f"{len(secret)} bytes, expected {SECRET_BYTES_MIN} to {_SECRET_BYTES_MAX}; make one with: openssl rand -hex 32"
    if not all(0x20 <= byte < 0x7F for byte in secret):
        return "expected letters, digits and signs of ASCII; make one with: openssl rand -hex 32"
    return "it is the same secret as before" if secret in before else ""


def with_nonce(hello: Message) -> Message:
    """Return the hello of one link, with a nonce that was never used."""
    return {**hello, "nonce": secrets.token_bytes(NONCE_BYTES)}


class LinkSeal:
    """The MACs of one link: those of the frames that this side sends, and of those that it receives."""

    __slots__ = ("_received_count", "_receiving_keys", "_sending_key", "_sent_count")

    def __init__(self, secrets: Sequence[bytes], *, own: Message, other: Message, dialed: bool) -> None:
        """Derive the keys from both hellos; `dialed` if this side has dialed. It seals with the first of `secrets`."""
        dialing, accepting = (own, other) if dialed else (other, own)
        sending, receiving = (_TO_ACCEPTING, _TO_DIALING) if dialed else (_TO_DIALING, _TO_ACCEPTING)
        self._sending_key = _key(secrets[0], sending, dialing, accepting)
        self._receiving_keys = [_key(secret, receiving, dialing, accepting) for secret in secrets]
        """One for each secret; after the first frame that of the other side's."""
        self._sent_count = self._received_count = 0

    def sealed(self, frames: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the next frames to send, each followed by its MAC."""
        for frame in frames:
            yield frame
            yield _mac(self._sending_key, self._sent_count, frame)
            self._sent_count += 1

    def is_genuine(self, frame: memoryview, mac: memoryview) -> bool:
        """Return whether `frame` is the next one that the other side has sent; if not, the link is unusable."""
        number, self._received_count = self._received_count, self._received_count + 1
        fitting = [key for key in self._receiving_keys if hmac.compare_digest(_mac(key, number, frame), mac)]
        if not fitting:
            return False
        self._receiving_keys = fitting
        return True

    @property
    def frame_bytes_max(self) -> int:
        """Return the size of the largest frame to accept: a small one until the other side has proved itself."""
        return FRAME_BYTES_MAX if self._received_count else _PROOF_BYTES_MAX


def _key(secret: bytes, direction: str, dialing: Message, accepting: Message) -> bytes:
    said = [
        _LABEL,
        direction,
        dialing["cluster"],
        dialing["version"],
        dialing["node"],
        accepting["node"],
        dialing["nonce"],
        accepting["nonce"],
    ]
    return hmac.digest(secret, msgpack.packb(said), "sha256")


def _mac(key: bytes, number: int, frame: bytes | memoryview) -> bytes:
    return hmac.digest(key, number.to_bytes(_NUMBER_BYTES, "big") + frame, "sha256")[:MAC_BYTES]
