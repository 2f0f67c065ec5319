"""Processes of the load, on the harness's own host or another one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from chaos.drills.history.recorder import Recorder
from chaos.drills.nodes import Node

_ROOT: Final = Path(__file__).parents[3]
_STOP_SECONDS_MAX: Final = 20.0


class LoadProcess:
    """A process that runs `module` against `nodes`; each of its lives records to a file of its own."""

    def __init__(
        self,
        module: str,
        name: str,
        nodes: Sequence[Node],
        directory: Path,
        recorder: Recorder,
        *,
        numbers: range,
        settings: Mapping[str, str] | None = None,
        host: Sequence[str] = (),
    ) -> None:
        """Make a process with `settings` in its environment; `host` begins command lines that run on its host."""
        self.name: Final = name
        self.histories: Final[list[Path]] = []
        self._module = module
        self._nodes = nodes
        self._directory = directory
        self._recorder = recorder
        self._numbers = iter(numbers)
        self._settings = settings or {}
        self._host = host
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        history = self._directory / f"{self.name}-{len(self.histories)}.jsonl"
        history.touch()
        self.histories.append(history)
        settings = {
            **self._recorder.settings_for(history, next(self._numbers)),
            "RAFTSCHED_URL": " ".join(node.url for node in self._nodes),
            "DRILL_NODE_IDS": json.dumps({node.api: node.id for node in self._nodes}),
            "DRILL_WORKER": self.name,
            **self._settings,
        }
        with (self._directory / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._host, sys.executable, "-m", self._module],
                env=os.environ | settings,
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # only we get Ctrl-C
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def ask_to_stop(self) -> None:
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def stop(self) -> None:
        """Ask it to stop, and wait; kill it if it is late."""
        self.ask_to_stop()
        if self._process is not None:
            try:
                self._process.wait(_STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
