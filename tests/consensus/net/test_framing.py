from __future__ import annotations

import ast
import contextlib
import random
import struct
from pathlib import Path
from typing import Any

import msgpack
import pysyncobj.pickle as stock_pickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftsched.consensus.net import framing
from raftsched.consensus.net.framing import (
    MESSAGE_SHAPES,
    FrameDecoder,
    FrameError,
    check_message,
    encode_frame,
)
from raftsched.consensus.raft import messages as engine_messages
from raftsched.consensus.raft.messages import Message
from raftsched.limits import FRAME_BYTES_MAX, HELLO_BYTES_MAX

HELLO: Message = {"type": "hello", "node": "n1", "cluster": "test", "version": 1}
APPEND: Message = {
    "type": "append_entries",
    "term": 7,
    "commit_index": 40,
    "prevLogIdx": 41,
    "prevLogTerm": 6,
    "entries": [[b"a", 42, 6], [b"", 43, 7]],
    "sent_us": 1_000,
    "wall_ms": 1_700_000_000_000,
}
ACK: Message = {
    "type": "next_node_idx",
    "term": 7,
    "success": True,
    "reset": False,
    "next_node_idx": 44,
    "rejected": 0,
    "sent_us": 1_000,
    "wall_ms": 1_700_000_000_000,
}

naturals = st.integers(0, 2**63 - 1)
FIELD_VALUES: dict[Any, st.SearchStrategy[Any]] = {
    framing.natural: naturals,
    framing.flag: st.booleans(),
    framing.name: st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255),
    framing.blob: st.binary(max_size=300),
}


@st.composite
def append_messages(draw: st.DrawFn) -> Message:
    terms = sorted(draw(st.lists(naturals, min_size=2, max_size=6)))
    start = draw(st.integers(0, 2**62))
    entries = [[draw(st.binary(max_size=50)), start + 1 + n, term] for n, term in enumerate(terms[1:-1])]
    message: Message = {"type": "append_entries", "term": terms[-1], "commit_index": draw(naturals)}
    position = {"prevLogIdx": start, "prevLogTerm": terms[0], "entries": entries}
    return {**message, **position, "sent_us": draw(naturals), "wall_ms": draw(naturals)}


def messages_of(kind: str) -> st.SearchStrategy[Message]:
    if kind == "append_entries":
        return append_messages()
    shape = MESSAGE_SHAPES[kind]
    values = {field: FIELD_VALUES[check] for field, check in shape.fields.items() if field != "type"}
    required = {field: value for field, value in values.items() if field in shape.required}
    optional = {field: value for field, value in values.items() if field not in shape.required}
    return st.fixed_dictionaries({"type": st.just(kind), **required}, optional=optional)


messages = st.sampled_from(sorted(MESSAGE_SHAPES.keys() - {"hello"})).flatmap(messages_of)


def raw_frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def identified() -> FrameDecoder:
    decoder = FrameDecoder()
    decoder.feed(encode_frame(HELLO))
    return decoder


@given(st.lists(messages, max_size=8), st.lists(st.integers(1, 200), min_size=1, max_size=20))
def test_decoder_gives_the_same_messages_however_the_stream_is_split(sent: list[Message], sizes: list[int]) -> None:
    stream = b"".join(encode_frame(message) for message in [HELLO, *sent])
    decoder = FrameDecoder()
    received: list[Message] = []
    step = 0
    while stream:
        size = sizes[step % len(sizes)]
        received += decoder.feed(stream[:size])
        stream = stream[size:]
        step += 1
    assert received == [HELLO, *sent]
    assert decoder.buffered_bytes == 0


def test_decoder_takes_a_frame_byte_by_byte() -> None:
    decoder = identified()
    frame = encode_frame(APPEND)
    for byte in frame[:-1]:
        assert decoder.feed(bytes([byte])) == []
    assert decoder.buffered_bytes == len(frame) - 1
    assert decoder.feed(frame[-1:]) == [APPEND]


@given(st.binary(max_size=2000), st.booleans())
def test_decoder_raises_nothing_but_frame_error_for_random_bytes(data: bytes, is_greeted: bool) -> None:
    decoder = identified() if is_greeted else FrameDecoder()
    with contextlib.suppress(FrameError):
        decoder.feed(data)


@given(st.binary(max_size=500))
def test_decoder_raises_nothing_but_frame_error_for_random_bodies(body: bytes) -> None:
    try:
        received = identified().feed(raw_frame(body))
    except FrameError:
        return
    check_message(received[0])


