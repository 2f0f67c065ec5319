from __future__ import annotations

from datetime import timedelta

import pytest

from raftsched.worker import GiveUp, Retry, Snooze


def test_delays_are_seconds_or_spans() -> None:
    assert Snooze(1.5).seconds == 1.5
    assert Snooze(timedelta(minutes=1)).seconds == 60.0
    assert Retry(after=timedelta(milliseconds=1)).after_seconds == 0.001
    assert Retry("busy").after_seconds is None


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf")])
def test_delay_that_no_clock_can_wait_for_is_refused_where_it_is_written(delay: float) -> None:
    with pytest.raises(ValueError, match="a delay is"):
        Snooze(delay)
    with pytest.raises(ValueError, match="a delay is"):
        Retry(after=delay)


@pytest.mark.parametrize("delay", [30, 0.5, timedelta(minutes=1)])
def test_delay_in_the_place_of_a_message_is_refused_with_its_right_name(delay: float | timedelta) -> None:
    for verdict in (Retry, GiveUp):
        with pytest.raises(TypeError, match="after="):
            verdict(delay)  # type: ignore[arg-type]  # what is refused
