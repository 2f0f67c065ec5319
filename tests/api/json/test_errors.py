from __future__ import annotations

import pytest

from raftsched.api.json.decode import StructDecoder
from raftsched.core.records.job import Status
from raftsched.errors import Malformed
from raftsched.wire.jobs import JobRequest, ListQuery

_decode = StructDecoder(JobRequest).decode


@pytest.mark.parametrize(
    ("body", "field", "told"),
    [
        (b'{"name":"x","max_atempts":1}', "max_atempts", "did you mean max_attempts?"),
        (b'{"name":"x","retires":1}', "retires", "known are name, payload, http"),
        (b'{"name":"x","retry_policy":{"backof":1}}', "retry_policy.backof", "did you mean backoff?"),
        (b'{"name":"x","retry_policy":{"backoff":"linaer"}}', "retry_policy.backoff", "did you mean linear?"),
        (b'{"name":"x","priority":"urgent"}', "priority", "known are high, low, normal"),
        (b'{"name":"x","priority":10}', "priority", "<= 9"),
        (b'{"name":"x","delay_seconds":-1}', "delay_seconds", ">= 0"),
        (b'{"name":"x","delay_seconds":1e300}', "delay_seconds", "<= 316224000"),
        (b'{"name":"x y"}', "name", "letters, digits and _ . : @ -"),
        (b'{"name":"x","run_at":"2030-01-01T00:00:60Z"}', "run_at", "leap second"),
        (b'{"name":"x","tags":[1]}', "tags[0]", "Expected `str`"),
        (b'{"name":""}', "name", "letters, digits and _ . : @ -"),
        (b"[]", "", "the body: Expected `object`"),
    ],
)
def test_fault_names_the_field_and_what_is_allowed(body: bytes, field: str, told: str) -> None:
    with pytest.raises(Malformed) as caught:
        _decode(body)
    assert caught.value.field == field
    assert told in str(caught.value)


def test_fault_in_a_part_has_the_path_of_the_whole() -> None:
    with pytest.raises(Malformed) as caught:
        _decode(b'{"name":"x","retry_policy":{"delays_seconds":[1,-1]}}', at="jobs[3]")
    assert caught.value.field == "jobs[3].retry_policy.delays_seconds[1]"


def test_fault_shows_little_of_a_long_field_name() -> None:
    with pytest.raises(Malformed) as caught:
        _decode(b'{"%b":1}' % (b"x" * 100_000))
    assert len(str(caught.value)) < 600


def test_list_query_knows_every_status() -> None:
    for status in Status:
        assert StructDecoder(ListQuery).decode(b'{"status":["%b"]}' % status.label.encode()).status == [status.label]
