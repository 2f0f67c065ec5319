"""Encode and decode the frames between nodes: a length, then one msgpack map. It uses no sockets and no clock.

    frame   = length (4 bytes, big-endian, unsigned) + body (msgpack map, `length` bytes)
    stream  = hello, then any other messages

A message is a plain map whose `type` is one of `MESSAGE_SHAPES`. That table is closed: both sides reject an unknown
type, a missing or unknown field, and a value of the wrong type or range. So invalid data never reaches the engine, and
no message is sent that its receiver would reject. The values are integers, booleans, text and bytes; msgpack's
extension types are rejected, so data from the network cannot name a class or run code.

The first frame of a stream must be small, because its sender is not identified yet. The shape of `hello` never changes,
so that any two versions of raftsched can detect that they differ. It has a `nonce` if the cluster has a secret; each
later frame is followed by a MAC then (`link_secret.py`).

Left out: compression (payloads are small, the links are local) and checksums (TCP, TLS and the journal have their own).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

import msgpack

from raftsched.consensus.net.link_secret import MAC_BYTES, NONCE_BYTES, LinkSeal
from raftsched.consensus.raft.messages import Message
from raftsched.errors import RaftschedError
from raftsched.limits import FRAME_BYTES_MAX, FRAME_ITEMS_MAX, HELLO_BYTES_MAX

PROTOCOL_VERSION: Final = 1
"""Rises with every change of `MESSAGE_SHAPES` that an older node would reject."""

_HEADER = struct.Struct(">I")
_INTEGER_MAX = 2**63 - 1
_NAME_CHARS_MAX = 255
_FIELDS_MAX = 32


class FrameError(RaftschedError):
    """The bytes are not a frame of this protocol; nothing of them was used."""

    code = "bad_frame"


class ForgedFrame(FrameError):
    """The MAC of a frame is wrong: its sender has another secret, or the frame was altered, repeated or moved."""

    code = "wrong_mac"


# -- fields -----------------------------------------------------------------------------------------------------------

Field = Callable[[object], bool]
"""Return whether a value is allowed in a field."""


def natural(value: object) -> bool:
    """Return whether it is an integer from 0 to 2^63 - 1, and not a bool."""
    return type(value) is int and 0 <= value <= _INTEGER_MAX


def flag(value: object) -> bool:
    return type(value) is bool


def name(value: object) -> bool:
    """Return whether it is a text of 1 to 255 characters."""
    return type(value) is str and 0 < len(value) <= _NAME_CHARS_MAX


def blob(value: object) -> bool:
    return type(value) is bytes


def nonce(value: object) -> bool:
    return type(value) is bytes and len(value) == NONCE_BYTES


def entries(value: object) -> bool:
    """Return whether it is a list of log entries: (command, index, term) each."""
    return isinstance(value, (list, tuple)) and len(value) <= FRAME_ITEMS_MAX and all(map(_is_entry, value))


def _is_entry(value: object) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 3
        and type(value[0]) is bytes
        and natural(value[1])
        and natural(value[2])
    )


# -- messages ---------------------------------------------------------------------------------------------------------


def _any_message(_message: Message) -> bool:
    return True


class Shape:
    """The definition of one message type.

    `required` and `optional` map field names to their checks; `rule` checks the whole message after its fields. `early`
    messages may be sent before the sender's own log is synced. `droppable` ones are not sent to a slow peer, because
    Raft repeats them.
    """

    __slots__ = ("droppable", "early", "fields", "required", "rule")

    def __init__(
        self,
        required: Mapping[str, Field],
        optional: Mapping[str, Field] | None = None,
        *,
        rule: Callable[[Message], bool] = _any_message,
        early: bool = False,
        droppable: bool = False,
    ) -> None:
        self.required = frozenset(required)
        self.fields = {"type": name, **required, **(optional or {})}
        self.rule = rule
        self.early = early
        self.droppable = droppable


def _entries_follow(message: Message) -> bool:
    """Return whether the entries follow `prevLogIdx` without a gap, and terms never fall or exceed the sender's."""
    index, term = message["prevLogIdx"], message["prevLogTerm"]
    for _, entry_index, entry_term in message["entries"]:
        if entry_index != index + 1 or entry_term < term:
            return False
        index, term = entry_index, entry_term
    return bool(term <= message["term"])


