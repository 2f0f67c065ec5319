"""Child processes for handlers that must not share the interpreter: one call at a time in each.

A child is started fresh (spawn), never forked: it shares no socket, lock or thread with the worker, and can neither
heartbeat nor report. It gets a call as JSON over its own pipe and answers with an `Ending`. Stopping a run means
killing its child, so this is also the only kind of handler that can always be stopped. A child that dies takes only
its own run with it.

A child whose worker died ends by itself: it reads the end of its pipe, and while it works, a thread in it watches the
worker's process. It leads a session of its own, so that the signals of a terminal or of a container's group reach the
worker alone, which then drains.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import threading
from datetime import datetime
from functools import reduce
from multiprocessing.connection import Connection as Pipe
from typing import Any

import msgspec

from raftsched.worker.context import Context
from raftsched.worker.endings import Ending, ending_of, failed
from raftsched.worker.registry import Handler
from raftsched.worker.runs import Run

_start = threading.Lock()
"""The standard library's list of children isn't made for starting two at once."""


class _Call(msgspec.Struct):
    """What the child needs to run one attempt."""

    module: str
    qualname: str
    takes_context: bool
    payload: Any
    job_id: str
    run_id: str
    fencing_token: int
    attempt_number: int
    name: str
    queue: str
    deadline: datetime | None


_encode = msgspec.json.Encoder().encode
_decode_call = msgspec.json.Decoder(_Call).decode
_decode_ending = msgspec.json.Decoder(Ending).decode


class ProcessPool:
    """The children of a worker. `prepare`, `released` and `kill` belong to its event loop, `call` to another thread."""

    def __init__(self) -> None:
        self._idle: list[_Child] = []
        self._at_work: dict[int, _Child] = {}
        """By fencing token."""

    def prepare(self, run: Run) -> None:
        """Give `run` an idle child, if there is one; otherwise `call` starts one."""
        if self._idle:
            self._at_work[run.grant.fencing_token] = self._idle.pop()

    def call(self, handler: Handler, run: Run) -> Ending:
        """Run the handler in the child of `run` and return how it ended; blocks until then."""
        child = self._at_work.get(run.grant.fencing_token)
        if child is None:
            child = self._at_work[run.grant.fencing_token] = _Child()
            if run.stop is not None:  # told to stop while the child was starting
                child.kill()
        return child.call(_call_for(handler, run))

    def kill(self, run: Run) -> None:
        """End the handler of `run` at once."""
        child = self._at_work.get(run.grant.fencing_token)
        if child is not None:
            child.kill()

    def released(self, run: Run) -> None:
        """The call of `run` has ended: its child takes another, if it still lives."""
        child = self._at_work.pop(run.grant.fencing_token, None)
        if child is None:
            return
        if run.stop is None and child.is_alive:
            self._idle.append(child)
        else:
            child.discard()

    def close(self) -> None:
        """End the idle children; those at work are killed with their runs."""
        while self._idle:
            self._idle.pop().close()


class _Child:
    """One child process."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs,), name="raftsched-handler", daemon=True)
        with _start:
            self._process.start()
        theirs.close()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def call(self, call: _Call) -> Ending:
        """Return the child's answer; one that died is a failure of this call alone."""
        try:
            self._pipe.send_bytes(_encode(call))
            reply = self._pipe.recv_bytes()
        except (EOFError, OSError):
            self._process.join()
            return failed("ProcessDied", f"the handler's process ended with exit code {self._process.exitcode}")
        return _decode_ending(reply)

    def kill(self) -> None:
        self._process.kill()

    def discard(self) -> None:
        """End it without waiting for its end; the library reaps it later."""
        self._process.kill()
        self._pipe.close()

    def close(self) -> None:
        self.discard()
        self._process.join()


def _call_for(handler: Handler, run: Run) -> _Call:
    context = run.context
    return _Call(
        module=handler.function.__module__,
        qualname=handler.function.__qualname__,
        takes_context=handler.takes_context,
        payload=run.grant.payload,
        job_id=context.job_id,
        run_id=context.run_id,
        fencing_token=context.fencing_token,
        attempt_number=context.attempt_number,
        name=context.name,
        queue=context.queue,
        deadline=context.deadline,
    )


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
        pipe.send_bytes(_encode(_answer(_decode_call(data))))


def _answer(call: _Call) -> Ending:
    try:
        function: Any = reduce(getattr, call.qualname.split("."), importlib.import_module(call.module))
    except (ImportError, AttributeError) as error:
        return failed("HandlerNotFound", f"{call.module}:{call.qualname}: {error}", retryable=False)
    context = Context(
        job_id=call.job_id,
        run_id=call.run_id,
        fencing_token=call.fencing_token,
        attempt_number=call.attempt_number,
        name=call.name,
        queue=call.queue,
        deadline=call.deadline,
    )
    return ending_of(function, (context, call.payload) if call.takes_context else (call.payload,))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
