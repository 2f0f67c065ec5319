"""A refused document's flaw is named by its path."""

from __future__ import annotations

import pytest

from raftsched.api.json.scan import scan
from raftsched.errors import Malformed


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"delay_seconds": NaN}', "delay_seconds"),
        (b'{"jobs": [{"name": "a"}, {"payload": {"x": [1, -Infinity]}}]}', "jobs[1].payload.x[1]"),
        (b'{"priority": 1e400}', "priority"),
        (b'{"tags": ["ok", "\\ud800"]}', "tags[1]"),
        (b'{"payload": {"\\ud83d": 1}}', "payload.\N{REPLACEMENT CHARACTER}"),
        (b'{"name": "a\\u0000b"}', "name"),
        (b'{"a\\\\": {"b": "\\udfff\\ud800"}}', "a\\.b"),
        (b"NaN", ""),
    ],
)
def test_flaw_is_named_by_its_path(body: bytes, path: str) -> None:
    with pytest.raises(Malformed) as caught:
        scan(body)
    assert caught.value.field == path
    assert str(caught.value).startswith(f"{path}: " if path else "NaN")


def test_pair_of_surrogates_and_escaped_backslash_are_text() -> None:
    assert scan(b'{"a": "\\ud83d\\ude00", "b": "\\\\ud800"}') == {"a": "\N{GRINNING FACE}", "b": "\\ud800"}
