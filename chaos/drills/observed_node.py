"""Run `raftsched node`, and write down what nobody sees from outside: when it applied which entry, and which terms it led.

    python -m chaos.drills.observed_node node --config FILE

Production code runs as it is. Two of its calls are wrapped in this process, and also write a line each to a file of the
drill, at once and before anybody can be answered: a node that is killed has written all that it has shown. SIGUSR2 writes
the stacks of all threads and tasks to stderr. To test drills, a bug can be planted first. Without the drill's environment
this is a node like any other.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from raftsched.__main__ import run
from raftsched.consensus.machine import ReplicatedState
from raftsched.consensus.replica import Replica

OBSERVED_NODE: Final = ("chaos.drills.observed_node", "node")
FILE: Final = "DRILL_OBSERVED"
ORIGIN: Final = "DRILL_OBSERVED_ORIGIN_NS"
BUG: Final = "DRILL_BUG"
APPLIED: Final = "applied"
LED: Final = "led"
"""Kinds of lines: `KIND T NUMBER`, T in microseconds since the origin, and the index of an entry, or a term."""
STACKS: Final = signal.SIGUSR2


def observe(path: str, origin_ns: int) -> None:
    """Write down from now on what this process applies and leads, by the monotonic clock since `origin_ns`."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    led = 0

    def tell(kind: str, number: int) -> None:
        os.write(file, b"%b %d %d\n" % (kind.encode(), (time.monotonic_ns() - origin_ns) // 1000, number))

    def told(original: Callable[..., Any]) -> Callable[..., Any]:
        def applies(self: ReplicatedState, index: int, term: int, content: Any) -> Any:
            result = original(self, index, term, content)
            tell(APPLIED, index)
            return result

        return applies

    tells_leadership = Replica._tell_leadership  # noqa: SLF001  # called after each step of the engine

    def tell_leadership(self: Replica, term: int) -> None:
        nonlocal led
        if self._engine.leads and self.term != led:  # the engine's own belief
            led = self.term
            tell(LED, led)
        tells_leadership(self, term)

    Replica._tell_leadership = tell_leadership  # type: ignore[method-assign]  # noqa: SLF001
    ReplicatedState.apply = told(ReplicatedState.apply)  # type: ignore[method-assign]
    ReplicatedState.configure = told(ReplicatedState.configure)  # type: ignore[method-assign]


def show_stacks_when_asked() -> None:
    """Let SIGUSR2 write all stacks to stderr: those of threads even if the event loop hangs, of tasks if it runs."""
    signal.signal(STACKS, lambda _number, _frame: _show_tasks())
    faulthandler.register(STACKS, all_threads=True, chain=True)


def _show_tasks() -> None:
    with suppress(RuntimeError):  # no event loop runs
        for task in asyncio.all_tasks():
            task.print_stack(file=sys.stderr)
    sys.stderr.flush()


def settings_of(node: str, directory: Path, origin_ns: int, bug: str) -> Mapping[str, str]:
    """Return the environment by which a node is observed, and has a bug if one is to be planted."""
    settings = {FILE: str(observed_file(node, directory)), ORIGIN: str(origin_ns)}
    return settings | ({BUG: bug} if bug else {})


def observed_file(node: str, directory: Path) -> Path:
    return directory / f"{node}.observed"


def main() -> None:
    show_stacks_when_asked()
    given = os.environ
    if BUG in given:
        from chaos.drills.bugs import plant

        plant(given[BUG])
    if FILE in given:
        observe(given[FILE], int(given[ORIGIN]))
    run()


if __name__ == "__main__":
    main()
