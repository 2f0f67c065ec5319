from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import BUDGETS, LIST, SLACK, Entry, cpu_seconds, faults, name_of, read, shared, updated, written

QUICK = BUDGETS["quick"]
HERE = "tests/test_tiers.py"
BUSY = "import sys, time\nwhile time.process_time() < 0.2: pass\nprint('done', flush=True)\nsys.stdin.read()"


@pytest.mark.parametrize(
    ("nodeid", "name"),
    [
        ("tests/a.py::test_b", "tests/a.py::test_b"),
        ("tests/a.py::test_b[1-x@y]", "tests/a.py::test_b"),
        ("tests/a.py::test_b@group", "tests/a.py::test_b"),
    ],
)
def test_name_is_the_function_without_parameters_and_group(nodeid: str, name: str) -> None:
    assert name_of(nodeid) == name


def test_list_is_read_as_it_was_written() -> None:
    assert read(written({"b": 12.34, "a": 3.0})) == {"a": 3.0, "b": 12.3}
    assert written(read(LIST.read_text(encoding="utf-8"))) == LIST.read_text(encoding="utf-8")


def test_only_a_test_far_over_the_budget_of_its_tier_is_a_fault() -> None:
    for tier, budget in BUDGETS.items():
        assert faults({}, {Entry(f"{HERE}::x", tier): SLACK * budget}) == []
        [fault] = faults({}, {Entry(f"{HERE}::x", tier): SLACK * budget + 0.1})
        assert f"{HERE}::x used" in fault


def test_names_that_no_test_has_are_faults_once_their_file_ran_or_is_gone() -> None:
    slow = {f"{HERE}::gone": 9.0, "tests/test_gone.py::x": 9.0, "tests/test_words.py::did_not_run": 9.0}
    found = faults(slow, {Entry(f"{HERE}::x", "quick"): 0.1})
    assert [fault.split()[0] for fault in found] == [f"{HERE}::gone", "tests/test_gone.py::x"]


def test_update_lists_what_is_over_the_budget_and_keeps_what_did_not_run() -> None:
    slow = {f"{HERE}::{name}": 9.0 for name in ("still", "faster", "gone")} | {"tests/test_words.py::did_not_run": 9.0}
    used = {
        Entry(f"{HERE}::still", "slow"): QUICK / 2 + 0.1,
        Entry(f"{HERE}::faster", "slow"): QUICK / 2 - 0.1,
        Entry(f"{HERE}::new", "quick"): QUICK + 0.1,
        Entry(f"{HERE}::cheap", "quick"): QUICK - 0.1,
        Entry(f"{HERE}::promise", "essential"): 9 * QUICK,
    }
    assert updated(slow, used) == {
        f"{HERE}::still": QUICK / 2 + 0.1,
        f"{HERE}::new": QUICK + 0.1,
        "tests/test_words.py::did_not_run": 9.0,
    }


def test_cpu_of_running_and_ended_children_counts_and_shared_work_is_left_out() -> None:
    before = cpu_seconds()
    with (
        shared(),
        subprocess.Popen(
            [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child,
    ):
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "done\n"
        running = cpu_seconds() - before
        child.stdin.close()
    assert running >= 0.15
    assert cpu_seconds() - before >= running - 0.02


def test_slow_tests_are_left_out_and_a_test_over_its_budget_fails_the_run(tmp_path: Path) -> None:
    """By a run of pytest with budgets of nothing, in a project of three tests."""
    (tmp_path / "conftest.py").write_text(
        f"""
import sys
sys.path.insert(0, {str(LIST.parents[1])!r})
from pathlib import Path
from tests import tiers
tiers.LIST = Path(__file__).with_name("slow.txt")
tiers.BUDGETS = {{"quick": 0.02, "essential": 1.0, "slow": 1.0}}
from tests.conftest import pytest_addoption, pytest_configure
"""
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  acceptance\n  essential\n  slow\n")
    (tmp_path / "test_a.py").write_text(
        """
import time
import pytest

def busy():
    until = time.process_time() + 0.3
    while time.process_time() < until: pass

def test_quick(): pass

@pytest.mark.essential
def test_essential(): busy()

def test_slow(): busy()
"""
    )
    slow = tmp_path / "slow.txt"
    slow.write_text("")

    def run(*options: str) -> tuple[int, str]:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.returncode, ran.stdout

    code, said = run("--cpu=check")
    assert (code, "3 passed" in said, "test_a.py::test_slow used" in said) == (1, True, True), said
    assert run("--cpu=record")[0] == 0
    assert [*read(slow.read_text())] == ["test_a.py::test_slow"]
    code, said = run("--cpu=check")
    assert (code, "slow: " in said) == (0, True), said
    code, said = run("-m", "not slow")
    assert (code, "2 passed, 1 deselected" in said) == (0, True), said
