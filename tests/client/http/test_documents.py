from __future__ import annotations

import dataclasses
import datetime as dt
import uuid
from typing import Any

import msgspec
import pytest

from raftsched.client.http.documents import encode_document
from raftsched.errors import Invalid

NAN, INFINITY = float("nan"), float("inf")


@dataclasses.dataclass
class Point:
    x: float | None
    y: float


class Line(msgspec.Struct):
    start: Any


def test_document_has_the_json_form_of_each_kind() -> None:
    value = {
        "a": [1, 2.5, None, True, "ü"],
        7: Point(None, 1.0),
        "id": uuid.UUID(int=1),
        "at": dt.date(2030, 1, 2),
    }
    assert msgspec.json.decode(encode_document(value, field="payload")) == {
        "a": [1, 2.5, None, True, "ü"],
        "7": {"x": None, "y": 1.0},
        "id": "00000000-0000-0000-0000-000000000001",
        "at": "2030-01-02",
    }


@pytest.mark.parametrize(
    "value",
    [
        NAN,
        -INFINITY,
        [None, [INFINITY]],
        {"a": {"b": NAN}},
        (1, NAN),
        {1.0, NAN},
        Point(NAN, 1.0),
        Line([Point(None, INFINITY)]),
        "\udc80",
        {"\udc80": 1},
        object(),
        {(1, 2): 3},
        (n for n in range(3)),
    ],
)
def test_value_without_a_json_form_is_refused(value: object) -> None:
    with pytest.raises(Invalid) as caught:
        encode_document(value, field="result")
    assert caught.value.field == "result"


def test_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Invalid):
        encode_document(loop, field="payload")


def test_text_that_says_null_is_no_reason_to_refuse() -> None:
    assert encode_document({"null": ["null", None]}, field="payload") == b'{"null":["null",null]}'