_STAMPS: Final[Mapping[str, Field]] = {"sent_us": natural, "wall_ms": natural}
_LOG_END: Final[Mapping[str, Field]] = {"last_log_index": natural, "last_log_term": natural}
_POSITION: Final[Mapping[str, Field]] = {"commit_index": natural, "prevLogIdx": natural, "prevLogTerm": natural}
_TERM: Final[Mapping[str, Field]] = {"term": natural}
_COPY: Final[Mapping[str, Field]] = {"index": natural, "index_term": natural, "size": natural, "crc": natural}

MESSAGE_SHAPES: Final[Mapping[str, Shape]] = {
    # The link's own; they never reach the engine.
    "hello": Shape({"node": name, "cluster": name, "version": natural}, {"nonce": nonce}),
    "ping": Shape({}),
    # The engine's; `messages.py` says what they mean.
    "append_entries": Shape(
        {**_TERM, **_POSITION, "entries": entries, **_STAMPS},
        {"round_trip_ms": natural},
        rule=_entries_follow,
        early=True,
        droppable=True,
    ),
    "next_node_idx": Shape(
        {**_TERM, "success": flag, "reset": flag, "next_node_idx": natural, "rejected": natural, **_STAMPS}
    ),
    "snapshot_chunk": Shape(
        {**_TERM, "transfer": natural, **_COPY, "offset": natural, "data": blob, **_STAMPS}, droppable=True
    ),
    "snapshot_ack": Shape({**_TERM, "transfer": natural, "offset": natural, **_STAMPS}),
    "pre_vote": Shape({**_TERM, **_LOG_END}, {"sent_us": natural}),
    "pre_vote_ok": Shape(_TERM, {"sent_us": natural}),
    "pre_vote_no": Shape(_TERM, {"sent_us": natural}),
    "request_vote": Shape({**_TERM, **_LOG_END}, {"force": flag}),
    "response_vote": Shape(_TERM),
    "timeout_now": Shape(_TERM),
    "lead_ended": Shape(_TERM, early=True),
    "read_round": Shape({**_TERM, "round": natural}, early=True, droppable=True),
    "read_round_ok": Shape({**_TERM, "round": natural}),
    "state_digest": Shape({"index": natural, "digest": natural}, early=True, droppable=True),
    "disk_space": Shape({"free_bytes": natural, "reserve_bytes": natural, "low": flag}),
    "peer_identity": Shape(
        {
            **_TERM,
            "incarnation": name,
            "blank": flag,
            "asks": flag,
            "members": blob,
            "members_index": natural,
            "operations_read": natural,
            "operations_in_force": natural,
        }
    ),
}
"""All messages between nodes; both sides reject any other."""


def check_message(message: object) -> Shape:
    """Return the shape of `message`; raises `FrameError` with the fault if it matches none of `MESSAGE_SHAPES`."""
    if type(message) is not dict:
        raise FrameError(f"a message is a map, not {type(message).__name__}")
    kind = message.get("type")
    shape = MESSAGE_SHAPES.get(kind) if type(kind) is str else None
    if shape is None:
        raise FrameError(f"unknown message type {kind!r:.40}")
    fields = shape.fields
    for key, value in message.items():
        field = fields.get(key)
        if field is None:
            raise FrameError(f"{kind}: unknown field {key!r:.40}")
        if not field(value):
            raise FrameError(f"{kind}: bad value in field {key}")
    if not shape.required <= message.keys():
        raise FrameError(f"{kind}: missing {', '.join(sorted(shape.required - message.keys()))}")
    if not shape.rule(message):
        raise FrameError(f"{kind}: the entries do not follow on")
    return shape


