from __future__ import annotations

import random
import uuid
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftsched import limits
from raftsched.core.records.bounds import is_name
from raftsched.core.records.ids import (
    JobId,
    JobIdFactory,
    job_id_text,
    key_group,
    parse_job_id,
    parse_run_id,
    run_id_text,
)
from raftsched.errors import Invalid
from tests.core.scene import START_MS, job_id

COUNTER_VALUES = 4_096


def factory(seed: int = 1) -> JobIdFactory:
    return JobIdFactory(random.Random(seed).randbytes)


def time_of(job: JobId) -> int:
    return int.from_bytes(job[:6], "big")


def test_job_id_is_a_uuid_of_version_7_at_its_time() -> None:
    job = factory().next(START_MS)
    parsed = uuid.UUID(bytes=job)
    assert (parsed.version, parsed.variant, time_of(job)) == (7, uuid.RFC_4122, START_MS)


@given(st.lists(st.one_of(st.integers(0, 2**48 - 10_000), st.just(START_MS)), min_size=2, max_size=50))
def test_job_ids_rise_whatever_the_clock_does(clock: list[int]) -> None:
    ids = factory()
    made = [ids.next(now_ms) for now_ms in clock]
    assert all(before < after for before, after in pairwise(made))


def test_job_ids_rise_when_the_clock_steps_back() -> None:
    ids = factory()
    first = ids.next(START_MS)
    assert ids.next(START_MS - 3_600_000) > first


def test_job_ids_of_one_millisecond_borrow_from_the_next_when_the_counter_is_full() -> None:
    ids = factory()
    made = [ids.next(START_MS) for _ in range(COUNTER_VALUES + 2)]
    assert made == sorted(set(made))
    assert [time_of(job) - START_MS for job in made[-3:]] == [0, 1, 1]
    assert ids.next(START_MS + 1) > made[-1]


def test_job_ids_of_two_factories_differ() -> None:
    assert factory(1).next(START_MS) != factory(2).next(START_MS)


def test_job_id_text_reads_back() -> None:
    job = factory().next(START_MS)
    assert job_id_text(job) == str(uuid.UUID(bytes=job))
    assert parse_job_id(job_id_text(job)) == parse_job_id(job_id_text(job).upper()) == job


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "../../etc/passwd",
        "%2e%2e",
        "0" * 32,
        "{00000000-0000-0000-0000-000000000001}",
        "urn:uuid:00000000-0000-0000-0000-000000000001",
        "00000000-0000-0000-0000-00000000000g",
        "00000000-0000-0000-0000-0000000000\N{FULLWIDTH DIGIT ZERO}1",
        "00000000-0000-0000-0000-000000000001\n",
        "00000000-0000-0000-0000-000000000001/..",
    ],
)
def test_anything_else_than_a_uuid_is_no_job_id(text: str) -> None:
    """Case A06."""
    with pytest.raises(Invalid) as caught:
        parse_job_id(text, field="job_id")
    assert caught.value.field == "job_id"


def test_run_id_text_reads_back() -> None:
    assert parse_run_id(run_id_text(job_id(7), 12)) == (job_id(7), 12)


@pytest.mark.parametrize("number", ["", ".", "-1", "0", "01", "1.5", "1 ", "²", "\N{FULLWIDTH DIGIT ONE}", "1" * 10])
def test_anything_else_than_a_jobs_id_and_a_number_is_no_run_id(number: str) -> None:
    """A run id is a receiver's idempotency key, so each run has one text."""
    with pytest.raises(Invalid) as caught:
        parse_run_id(f"{job_id_text(job_id(7))}.{number}")
    assert caught.value.field == "run_id"


def test_run_id_without_a_number_is_none() -> None:
    with pytest.raises(Invalid):
        parse_run_id(job_id_text(job_id(7)))


def test_key_groups_differ_by_tenant_and_key_and_are_no_key_of_the_default_tenant() -> None:
    groups = {
        (tenant, key): key_group(tenant, key) for tenant in ("default", "a", "a\u00e9" * 40) for key in ("k", "kk")
    }
    assert len(set(groups.values())) == len(groups)
    assert groups["default", "k"] == "k"
    others = [group for (tenant, _), group in groups.items() if tenant != "default"]
    assert all(group.startswith("\0") and len(group) < limits.NAME_CHARS_MAX for group in others)
    assert not any(is_name(group) for group in others), "so no user can choose it as a key"
