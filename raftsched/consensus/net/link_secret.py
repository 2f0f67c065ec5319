"""Authenticate a link by a secret that all nodes of the cluster share, for clusters without TLS between nodes.

    dialing node    ── hello + nonce ──►   accepting node
                    ◄── hello + nonce ──
                    ◄── sealed ping ───
                    ── sealed ping ────►   linked

Each side sends a fresh nonce in its hello. Both derive one key for each direction: HMAC-SHA256, under the secret, of
the direction, the cluster's name, both node ids and both nonces. Each later frame carries a MAC under the key of its
direction, of its number and its bytes. The first sealed frame of each side proves that it holds the secret and has seen
this very pair of nonces, so a link is up only after it.

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
_LABEL: Final = "raftsched link 1"
_NUMBER_BYTES: Final = 8
_PROOF_BYTES_MAX: Final = 64
"""More than a ping has."""


def read_secret(path: Path, *, setting: str = "cluster_secret_file") -> bytes:
    """Return the secret in a file, without white space around it; raises `Invalid` naming the setting and the file."""
    try:
        with path.open("rb") as file:
            secret = file.read(_SECRET_BYTES_MAX + 1).strip()
    except OSError as error:
        raise Invalid(f"{setting}: {path}: {error.strerror}", field=setting) from error
    if not SECRET_BYTES_MIN <= len(secret) <= _SECRET_BYTES_MAX:
        raise Invalid(
            f"{setting}: {path}: {len(secret)} bytes, expected {SECRET_BYTES_MIN} to {_SECRET_BYTES_MAX}; "
            f"make one with: openssl rand -hex 32 > {path}",
            field=setting,
        )
    return secret


def with_nonce(hello: Message) -> Message:
    """Return the hello of one link, with a nonce that was never used."""
    return {**hello, "nonce": secrets.token_bytes(NONCE_BYTES)}


class LinkSeal:
    """The MACs of one link: those of the frames that this side sends, and of those that it receives."""

    __slots__ = ("_received_count", "_receiving_key", "_sending_key", "_sent_count")

    def __init__(self, secret: bytes, *, own: Message, other: Message, dialed: bool) -> None:
        """Derive the keys from both hellos; `dialed` if this side has dialed."""
        dialing, accepting = (own, other) if dialed else (other, own)
        to_accepting = _key(secret, "to the accepting node", dialing, accepting)
        to_dialing = _key(secret, "to the dialing node", dialing, accepting)
        self._sending_key, self._receiving_key = (to_accepting, to_dialing) if dialed else (to_dialing, to_accepting)
        self._sent_count = self._received_count = 0

    def sealed(self, frames: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the next frames to send, each followed by its MAC."""
        for frame in frames:
            yield frame
            yield _mac(self._sending_key, self._sent_count, frame)
            self._sent_count += 1

    def is_genuine(self, frame: memoryview, mac: memoryview) -> bool:
        """Return whether `frame` is the next one that the other side has sent; if not, the link is unusable."""
        expected = _mac(self._receiving_key, self._received_count, frame)
        self._received_count += 1
        return hmac.compare_digest(expected, mac)

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
