"""A node as a process of this machine, which ends with the drill whatever becomes of that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from chaos.drills.backends.port import Launch
from chaos.drills.observed_node import STACKS
from raftsched.cli.local.children import UNTIL_STDIN_ENDS, lifeline

_STACKS_SECONDS: Final = 1.0
_ROOT: Final = Path(__file__).parents[3]


class LocalProcess:
    """Runs a node with this interpreter; `prefix` is put before its command line."""

    def __init__(self, launch: Launch, prefix: Sequence[str] = ()) -> None:
        with launch.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*prefix, sys.executable, "-m", *launch.arguments, UNTIL_STDIN_ENDS],
                env={**os.environ, "PYTHONFAULTHANDLER": "1", "PYTHONPATH": str(_ROOT), **launch.settings},
                cwd=launch.release or _ROOT,  # Python looks for the package there first
                stdin=lifeline(),
                stdout=log,
                stderr=log,
                process_group=0,  # only we get Ctrl-C; and without us the kernel ends a paused node, which reads nothing
            )

    def poll(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def dump_stack(self) -> None:
        for number in (STACKS, signal.SIGABRT):  # of tasks and threads; if it hangs, of threads as it ends
            self._signal(number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STACKS_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            self._process.send_signal(number)
