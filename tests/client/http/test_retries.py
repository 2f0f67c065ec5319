from __future__ import annotations

import random

from raftsched.client import ClientSettings
from raftsched.client.http.retries import Retries, given_up
from raftsched.errors import OutcomeUnknown, Unavailable

SETTINGS = ClientSettings(backoff_base_seconds=0.1, backoff_cap_seconds=1.0)


def test_pauses_grow_to_the_cap_and_keep_to_the_upper_half_of_their_step() -> None:
    retries = Retries(SETTINGS, random.Random(1))
    pauses = [retries.next_pause(0.0) for _ in range(200)]
    steps = [min(1.0, 0.1 * 2**n) for n in range(200)]
    assert all(step / 2 <= pause <= step for pause, step in zip(pauses, steps, strict=True))
    assert len(set(pauses)) == 200


def test_pause_is_at_least_what_the_server_asked_for() -> None:
    assert Retries(SETTINGS, random.Random(1)).next_pause(7.0) == 7.0


def test_end_is_unknown_once_any_attempt_may_have_taken_effect() -> None:
    refused, unknown = Unavailable("later"), OutcomeUnknown("who knows")
    assert given_up(refused, maybe_applied=False) is refused
    assert given_up(unknown, maybe_applied=True) is unknown
    assert type(given_up(refused, maybe_applied=True)) is OutcomeUnknown
    assert type(given_up(unknown, maybe_applied=False)) is Unavailable
