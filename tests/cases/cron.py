"""Cases C01 to C47 as questions: an expression, a zone, an instant, and what may be answered.

Whoever answers is the caller's choice, the parser itself or `POST /schedules/preview`: give `count` next instants in
milliseconds, or None where the expression is refused, to `Question.judge`. C42 is no question: it is about nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

_DIRECTORY = Path(__file__).parent
_NEW_YEAR = "2027-01-01T00:00:00Z"
_READINGS = {"C22": "reading_both", "C26": "reading_skip", "C29": "reading_seconds_first"}
"""Where a case leaves a choice, the reading that is ours; see `raftsched.core.cron.parser`."""
_DESCRIBED: dict[str, tuple[str, ...]] = {
    "newline between two fields": ("0\n0 * * *", "0 0 * * *\n", "0 0\r* * *"),
    "NUL at the end": ("0 0 * * *\0",),
    "no-break space between fields": ("0\u00a00 * * *",),
    "Arabic-Indic digit one as minute": ("\u0661 0 * * *",),
    "full-width digit one as weekday": ("0 0 * * \uff11",),
    "1_0 / +5 / 0x5 / 1e1 as minute": ("1_0 * * * *", "+5 * * * *", "0x5 * * * *", "1e1 * * * *"),
    'trailing "# comment"': ("0 0 * * * # comment",),
    "empty string / null / number / list": ("", " "),  # the others are no texts and never come this far
    '200,000 times "0" joined by commas, then " * * * *" (400 kB)': (",".join("0" * 200_000) + " * * * *",),
    '20,000 times "0-59" joined by commas': (",".join(["0-59"] * 20_000) + " * * * *",),
    "a minute of 5,000 nines": ("9" * 5_000 + " * * * *", "9" * 400 + " * * * *"),
    "'*/ followed by 5,000 nines'": ("*/" + "9" * 5_000 + " * * * *", "*/" + "9" * 400 + " * * * *"),
}
"""Inputs that their files describe in words."""


@dataclass(frozen=True, slots=True)
class Question:
    case_id: str
    expression: str
    timezone: str
    after_ms: int
    expected_ms: tuple[int, ...] = ()
    """The next instants; () = the expression must be refused."""
    forbidden_ms: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """How many next instants to ask for."""
        return max(len(self.expected_ms), 1)

    def judge(self, answer: list[int] | None) -> None:
        """Raise AssertionError unless the answer is right."""
        shown = f"{self.case_id} {self.expression[:60]!a}"
        if not self.expected_ms:
            assert answer is None, f"{shown} must be refused"
            return
        assert answer is not None, f"{shown} must be accepted"
        assert answer == list(self.expected_ms), shown
        assert not set(answer) & set(self.forbidden_ms), shown


def questions() -> list[Question]:
    """Return the questions of all cases, in order."""
    return [question for path in sorted(_DIRECTORY.glob("C*.yaml")) for question in _questions(path)]


def _questions(path: Path) -> Iterator[Question]:
    case: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    case_id = str(case["id"])
    if "input" in case:
        reading = _READINGS.get(case_id, "fire_times_utc")
        # C35 names no times: random tokens are refused here
        yield _question(case, case["input"], case.get(reading, ()))
    for text, expected in case.get("inputs", ()):
        for expression in _DESCRIBED.get(str(text), (str(text),)):
            yield _question(case, {"expression": expression}, expected)
    second: dict[str, Any] = case.get("second", {})
    if "expression" in second:
        yield _question(case, second, second["fire_times_utc"])
    for expression in second.get("refuse_or_quartz", ()):
        # Of Quartz's other forms with L, the last working day alone is read; it reads the same here.
        times = ("2027-01-29T00:00Z", "2027-02-26T00:00Z") if expression == "0 0 LW * *" else ()
        yield _question(case, {"expression": expression}, times)


def _question(case: dict[str, Any], asked: dict[str, Any], expected: Any) -> Question:
    expression = str(asked["expression"])
    zone = asked.get("timezone") or case.get("timezone", "UTC")
    after = asked.get("after") or case.get("after", _NEW_YEAR)
    times = () if isinstance(expected, str) else tuple(map(_ms, expected))
    return Question(
        case["id"], expression, str(zone), _ms(after), times, tuple(map(_ms, case.get("must_not_fire_at", ())))
    )


def _ms(text: Any) -> int:
    moment = datetime.fromisoformat(str(text))
    assert moment.tzinfo is not None, text
    return int(moment.timestamp() * 1_000)