def test_decoder_survives_ten_thousand_mutated_frames() -> None:
    rng = random.Random(28)
    frames = [encode_frame(message) for message in (HELLO, APPEND, ACK)]
    refused = 0
    for _ in range(10_000):
        frame = bytearray(rng.choice(frames))
        for _ in range(rng.randint(1, 4)):
            frame[rng.randrange(4, len(frame))] = rng.randrange(256)
        if rng.random() < 0.2:
            frame = bytearray(raw_frame(bytes(frame[4 : rng.randint(4, len(frame))])))
        try:
            for message in identified().feed(frame):
                check_message(message)
        except FrameError:
            refused += 1
    assert 5_000 < refused < 10_000


@given(messages)
def test_frame_carries_every_message_unchanged(message: Message) -> None:
    assert identified().feed(encode_frame(message)) == [message]


def test_frame_carries_entries_as_tuples_too() -> None:
    message = {**APPEND, "entries": tuple(map(tuple, APPEND["entries"]))}
    check_message(message)
    assert identified().feed(encode_frame(message)) == [APPEND]


@pytest.mark.parametrize("length", [FRAME_BYTES_MAX + 1, 2**31, 2**32 - 1])
def test_decoder_refuses_a_huge_length_before_its_bytes_come(length: int) -> None:
    with pytest.raises(FrameError, match="announced"):
        identified().feed(struct.pack(">I", length))


def test_decoder_keeps_little_for_a_stranger() -> None:
    with pytest.raises(FrameError, match="announced"):
        FrameDecoder().feed(struct.pack(">I", HELLO_BYTES_MAX + 1))


