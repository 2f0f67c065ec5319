"""The `raftsched` command and its sub-commands.

Each sub-command lives in a module of its own that is imported only when it is called, so that `raftsched submit` does
not load a node's code.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version

import click

_COMMANDS = {
    "demo": "raftsched.cli.demo.command",
    "dev": "raftsched.cli.dev",
    "node": "raftsched.cli.node",
    "worker": "raftsched.cli.worker",
    "submit": "raftsched.cli.jobs",
    "get": "raftsched.cli.jobs",
    "list": "raftsched.cli.jobs",
    "cancel": "raftsched.cli.jobs",
    "queues": "raftsched.cli.overview",
    "workers": "raftsched.cli.overview",
    "cluster": "raftsched.cli.cluster",
    "check": "raftsched.cli.check",
    "bench": "raftsched.cli.bench.command",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = getattr(import_module(module), f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("raftsched"))
def main() -> None:
    """A job scheduler that is one small Raft cluster and nothing else."""
