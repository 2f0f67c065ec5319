"""Frames for the Raft port: real ones of every kind, and ways to spoil them."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

import msgpack

from raftsched.consensus.net import framing
from raftsched.consensus.net.framing import MESSAGE_SHAPES, FrameDecoder, FrameError, check_message, encode_frame
from raftsched.consensus.raft.messages import Message

NATURALS: Final = (0, 1, 2, 127, 128, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1)
LENGTHS: Final = (0, 1, 2, 2**16, 16 * 2**20, 16 * 2**20 + 1, 2**31 - 1, 2**31, 2**32 - 1)
BODIES: Final = (
    b"",
    b"\x81\xa4type\xc7\x01\x05x",  # an extension
    b"\x81\xa4type" + b"\x91" * 500,  # deep
    b"\xdd\xff\xff\xff\xff",  # an array of 4 billion
    b"\xdf\xff\xff\xff\xff",  # a map of as many
    b"\xdb\xff\xff\xff\xff",  # a text of as many
    msgpack.packb({"type": "ping", "extra": 1}),
    msgpack.packb([{"type": "ping"}]),
    pickle.dumps({"type": "append_entries", "term": 1}),
)
HELLO: Final[Message] = {"type": "hello", "node": "n4", "cluster": "raftsched", "version": 1}
PING: Final = encode_frame({"type": "ping"})


def real_message(random: Random) -> Message:
    """A message that both sides accept, of any kind but hello, with any values."""
    while True:
        kind = random.choice([kind for kind in MESSAGE_SHAPES if kind != "hello"])
        shape = MESSAGE_SHAPES[kind]
        fields = [name for name in shape.fields if name in shape.required or random.random() < 0.5]
        message = {name: _value(shape.fields[name], random) for name in fields} | {"type": kind}
        try:
            check_message(message)
        except FrameError:
            continue  # entries that do not follow on
        return message


def _value(field: Callable[[object], bool], random: Random) -> Any:
    values: dict[Any, Callable[[], Any]] = {
        framing.natural: lambda: random.choice(NATURALS),
        framing.flag: lambda: random.random() < 0.5,
        framing.name: lambda: "n" * random.choice((1, 2, 255)),
        framing.blob: lambda: random.randbytes(random.choice((0, 1, 100))),
        framing.entries: list,
    }
    return values[field]()


def _flip(frame: bytes, random: Random) -> bytes:
    spoiled = bytearray(frame)
    for _ in range(random.randint(1, 4)):
        spoiled[random.randrange(len(spoiled))] ^= 1 << random.randrange(8)
    return bytes(spoiled)


def _insert(frame: bytes, random: Random) -> bytes:
    at = random.randrange(len(frame) + 1)
    return frame[:at] + random.randbytes(random.randint(1, 8)) + frame[at:]


def _cut(frame: bytes, random: Random) -> bytes:
    return frame[: random.randrange(len(frame))]


def _long(frame: bytes, random: Random) -> bytes:
    return struct.pack(">I", random.choice(LENGTHS)) + frame[4:]


def _strange(_frame: bytes, random: Random) -> bytes:
    body = random.choice(BODIES)
    return struct.pack(">I", len(body)) + body


def _noise(_frame: bytes, random: Random) -> bytes:
    return random.randbytes(random.choice((1, 4, 5, 64, 2000)))


def _spliced(frame: bytes, random: Random) -> bytes:
    other = encode_frame(real_message(random))
    return frame[: random.randrange(len(frame))] + other[random.randrange(len(other)) :]


def _again(_frame: bytes, _random: Random) -> bytes:
    return encode_frame(HELLO)


_SPOILINGS: Final = (_flip, _insert, _cut, _long, _strange, _noise, _spliced, _again)


def spoiled_frame(random: Random) -> bytes:
    """A frame that no node may accept: what it is made from is a real one."""
    while True:
        spoiling = random.choice(_SPOILINGS)
        spoiled = spoiling(encode_frame(real_message(random)), random)
        if not _is_accepted(spoiled):
            return spoiled


def any_frame(random: Random) -> bytes:
    """A frame that may be real, or anything else."""
    return encode_frame(real_message(random)) if random.random() < 0.3 else spoiled_frame(random)


def is_harmless(frames: list[bytes]) -> bool:
    """Whether a node takes nothing but pings out of these frames; cut-off ones together may be a real message."""
    decoder = FrameDecoder()
    decoder.feed(encode_frame(HELLO))
    with suppress(FrameError):
        for frame in frames:
            if any(message["type"] != "ping" for message in decoder.feed(frame)):
                return False
    return True


def _is_accepted(data: bytes) -> bool:
    """Whether a node would take a message out of it."""
    decoder = FrameDecoder()
    decoder.feed(encode_frame(HELLO))
    try:
        return bool(decoder.feed(data))
    except FrameError:
        return False
