from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftsched import limits
from raftsched.api.scanning import scan
from raftsched.errors import Malformed, TooLarge

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(max_examples=50, derandomize=True)
@given(_JSON, st.booleans())
def test_scan_reads_every_plain_document_as_the_standard_parser_does(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    if "\\u0000" in text:
        with pytest.raises(Malformed):
            scan(text.encode())
    else:
        assert scan(text.encode()) == value


@settings(derandomize=True)
@given(st.binary() | st.text(alphabet='[]{}",:\\ua0d8c1eNI.-+').map(str.encode))
def test_scan_of_any_bytes_returns_or_raises_malformed(body: bytes) -> None:
    try:
        document = scan(body)
    except Malformed:
        return
    assert json.loads(body) == document


@pytest.mark.parametrize(
    "body",
    [
        b"NaN",
        b"[Infinity]",
        b'{"x":-Infinity}',
        b"[1e400]",
        b"[-1e400]",
        b"[1" + b"0" * 5000 + b"]",
    ],
)
def test_scan_refuses_numbers_that_json_does_not_have(body: bytes) -> None:
    with pytest.raises(Malformed):
        scan(body)


@pytest.mark.parametrize("body", [b'{"a":1,"a":1}', b'[{"x":{"b":1,"\\u0061":2,"a":3}}]'])
def test_scan_refuses_a_repeated_key_by_name(body: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        scan(body)
    assert caught.value.field == "a"


def test_scan_takes_the_same_key_in_different_objects() -> None:
    assert scan(b'[{"a":1},{"a":{"a":2}}]') == [{"a": 1}, {"a": {"a": 2}}]


@pytest.mark.parametrize(
    "text",
    [
        rb"\ud800",
        rb"\uD800\u0041",
        rb"\udc00",
        rb"\ude00\ud83d",
        rb"\\\ud800",
        rb"\u0000",
        rb"a\\\\\u0000",
        b"\x00",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xc0\x80",
    ],
)
def test_scan_refuses_text_that_is_none(text: bytes) -> None:
    for body in (b'["%b"]' % text, b'{"%b":1}' % text):
        with pytest.raises(Malformed):
            scan(body)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (rb"\ud83d\ude00", "😀"),
        (rb"\uD83D\uDE00x", "😀x"),
        (rb"\\u0000", "\\u0000"),
        (rb"\\ud800", "\\ud800"),
        (rb"\u00e9\/\"", 'é/"'),
        (rb"\ud7ff\ue000", "\ud7ff\ue000"),
    ],
)
def test_scan_takes_escapes_that_are_text(text: bytes, read: str) -> None:
    assert scan(b'["%b"]' % text) == [read]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1,]", b"{'a':1}", b"[01]", b"[1] 2", b"nul", b"\xef\xbb\xbf[]", b'["\n"]']
)
def test_scan_refuses_what_is_no_json(body: bytes) -> None:
    with pytest.raises(Malformed):
        scan(body)


def test_scan_takes_nesting_up_to_the_limit() -> None:
    deepest = limits.JSON_DEPTH_MAX
    assert scan(b"[" * deepest + b"]" * deepest)
    with pytest.raises(Malformed, match=f"deeper than {deepest} levels"):
        scan(b"[" * (deepest + 1) + b"]" * (deepest + 1))


@pytest.mark.parametrize("string", [b'"' + b"[{" * 99 + b'"', rb'"\"' + b"[{" * 99 + rb'\\"', b'"[","]"', rb'"\\","["'])
def test_scan_does_not_count_brackets_in_strings(string: bytes) -> None:
    assert scan(b"[" + string + b"]")


@pytest.mark.parametrize("levels", [500, 1_100, 20_000, 500_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_scan_refuses_deep_nesting_at_once(levels: int, opening: bytes, closing: bytes) -> None:
    for body in (opening * levels + b"1" + closing * levels, opening * levels):
        began = time.perf_counter()
        with pytest.raises(Malformed, match="deeper"):
            scan(body)
        assert time.perf_counter() - began < 0.1


def test_scan_refuses_more_values_than_parse_quickly() -> None:
    with pytest.raises(TooLarge):
        scan(b"[" + b"1," * limits.JSON_VALUES_MAX + b"1]")
    assert scan(b"[" + b"1," * (limits.JSON_VALUES_MAX - 2) + b"1]")


def test_scan_does_not_count_commas_in_strings() -> None:
    assert scan(b'["' + b"," * 2 * limits.JSON_VALUES_MAX + b'"]')


@pytest.mark.parametrize(
    "body",
    [
        b'"' + rb"\"" * (limits.BODY_BYTES_MAX // 2),
        b'"["' * (limits.BODY_BYTES_MAX // 3),
        b"[" + b"[]," * (limits.BODY_BYTES_MAX // 3),
        b'["' + rb"\u0041" * (limits.BODY_BYTES_MAX // 6) + b'"]',
    ],
)
def test_scan_is_linear_in_what_an_attacker_sends(body: bytes) -> None:
    began = time.process_time()
    with contextlib.suppress(Malformed, TooLarge):
        scan(body)
    assert time.process_time() - began < 1.5
