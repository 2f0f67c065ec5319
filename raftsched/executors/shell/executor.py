"""Run the commands of shell jobs for a worker: `ShellExecutor.run` is what `Worker.execute` takes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from raftsched.client.client import URL_DEFAULT
from raftsched.executors.parameters import parameter_texts, secret_names
from raftsched.executors.placeholders import UnknownPlaceholder, facts_of, filled
from raftsched.executors.secrets import MissingSecret, Redaction, Secrets
from raftsched.executors.shell.environment import (
    parameter_variables,
    run_variables,
    trace_variables,
    worker_variables,
)
from raftsched.executors.shell.errors import CommandRefused, FinalExitCode, KilledBySignal, RetriedExitCode
from raftsched.executors.shell.output import Output, Stream
from raftsched.executors.shell.process import Command, run
from raftsched.executors.shell.programs import Programs
from raftsched.wire.calls import ShellCommand
from raftsched.worker.handlers.context import Context

Copy = Callable[[str, bytes], None]
"""Take the next bytes of the stream of this name, `stdout` or `stderr`."""
_MIB = 1024 * 1024
_PATIENCE_SECONDS = 20.0
"""Longest time, in all, for which a command that writes fast waits for its log: more than an election takes."""
_LOOK_SECONDS = 0.01
_ERROR_CHARS_MAX = 1_500
"""Part of the output, its end, that the error of a failed attempt contains."""


class ShellResult(msgspec.Struct):
    """The result of a shell job whose command ended with an exit code of success."""

    exit_code: int | None
    signal: str | None
    """Name of the signal that ended the command; the result of a success has none."""
    duration_ms: int
    stdout_tail: str
    """The last 4 KiB."""
    stderr_tail: str
    output_bytes: int
    truncated: bool
    """The log of the attempt does not have all of the output."""


class Ended(NamedTuple):
    """A command that ended by itself or by a signal."""

    exit_code: int
    """Negative for a signal."""
    output: Output
    duration_ms: int


class ShellExecutor:
    """Run commands by the rules of one worker."""

    def __init__(
        self,
        *,
        allow: Sequence[str] | None,
        env: Sequence[str] = (),
        urls: Sequence[str] = (),
        grace_seconds: float,
        secrets: Secrets | None = None,
    ) -> None:
        """Allow the programs at the paths `allow`, or any if it is None.

        Commands get the variables `env` of this process. `urls` is what they find in RAFTSCHED_URL. `grace_seconds` is
        the time from SIGTERM to SIGKILL. `secrets` are those that parameters of runs can name. Raises `Invalid` for a path
        without a program, and for a variable that is not set.
        """
        self._programs = Programs(allow)
        self._variables = worker_variables(env, os.environ)
        self._urls = urls or (URL_DEFAULT,)
        self._grace_seconds = grace_seconds
        self._secrets = secrets or Secrets()

    async def run(self, ctx: Context, payload: Any) -> ShellResult:
        """Run the command `ctx.call`, with `payload` as its standard input; lines of its output go to the log.

        Raises an error of `errors` unless it ends with an exit code of success.
        """
        call = _read(ctx.call)
        secrets = self._secrets_of(ctx)
        command = self._command(call, ctx, payload, secrets)
        ended = await run_logged(command, ctx, grace_seconds=self._grace_seconds, redaction=Redaction(secrets))
        return result_of(ended, call)

    def _secrets_of(self, ctx: Context) -> Mapping[str, str]:
        """Return name -> value of the secrets among the parameters of a run; raises `CommandRefused`."""
        try:
            return {name: self._secrets.read(name, ctx.tenant) for name in secret_names(ctx.parameters)}
        except MissingSecret as error:
            raise CommandRefused(str(error)) from None

    def _command(self, call: ShellCommand, ctx: Context, payload: Any, secrets: Mapping[str, str]) -> Command:
        if call.cwd is not None and not call.cwd.startswith("/"):
            raise CommandRefused(f"cwd: {call.cwd!r} is not an absolute path")
        self._programs.check_env(call.env)
        parameters = parameter_texts(ctx.parameters, secrets)
        for name, text in parameters.items():
            if "\0" in text:
                raise CommandRefused(f"parameters.{name}: has a NUL, which no variable can hold")
        own = {**parameter_variables(parameters), **run_variables(ctx, self._urls)}
        return Command(
            program=self._programs.find(call.argv[0]),
            argv=call.argv,
            env={**self._variables, **trace_variables(ctx), **call.env, **own},
            cwd=call.cwd,
            stdin=_stdin(ctx, payload, secrets),
            nice=call.nice,
            memory_bytes=None if call.memory_mib is None else call.memory_mib * _MIB,
            cpu_seconds=call.cpu_seconds,
        )


async def run_logged(
    command: Command,
    ctx: Context,
    *,
    grace_seconds: float,
    copy: Copy | None = None,
    redaction: Redaction | None = None,
) -> Ended:
    """Run `command` with its output in the log of the attempt, and return its end; `copy` gets all of the output, too.

    What `redaction` removes is in neither the log nor the result. Raises as `process.run` does.
    """
    output = Output(ctx.log, redaction or Redaction({}))
    pace = _Pace(ctx, output, copy)
    started_at = time.monotonic()
    try:
        code = await run(
            command,
            grace_seconds=grace_seconds,
            take_stdout=partial(pace.take, output.stdout),
            take_stderr=partial(pace.take, output.stderr),
        )
    finally:
        output.close()
    return Ended(code, output, round((time.monotonic() - started_at) * 1000))


def result_of(ended: Ended, call: ShellCommand) -> ShellResult:
    """Return the result of a success by the exit codes of `call`; raises an error of `errors` for a failure."""
    output = ended.output
    _raise_unless_success(ended.exit_code, call, output)
    return ShellResult(
        exit_code=ended.exit_code,
        signal=None,
        duration_ms=ended.duration_ms,
        stdout_tail=output.stdout.tail,
        stderr_tail=output.stderr.tail,
        output_bytes=output.byte_count,
        truncated=output.is_full,
    )


def _read(call: Any) -> ShellCommand:
    try:
        return msgspec.convert(call, ShellCommand)
    except msgspec.ValidationError as error:
        raise CommandRefused(
            f"this worker does not understand the command: {error}; is it older than the cluster?"
        ) from error


def _stdin(ctx: Context, payload: Any, secrets: Mapping[str, str]) -> bytes:
    if payload is None:
        return b""
    try:
        text = filled(payload, facts_of(ctx, secrets))
    except UnknownPlaceholder as error:
        raise CommandRefused(f"stdin: {error}") from None
    return text.encode() if isinstance(text, str) else msgspec.json.encode(text)


class _Pace:
    """Take output, and make the command wait while its log is behind. Output is a sign of life."""

    def __init__(self, ctx: Context, output: Output, copy: Copy | None) -> None:
        self._ctx = ctx
        self._output = output
        self._copy = copy
        self._patience_seconds = _PATIENCE_SECONDS

    async def take(self, stream: Stream, data: bytes) -> None:
        if self._copy is not None:
            self._copy(stream.name, data)
        stream.take(data)
        self._ctx.heartbeat()
        while self._ctx.is_log_behind and not self._output.is_full and self._patience_seconds > 0:
            await asyncio.sleep(_LOOK_SECONDS)
            self._patience_seconds -= _LOOK_SECONDS


def _raise_unless_success(code: int, call: ShellCommand, output: Output) -> None:
    if code in call.success_exit_codes:
        return
    end = _end_of(output)
    if code < 0:
        raise KilledBySignal(f"{_signal_name(-code)} ended the command{end}")
    is_retried = call.retry_exit_codes is None or code in call.retry_exit_codes
    raise (RetriedExitCode if is_retried else FinalExitCode)(f"exit code {code}{end}")


def _end_of(output: Output) -> str:
    """Return the end of the output for people, standard error if there was any."""
    for stream in (output.stderr, output.stdout):
        if text := stream.tail.strip():
            return f"; the end of {stream.name}:\n{text[-_ERROR_CHARS_MAX:]}"
    return ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
