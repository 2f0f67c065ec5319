"""Define the `raftsched` command and its sub-commands.

Each sub-command lives in a module of its own that is imported only when it is called, so that `raftsched submit` does
not load a node's code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

import click

from raftsched.cli.terminal.exit_codes import EXIT_INTERRUPTED
from raftsched.wire.verbs import JOB

_SECTIONS: Final = {
    "Jobs": {
        "submit": "raftsched.cli.commands.submit",
        "run": "raftsched.cli.wrapper.command",
        "get": "raftsched.cli.commands.jobs",
        "list": "raftsched.cli.commands.jobs",
        "tail": "raftsched.cli.commands.tail",
        "logs": "raftsched.cli.commands.tail",
        "explain": "raftsched.cli.commands.jobs",
        "history": "raftsched.cli.commands.jobs",
        **dict.fromkeys(JOB, "raftsched.cli.commands.control"),
        "dead-letter": "raftsched.cli.commands.dead_letters",
    },
    "Schedules and workflows": {
        "schedule": "raftsched.cli.commands.schedule.command",
        "apply": "raftsched.cli.commands.schedule.apply",
        "import": "raftsched.cli.commands.schedule.imports",
        "workflow": "raftsched.cli.commands.workflows",
    },
    "Queues, workers and tenants": {
        "queue": "raftsched.cli.commands.queues",
        "queues": "raftsched.cli.commands.queues",
        "tenant": "raftsched.cli.commands.tenants",
        "token": "raftsched.cli.commands.tokens",
        "workers": "raftsched.cli.commands.workers",
        "worker": "raftsched.cli.commands.worker",
    },
    "The cluster": {
        "cluster": "raftsched.cli.commands.cluster",
        "encryption": "raftsched.cli.commands.encryption",
        "events": "raftsched.cli.commands.events",
        "audit": "raftsched.cli.commands.audit",
        "node": "raftsched.cli.commands.node",
        "doctor": "raftsched.cli.commands.doctor",
        "tls": "raftsched.cli.commands.tls",
        "check": "raftsched.cli.commands.check",
        "compact": "raftsched.cli.commands.compact",
        "restore": "raftsched.cli.commands.new_cluster",
        "healthcheck": "raftsched.cli.commands.healthcheck",
    },
    "Try it": {
        "demo": "raftsched.cli.demo.command",
        "dev": "raftsched.cli.local.dev",
        "bench": "raftsched.cli.bench.command",
    },
}
_MODULES: Final = {name: module for section in _SECTIONS.values() for name, module in section.items()}


@contextmanager
def _quiet_on_interrupt() -> Iterator[None]:
    """End at Ctrl-C as shells expect it, even while a command is still being loaded.

    It is needed inside `click.Command.main`, too, which otherwise says "Aborted!" and exits with 1.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None


class _LazyGroup(click.Group):
    """Load a command when it is called, and all of them for the help text, in sections."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the command line; ends the program. See `click.Command.main`."""
        with _quiet_on_interrupt():
            try:
                return super().main(*args, **settings)
            except OSError:
                from raftsched.cli.terminal.output import writing

                with writing():  # if click's own output, such as the help, failed, this fails, too
                    sys.stdout.write("\n")
                    sys.stdout.flush()
                raise

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        with _quiet_on_interrupt():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        with _quiet_on_interrupt():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        module = _MODULES.get(cmd_name)
        if module is None:
            return None
        names = vars(import_module(module))
        command = names["COMMANDS"][cmd_name] if "COMMANDS" in names else names[f"{cmd_name.replace('-', '_')}_command"]
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in _SECTIONS.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl([(name, command.get_short_help_str(80)) for name, command in commands if command])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("raftsched"))
def main() -> None:
    """A job scheduler that is one small Raft cluster and nothing else."""
