"""Counts the steps that code takes, for tests of its cost: a machine is slow or busy at times, steps are always the same.

A step is a line of Python that runs; a loop steps again through its lines in every round, a comprehension written on one
line does too. What a call into C does counts as the line that calls it, however long it takes: where that is what may
grow, a test counts what is asked of its arguments, or `tests.bench.refusals` measures it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any


@dataclass(slots=True)
class Steps:
    """Steps counted so far."""

    count: int = 0


@contextmanager
def counted_steps(*packages: ModuleType) -> Iterator[Steps]:
    """Count the steps that this thread takes in the code of `packages`, in functions and coroutines entered from now on."""
    steps = Steps()
    is_counted: dict[str, bool] = {}
    folders = tuple(_folder(package) for package in packages)

    def on_line(frame: FrameType, event: str, arg: Any) -> Any:
        steps.count += event == "line"
        return on_line

    def on_call(frame: FrameType, event: str, arg: Any) -> Any:
        file = frame.f_code.co_filename
        if file not in is_counted:
            is_counted[file] = file.startswith(folders)
        return on_line if is_counted[file] else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield steps
    finally:
        sys.settrace(before)


def steps_of(run: Callable[[], object], *packages: ModuleType) -> int:
    """Return the steps that `run` takes in the code of `packages`."""
    with counted_steps(*packages) as steps:
        run()
    return steps.count


def _folder(package: ModuleType) -> str:
    assert package.__file__ is not None
    return str(Path(package.__file__).parent)
