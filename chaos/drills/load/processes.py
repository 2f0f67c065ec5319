"""Processes of the load, on the harness's own host or another one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from chaos.checkers.history.events import AnyEvent, Effect, read_history
from chaos.drills.history.recorder import Recorder, merged
from chaos.drills.nodes import Node
from raftsched.cli.local.children import lifeline

SDK_WORKER: Final = "sdk-worker"
HTTP_EXECUTOR: Final = "http-executor"
"""The beginnings of the names of workers."""
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
        self._lives: list[_Life] = []
        self._module = module
        self._nodes = nodes
        self._directory = directory
        self._recorder = recorder
        self._numbers = iter(numbers)
        self._settings = settings or {}
        self._host = host
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        history = self._directory / f"{self.name}-{len(self._lives)}.jsonl"
        history.touch()
        self._lives.append(_Life(history))
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
                stdin=lifeline(),
                stdout=log,
                stderr=log,
                process_group=0,  # only we get Ctrl-C
            )

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
            self._lives[-1].stood_still_at.append(self._recorder.t)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self._lives[-1].stood_still_at.append(self._recorder.t)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def ask_to_stop(self) -> None:
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """Ask it to stop, and wait; kill it if it is late."""
        self.ask_to_stop()
        if self._process is not None:
            try:
                self._process.wait(_STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()

    def events(self) -> list[AnyEvent]:
        """Return what all of its lives recorded; what a killed or paused one had begun ended there.

        A lease is no promise of a process that is paused: what it does later is for fencing tokens to refuse.
        """
        return merged([life.history for life in self._lives]) + [
            event for life in self._lives for event in _cut_short(life)
        ]


@dataclass(frozen=True, slots=True)
class _Life:
    history: Path
    stood_still_at: list[int] = field(default_factory=list)
    """The moments of its pauses, and of its end if it was killed."""


def _cut_short(life: _Life) -> Iterator[AnyEvent]:
    if not life.stood_still_at:
        return
    effects = [event for event in read_history(life.history) if isinstance(event, Effect)]
    for moment in life.stood_still_at:
        before = [effect for effect in effects if effect.t <= moment]
        ended = {effect.token for effect in before if effect.phase == "end"}
        yield from (replace(effect, t=moment, phase="end") for effect in before if effect.token not in ended)
