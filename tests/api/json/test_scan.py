from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raftsched
from raftsched import limits
from raftsched.api.json import scan as scanning
from raftsched.api.json.scan import scan
from raftsched.errors import Malformed, TooLarge
from tests.steps import steps_of

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


_PIECES = (
    r"\\", r"\"", r"\n", r"\u0041", r"\u0000", r"\ud83d", r"\ude00", r"\uDBFF", r"\uDFFF", r"\ud7ff", r"\ue000",
    "u0000", "ud83d", "0000", "[", "{", ",", "]", "}", "é",
)  # fmt: skip
_STRINGS = st.lists(st.sampled_from(_PIECES), max_size=8).map("".join)


@settings(max_examples=1_000, derandomize=True)
@given(st.lists(_STRINGS, min_size=1, max_size=4))
def test_scan_takes_exactly_the_strings_that_are_text_and_sees_no_structure_in_them(strings: list[str]) -> None:
    body = "[" + ",".join(f'{{"{string}":["{string}"]}}' for string in strings) + "]"
    document = json.loads(body)
    if all(_is_text(key) for each in document for key in each):
        assert scan(body.encode()) == document
    else:
        with pytest.raises(Malformed, match="not text"):
            scan(body.encode())
    bare = body.encode().replace(rb"\\", b"__")
    assert scanning._structure(bare) == b"[" + b",".join([b"{[]}"] * len(strings)) + b"]"


def _is_text(string: str) -> bool:
    return "\0" not in string and string == string.encode(errors="ignore").decode()


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
def test_scan_counts_no_level_behind_the_limit_and_parses_nothing(
    levels: int, opening: bytes, closing: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(scanning, "_decode", parsed.append)
    too_deep = limits.JSON_DEPTH_MAX + 1
    for inside in (b"1" + closing * levels, b""):
        with pytest.raises(Malformed, match="deeper"):
            scan(opening * levels + inside)
        assert parsed == []
        assert _steps(opening * levels + inside) == _steps(opening * too_deep + inside)


def test_scan_refuses_more_values_than_parse_quickly() -> None:
    with pytest.raises(TooLarge):
        scan(b"[" + b"1," * limits.JSON_VALUES_MAX + b"1]")
    assert scan(b"[" + b"1," * (limits.JSON_VALUES_MAX - 2) + b"1]")


def test_scan_does_not_count_commas_in_strings() -> None:
    assert scan(b'["' + b"," * 2 * limits.JSON_VALUES_MAX + b'"]')


# -- cost -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "part", "after"),
    [
        (b'"', rb"\"", b""),
        (b"", b'"["', b""),
        (b"[", b"[],", b""),
        (b'["', rb"\u0041", b'"]'),
        (b"[", rb'"\\",', b"1]"),
        (b"[1.", b"1", b"]"),
        (b"[", b'"[","]",', b"1]"),
        (b'["', rb"\ud83d\ude00", b'"]'),
    ],
)
def test_scan_takes_no_more_steps_for_a_longer_body(
    before: bytes, part: bytes, after: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What grows with the body is a look at each byte, in C; where there are too many values, not even their depth does."""
    monkeypatch.setattr(limits, "JSON_VALUES_MAX", 1_000)
    counts = [_steps(before + part * count + after) for count in (2_000, 20_000, 200_000)]
    assert counts[0] == counts[1] == counts[2]


def _steps(body: bytes) -> int:
    def run() -> None:
        with contextlib.suppress(Malformed, TooLarge):
            scan(body)

    return steps_of(run, raftsched)
