"""Define how a command can fail. The names of the classes are the types of the recorded errors."""

from __future__ import annotations

from raftsched.worker.handlers.verdicts import GiveUp, Retry


class CommandRefused(GiveUp):
    """This worker can't or may not run the command: its program, its directory or its environment. Final."""

    error_type = "CommandRefused"


class CommandNotStarted(Retry):
    """The system could not start the command now: memory or processes are used up."""

    error_type = "CommandNotStarted"


class FinalExitCode(GiveUp):
    """The command ended with an exit code that is not tried again."""

    error_type = "ExitCode"


class RetriedExitCode(Retry):
    """The command ended with an exit code that is tried again."""

    error_type = "ExitCode"


class KilledBySignal(Retry):
    """A signal ended the command."""

    error_type = "KilledBySignal"


class SupervisorDied(Retry):
    """The process that watches the command was killed, and the command with it."""

    error_type = "SupervisorDied"