# -- frames -----------------------------------------------------------------------------------------------------------


def encode_frame(message: Message) -> bytes:
    """Return the frame of a message that `check_message` accepts; raises `FrameError` if it is too large."""
    body: bytes = msgpack.packb(message, use_bin_type=True)
    if len(body) > FRAME_BYTES_MAX:
        raise FrameError(f"{message['type']}: {len(body)} bytes are more than a frame holds")
    return _HEADER.pack(len(body)) + body


def _decode_body(body: memoryview) -> Message:
    """Return the one message in `body`; no container may claim more items than the body has bytes."""
    try:
        message = msgpack.unpackb(
            body,
            raw=False,
            strict_map_key=True,
            max_ext_len=0,
            max_str_len=_NAME_CHARS_MAX * 4,
            max_bin_len=len(body),
            max_array_len=min(len(body), FRAME_ITEMS_MAX),
            max_map_len=_FIELDS_MAX,
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise FrameError(f"not msgpack: {error!s:.80}") from None
    check_message(message)
    return message  # type: ignore[no-any-return]  # check_message has seen that it is a map


class FrameDecoder:
    """Decodes the bytes of one peer, in pieces of any size, to messages: first `hello`, then the others.

    With `is_sealed`, nothing behind the hello is read before `seal` is set; then each frame must be followed by its MAC.
    After a `FrameError` the stream is unusable: close it and drop the decoder.
    """

    __slots__ = ("_buffer", "_has_hello", "_is_sealed", "seal")

    def __init__(self, *, is_sealed: bool = False) -> None:
        self._buffer = bytearray()
        self._has_hello = False
        self._is_sealed = is_sealed
        self.seal: LinkSeal | None = None
        """Set it once the hello was read, and feed nothing to read on."""

    @property
    def buffered_bytes(self) -> int:
        """Return the bytes that were not read yet: of at most one frame, but for those behind a hello."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[Message]:
        """Return the messages that `data` completes, in order; raises `FrameError` for anything but whole frames."""
        self._buffer += data
        messages = []
        start = 0
        with memoryview(self._buffer) as view:
            while not self._is_held and (stop := self._end_of_frame(start)) <= len(view):
                with view[start:stop] as frame:
                    messages.append(self._read(frame))
                start = stop
        del self._buffer[:start]
        return messages

    @property
    def _is_held(self) -> bool:
        return self._is_sealed and self._has_hello and self.seal is None

    @property
    def _mac_bytes(self) -> int:
        return MAC_BYTES if self.seal is not None else 0

    def _end_of_frame(self, start: int) -> int:
        """Return the end of the frame that starts at `start`; the end of its header if that is incomplete."""
        if len(self._buffer) - start < _HEADER.size:
            return start + _HEADER.size
        length: int = _HEADER.unpack_from(self._buffer, start)[0]
        if length > self._length_max:
            raise FrameError(f"a frame of {length} bytes was announced")
        return start + _HEADER.size + length + self._mac_bytes

    @property
    def _length_max(self) -> int:
        if not self._has_hello:
            return HELLO_BYTES_MAX
        return self.seal.frame_bytes_max if self.seal is not None else FRAME_BYTES_MAX

    def _read(self, frame: memoryview) -> Message:
        stop = len(frame) - self._mac_bytes
        if self.seal is not None:
            with frame[:stop] as said, frame[stop:] as mac:
                if not self.seal.is_genuine(said, mac):
                    raise ForgedFrame("wrong MAC: the peer has another cluster secret, or the frame was altered")
        with frame[_HEADER.size : stop] as body:
            message = _decode_body(body)
        if (message["type"] == "hello") is self._has_hello:
            raise FrameError("hello comes first, and once")
        self._has_hello = True
        return message
