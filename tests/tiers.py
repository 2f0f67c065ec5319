"""Sort tests into tiers by the CPU that they use, and hold each test to the budget of its tier.

`make test` runs all tests but the slow ones. `slow.txt` lists those: `make test-times` measures all tests and writes it,
nobody else does. `make test-all` runs everything, and fails if a test used more than its tier allows.

A test is a function, with all its parameters together. Its CPU is that of this process and of all processes that it
starts, so a machine with much else to do changes little. What tests share is charged to none: see `shared`. Machines
differ and measurements vary, so only `SLACK` times its budget fails a test.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest

LIST: Final = Path(__file__).with_name("slow.txt")
BUDGETS: Final = {"quick": 2.0, "essential": 20.0, "slow": 60.0}
"""CPU seconds for a test of each tier. `essential` tests run by default however slow they are: one for each promise."""
SLACK: Final = 4.0
CHECK, RECORD = "check", "record"
_PROPERTY: Final = "cpu of its tier"
_shared_seconds = 0.0


def cpu_seconds(*, with_children: bool = True) -> float:
    """Return the CPU used so far by this process, its ended children and, if asked, its running descendants."""
    seconds = sum(os.times()[:4])
    for child in psutil.Process().children(recursive=True) if with_children else ():
        with suppress(psutil.NoSuchProcess):
            seconds += sum(child.cpu_times()[:4])
    return seconds


@contextmanager
def shared() -> Iterator[None]:
    """Charge no test for what runs in this context, because others use it as well."""
    global _shared_seconds  # noqa: PLW0603  # tests of a process run one after the other
    before = cpu_seconds()
    try:
        yield
    finally:
        _shared_seconds += cpu_seconds() - before


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """A test function in its tier."""

    name: str
    tier: str


def name_of(nodeid: str) -> str:
    """Return the name of a test without its parameters, and without the group that xdist appends."""
    return nodeid.partition("[")[0].partition("@")[0]


def read(text: str) -> dict[str, float]:
    """Read a list of slow tests."""
    rows = (line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(seconds) for seconds, name in rows}


def written(slow: Mapping[str, float]) -> str:
    """Return a list of slow tests as text."""
    rows = "".join(f"{slow[name]:6.1f} {name}\n" for name in sorted(slow))
    return (
        "# Written by `make test-times`: tests that `make test` leaves out, after the CPU seconds that each used.\n"
        + rows
    )


def updated(slow: Mapping[str, float], used: Mapping[Entry, float]) -> dict[str, float]:
    """Return the list after a measurement: tests that did not run stay, unless their file ran or is gone.

    A test that is listed stays until it uses less than half of what brings one onto the list.
    """
    kept = {name: seconds for name, seconds in slow.items() if name not in outdated(slow, used)}
    for test, seconds in used.items():
        least = BUDGETS["quick"] / (2 if test.name in slow else 1)
        kept.pop(test.name, None)
        if test.tier != "essential" and seconds > least:
            kept[test.name] = seconds
    return kept


def outdated(slow: Mapping[str, float], used: Mapping[Entry, float]) -> list[str]:
    """Return the names on the list that no test has."""
    ran = {test.name for test in used}
    files = {name.partition("::")[0] for name in ran}
    return [
        name
        for name in slow
        if name not in ran and ((file := name.partition("::")[0]) in files or not (LIST.parents[1] / file).exists())
    ]


def faults(slow: Mapping[str, float], used: Mapping[Entry, float]) -> list[str]:
    """Return a line for each test that is over its budget and for each name on the list that no test has."""
    over = [(test, seconds) for test, seconds in sorted(used.items()) if seconds > SLACK * BUDGETS[test.tier]]
    return [
        *(
            f"{test.name} used {seconds:.1f} CPU seconds; a test that is {test.tier} may use {BUDGETS[test.tier]:.0f}"
            for test, seconds in over
        ),
        *(f"{name} is listed as slow, but is no test any more" for name in outdated(slow, used)),
    ]


class Tiers:
    """The plugin: marks slow tests, charges each test for its CPU, and judges or records when all have run."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._slow = read(LIST.read_text(encoding="utf-8"))
        self._used: Counter[Entry] = Counter()
        self._faults: list[str] = []
        self._started_at = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if name_of(item.nodeid) in self._slow and not item.get_closest_marker("essential"):
                item.add_marker(pytest.mark.slow)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._started_at = self._seconds(item)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            tier = next((tier for tier in ("essential", "slow") if item.get_closest_marker(tier)), "quick")
            seconds = max(0.0, self._seconds(item) - self._started_at)
            report.user_properties.append((_PROPERTY, [tier, seconds]))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == _PROPERTY and report.when == "teardown" and isinstance(value, list):
                tier, seconds = value
                self._used[Entry(name_of(report.nodeid), tier)] += seconds

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Judge or record, unless a test failed: such a test may have used less than it needs."""
        if hasattr(session.config, "workerinput") or exitstatus != pytest.ExitCode.OK:
            return
        if self._mode == RECORD:
            LIST.write_text(written(updated(self._slow, self._used)), encoding="utf-8")
        elif self._mode == CHECK:
            self._faults = faults(self._slow, self._used)
            if self._faults:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._mode:
            terminalreporter.section("CPU seconds")
            for tier in BUDGETS:
                found = [seconds for test, seconds in self._used.items() if test.tier == tier]
                terminalreporter.line(f"{tier}: {sum(found):.0f} in {len(found)} tests")
            for test, seconds in self._used.most_common():
                if test.tier == "quick" and seconds > BUDGETS["quick"]:
                    terminalreporter.line(f"{seconds:6.1f} {test.name}")
        if self._faults:
            terminalreporter.section("Tests in the wrong tier")
            for fault in self._faults:
                terminalreporter.line(fault)
            terminalreporter.line("Make them cheaper, or run `make test-times` and commit tests/slow.txt.")

    @staticmethod
    def _seconds(item: pytest.Item) -> float:
        """Return the CPU used so far that is charged to tests; looking for running processes takes its time."""
        return cpu_seconds(with_children=item.get_closest_marker("acceptance") is not None) - _shared_seconds