def test_decoder_takes_the_largest_frame() -> None:
    overhead = (
        len(encode_frame({**APPEND, "entries": [[bytes(FRAME_BYTES_MAX // 2), 42, 7]]})) - FRAME_BYTES_MAX // 2 - 4
    )
    message = {**APPEND, "entries": [[bytes(FRAME_BYTES_MAX - overhead), 42, 7]]}
    assert identified().feed(encode_frame(message)) == [message]


def test_encode_refuses_what_no_frame_holds() -> None:
    with pytest.raises(FrameError, match="more than a frame holds"):
        encode_frame({**APPEND, "entries": [[bytes(FRAME_BYTES_MAX), 42, 7]]})


@pytest.mark.parametrize("first", [APPEND, ACK, {"type": "ping"}])
def test_decoder_wants_hello_first(first: Message) -> None:
    with pytest.raises(FrameError, match="hello"):
        FrameDecoder().feed(encode_frame(first))


def test_decoder_wants_hello_once() -> None:
    with pytest.raises(FrameError, match="hello"):
        identified().feed(encode_frame(HELLO))


def without(message: Message, field: str) -> Message:
    return {key: value for key, value in message.items() if key != field}


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        pytest.param(["type", "ping"], "a message is a map", id="list"),
        pytest.param(b"ping", "a message is a map", id="bytes"),
        pytest.param(None, "a message is a map", id="nothing"),
        pytest.param({}, "unknown message type", id="empty"),
        pytest.param({"type": "apply_command", "command": b"x"}, "unknown message type", id="stock-command"),
        pytest.param({"type": ["ping"]}, "unknown message type", id="type-is-a-list"),
        pytest.param({"type": b"ping"}, "unknown message type", id="type-is-bytes"),
        pytest.param({**ACK, "extra": 1}, "unknown field 'extra'", id="unknown-field"),
        pytest.param({**APPEND, "serialized": b"x"}, "unknown field 'serialized'", id="stock-snapshot"),
        pytest.param({**APPEND, "transmission": "start"}, "unknown field 'transmission'", id="stock-pieces"),
        pytest.param(without(ACK, "term"), "missing term", id="missing-field"),
        pytest.param({**ACK, "term": -1}, "bad value in field term", id="negative"),
        pytest.param({**ACK, "term": 2**63}, "bad value in field term", id="too-large"),
        pytest.param({**ACK, "term": 1.0}, "bad value in field term", id="float"),
        pytest.param({**ACK, "term": True}, "bad value in field term", id="bool-for-integer"),
        pytest.param({**ACK, "term": None}, "bad value in field term", id="none"),
        pytest.param({**ACK, "success": 1}, "bad value in field success", id="integer-for-bool"),
        pytest.param({**APPEND, "entries": None}, "bad value in field entries", id="no-entries"),
        pytest.param({**APPEND, "entries": [[b"a", 42]]}, "bad value in field entries", id="short-entry"),
        pytest.param({**APPEND, "entries": [["a", 42, 7]]}, "bad value in field entries", id="text-command"),
        pytest.param({**APPEND, "entries": [b"abc"]}, "bad value in field entries", id="bytes-for-entry"),
        pytest.param({**APPEND, "entries": [[b"a", 43, 7]]}, "do not follow on", id="gap"),
        pytest.param({**APPEND, "entries": [[b"a", 42, 5]]}, "do not follow on", id="falling-term"),
        pytest.param({**APPEND, "entries": [[b"a", 42, 8]]}, "do not follow on", id="term-above-the-leaders"),
        pytest.param({**HELLO, "node": ""}, "bad value in field node", id="empty-name"),
        pytest.param({**HELLO, "node": "n" * 256}, "bad value in field node", id="long-name"),
    ],
)
def test_message_of_a_wrong_shape_is_refused_on_both_sides(message: Any, complaint: str) -> None:
    with pytest.raises(FrameError, match=complaint):
        check_message(message)
    decoder = FrameDecoder() if isinstance(message, dict) and message.get("type") == "hello" else identified()
    with pytest.raises(FrameError):
        decoder.feed(raw_frame(msgpack.packb(message)))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xc1", id="never-used-byte"),
        pytest.param(b"\x81", id="half-a-map"),
        pytest.param(msgpack.packb({"type": "ping"}) + b"\x00", id="bytes-after-the-message"),
        pytest.param(msgpack.packb({"type": msgpack.ExtType(5, b"x")}), id="extension"),
        pytest.param(msgpack.packb({"type": msgpack.ExtType(5, b"")}), id="empty-extension"),
        pytest.param(msgpack.packb({"type": msgpack.Timestamp(1)}), id="timestamp"),
        pytest.param(msgpack.packb({"type": "ping", 5: 1}), id="integer-key"),
        pytest.param(b"\x81\x91\x01\x01", id="list-as-key"),
        pytest.param(b"\x81\xa4type\xa4\xff\xfe\xfd\xfc", id="broken-utf-8"),
        pytest.param(b"\x91" * 5_000 + b"\xc0", id="deep-nesting"),
        pytest.param(b"\x81\xa4type\xdd\xff\xff\xff\xff", id="list-of-four-billion"),
        pytest.param(b"\xdf\xff\xff\xff\xff", id="map-of-four-billion"),
        pytest.param(b"\x81\xa4type\xc6\xff\xff\xff\xff", id="four-billion-bytes"),
        pytest.param(msgpack.packb({"type": "ping", **{f"f{n}": 0 for n in range(100)}}), id="many-fields"),
        pytest.param(msgpack.packb({"type": "x" * 10_000}), id="long-text"),
    ],
)
def test_body_that_is_no_plain_map_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError):
        identified().feed(raw_frame(body))


class Gadget:
    """Unpickling it creates a file."""

    def __init__(self, canary: Path) -> None:
        self._canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._canary,)


def test_pickle_gadget_runs_in_stock_pysyncobj_and_never_here(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    gadget = stock_pickle.dumps(Gadget(canary))
    stock_pickle.loads(gadget)
    assert canary.exists(), "the gadget works"
    canary.unlink()

    for body in (gadget, msgpack.packb({"type": "ping", "data": gadget}), msgpack.packb([gadget])):
        for decoder in (FrameDecoder(), identified()):
            with pytest.raises(FrameError):
                decoder.feed(raw_frame(body))
    assert identified().feed(encode_frame({**APPEND, "entries": [[gadget, 42, 7]]})) != []
    assert not canary.exists()


@pytest.mark.parametrize(
    "module", ["framing", "connection", "handshake", "listener", "transport", "throttled_log", "address"]
)
def test_link_modules_never_import_pickle(module: str) -> None:
    tree = ast.parse(Path(framing.__file__).with_name(f"{module}.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {f"{node.module}" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported, "the check looks at something"
    assert not any("pickle" in name for name in imported)


def test_table_knows_every_message_of_the_engine() -> None:
    kinds = {value for constant, value in vars(engine_messages).items() if constant.isupper()}
    assert kinds == MESSAGE_SHAPES.keys() - {"hello", "ping"}
