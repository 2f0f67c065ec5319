"""Run handlers in child processes if they must not share the interpreter: one call at a time in each.

A child is started fresh (spawn), never forked: it shares no socket, lock or thread with the worker, and can neither
heartbeat nor report. It gets a call as JSON over its own pipe, passes the handler's reports over it, and ends with an
`Outcome`. A child that dies takes only its own run with it.

A child leads a session of its own, so the signals of a terminal or of a container's group reach the worker alone, which
then drains. Stopping a run ends the whole process group of its child: SIGTERM, a grace, SIGKILL
(`raftsched.worker.execution.process_group`). So this is the only kind of handler that can always be stopped.

A child whose worker died ends by itself, and its group with it: it reads the end of its pipe, and while it works, a
thread in it watches the worker's process.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
from datetime import datetime
from functools import reduce
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from raftsched.errors import NotFound, RaftschedError, Unavailable
from raftsched.wire.workers import Outcome
from raftsched.worker.execution.capture import captured, routed
from raftsched.worker.execution.process_group import ProcessGroup
from raftsched.worker.handlers.context import NullSink, ReportSink
from raftsched.worker.handlers.registry import Handler
from raftsched.worker.handlers.result import RetryRules, failed, outcome_of, valid_text
from raftsched.worker.runs.runs import Grant, Run, context_of

_start = threading.Lock()
"""The standard library's list of children isn't made for starting two at once."""


class _Call(msgspec.Struct):
    """The data that the child needs to run one attempt."""

    module: str
    qualname: str
    takes_context: bool
    grant: Grant
    deadline: datetime | None
    rules: RetryRules
    captures_stdout: bool


class _ChildMessage(msgspec.Struct, omit_defaults=True):
    """A message of the child: a report of the handler, or at last its outcome."""

    outcome: Outcome | None = None
    progress: msgspec.Raw | UnsetType = UNSET
    alive: bool = False
    text: str | None = None
    asked: str | None = None
    """The parent whose result the handler waits for."""


class _Answered(msgspec.Struct):
    """The reply to a child that has asked for a result."""

    result: Any = None
    code: str = ""
    """The code of the error, if there is one."""
    message: str = ""


_encode = msgspec.json.Encoder().encode
_decode_call = msgspec.json.Decoder(_Call).decode
_decode_message = msgspec.json.Decoder(_ChildMessage).decode
_decode_answered = msgspec.json.Decoder(_Answered).decode


class ProcessPool:
    """Manage the children of a worker. `call` belongs to a thread of its own, everything else to the worker's event
    loop.

    A child that must stop has `grace_seconds` from SIGTERM to SIGKILL.
    """

    def __init__(self, *, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._idle: list[_Child] = []
        self._at_work: dict[int, _Child] = {}
        """By fencing token."""

    def prepare(self, run: Run) -> None:
        """Give `run` an idle child, if there is one; otherwise `call` starts one."""
        if self._idle:
            self._at_work[run.grant.fencing_token] = self._idle.pop()

    def call(self, handler: Handler, run: Run) -> Outcome:
        """Run the handler in the child of `run` and return its outcome; blocks until then."""
        child = self._at_work.get(run.grant.fencing_token)
        if child is None:
            child = self._at_work[run.grant.fencing_token] = _Child(self._grace_seconds)
            if run.stop is not None:  # asked to stop while the child was starting
                child.stop()
        return child.call(_call_for(handler, run), run.reports or NullSink())

    def stop(self, run: Run) -> None:
        """Ask the handler of `run`, and all that it started, to end; kill the rest after the grace."""
        child = self._at_work.get(run.grant.fencing_token)
        if child is not None:
            child.stop()

    def kill(self, run: Run) -> None:
        """End the handler of `run`, and all that it started, at once."""
        child = self._at_work.get(run.grant.fencing_token)
        if child is not None:
            child.kill()

    def released(self, run: Run) -> None:
        """Note that the call of `run` has ended: its child takes another, if it still lives."""
        child = self._at_work.pop(run.grant.fencing_token, None)
        if child is None:
            return
        if run.stop is None and child.is_alive:
            self._idle.append(child)
        else:
            child.kill()

    def close(self) -> None:
        """End all children at once, with everything that finished handlers left running in their groups."""
        for child in self._at_work.values():
            child.kill()
        while self._idle:
            self._idle.pop().close()


class _Child:
    """A child process, which leads a group."""

    def __init__(self, grace_seconds: float) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs,), name="raftsched-handler", daemon=True)
        with _start:
            self._process.start()
        theirs.close()
        self._group = ProcessGroup(self._process, grace_seconds=grace_seconds)

    @property
    def is_alive(self) -> bool:
        return not self._pipe.closed and self._process.is_alive()

    def call(self, call: _Call, sink: ReportSink) -> Outcome:
        """Pass on the child's reports and return its outcome; one that died is a failure of this call alone.

        If the child died, or was asked to end, its group is ended before this returns.
        """
        try:
            outcome = self._outcome_of(call, sink)
        except (EOFError, OSError):
            self._end_group()
            return failed("ProcessDied", f"the handler's process ended with exit code {self._process.exitcode}")
        except BaseException:
            # Its handler may still be at work, and would take the next call for an answer.
            self._group.kill()
            self._end_group()
            raise
        if self._group.is_asked:
            self._end_group()
        return outcome

    def _outcome_of(self, call: _Call, sink: ReportSink) -> Outcome:
        self._pipe.send_bytes(_encode(call))
        while True:
            message = _decode_message(self._receive())
            if message.outcome is not None:
                return message.outcome
            if message.asked is not None:
                self._pipe.send_bytes(_encode(_answer_to(message.asked, sink)))
            _pass_on(message, sink)

    def _receive(self) -> bytes:
        """Return the next message of the child; raises EOFError if it died, though what it started may hold the pipe."""
        if self._pipe in wait([self._pipe, self._group.death]):
            return self._pipe.recv_bytes()
        raise EOFError

    def _end_group(self) -> None:
        self._pipe.close()  # this ends a child that waits for its next call
        self._group.end()

    def stop(self) -> None:
        self._group.ask()

    def kill(self) -> None:
        """End it without waiting; the library reaps it later."""
        self._group.kill()

    def close(self) -> None:
        """End it and its group at once, and reap it."""
        self._group.kill()
        self._end_group()


def _call_for(handler: Handler, run: Run) -> _Call:
    return _Call(
        module=handler.function.__module__,
        qualname=handler.function.__qualname__,
        takes_context=handler.takes_context,
        grant=run.grant,
        deadline=run.context.deadline,
        rules=handler.rules,
        captures_stdout=handler.captures_stdout,
    )


def _pass_on(message: _ChildMessage, sink: ReportSink) -> None:
    if message.progress is not UNSET:
        sink.progress(bytes(message.progress))
    if message.alive:
        sink.beat()
    if message.text is not None:
        sink.log(message.text)


def _answer_to(parent: str, sink: ReportSink) -> _Answered:
    try:
        return _Answered(sink.result_of(parent))
    except RaftschedError as error:
        return _Answered(code=error.code, message=str(error))


# -- in the child -----------------------------------------------------------------------------------------------------


def _serve(pipe: Pipe) -> None:
    """Answer calls until the worker closes its end of the pipe, or dies."""
    os.setsid()
    threading.Thread(target=_end_with_parent, name="raftsched-parent-watch", daemon=True).start()
    while True:
        try:
            data = pipe.recv_bytes()
        except EOFError:
            return
        sink = PipeSink(pipe)
        sink.end(_outcome(_decode_call(data), sink))


class PipeSink:
    """Send everything to the worker, over the pipe; safe from any thread of the child."""

    is_log_behind = False

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._is_over = False

    def end(self, outcome: Outcome) -> None:
        """Send the handler's outcome; later reports and questions are dropped, as from a thread that it left behind.

        An open question is answered first: after the outcome, the next message on the pipe is a call.
        """
        with self._asking:
            self.send(_ChildMessage(outcome))

    def send(self, message: _ChildMessage) -> None:
        with self._lock:
            if not self._is_over:
                self._is_over = message.outcome is not None
                self._pipe.send_bytes(_encode(message))

    def progress(self, document: bytes) -> None:
        self.send(_ChildMessage(progress=msgspec.Raw(document)))

    def beat(self) -> None:
        self.send(_ChildMessage(alive=True))

    def log(self, text: str) -> None:
        self.send(_ChildMessage(text=valid_text(text)))

    def result_of(self, parent: str) -> Any:
        with self._asking:
            if self._is_over:
                raise Unavailable("the attempt is over")
            self.send(_ChildMessage(asked=valid_text(parent)))
            answered = _decode_answered(self._pipe.recv_bytes())
        if not answered.code:
            return answered.result
        raise NotFound(answered.message) if answered.code == "not_found" else Unavailable(answered.message)


def _outcome(call: _Call, sink: ReportSink) -> Outcome:
    try:
        function: Any = reduce(getattr, call.qualname.split("."), importlib.import_module(call.module))
    except (ImportError, AttributeError) as error:
        return failed("HandlerNotFound", f"{call.module}:{call.qualname}: {error}", retryable=False)
    context = context_of(call.grant, sink, call.deadline)
    arguments = (context, call.grant.payload) if call.takes_context else (call.grant.payload,)
    with routed(wanted=call.captures_stdout), captured(context.log if call.captures_stdout else None):
        return outcome_of(function, arguments, call.rules)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)  # this process too
