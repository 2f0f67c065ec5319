"""The command line in the tests: run in a thread of its own, since it blocks, against a node that this loop serves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from click.testing import CliRunner

from raftsched.cli.main import main

USER = "ada"


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command did."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one document on standard output."""
        return msgspec.json.decode(self.stdout)

    @property
    def json_lines(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.stdout.splitlines()]

    @property
    def rows(self) -> list[list[str]]:
        """The cells of the table's lines, below its heading; cells without blanks in them only."""
        lines = [line.split() for line in self.stdout.splitlines() if line.strip()]
        rule = next(number for number, cells in enumerate(lines) if set(cells[0]) == {"─"})
        return lines[rule + 1 :]


class Cli:
    """Commands of `raftsched` against the node at `url`."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def run(self, *arguments: str, given: str | None = None) -> Ran:
        """Run `raftsched …` and return what it did; a trace is a failure of the test."""
        environment = {"RAFTSCHED_URL": self._url, "LOGNAME": USER}
        ran = await asyncio.to_thread(CliRunner().invoke, main, arguments, input=given, env=environment)
        if ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        assert "Traceback" not in ran.output, ran.output
        return Ran(ran.exit_code, ran.stdout, ran.stderr)

    async def ok(self, *arguments: str, given: str | None = None) -> Ran:
        """Run a command that must do what it is told."""
        ran = await self.run(*arguments, given=given)
        assert ran.exit_code == 0, (arguments, ran.stdout, ran.stderr)
        return ran

    async def json(self, *arguments: str, given: str | None = None) -> Any:
        """Run a command that must do what it is told, and return the document that it prints."""
        return (await self.ok(*arguments, "--json", given=given)).json

    async def refused(self, *arguments: str, given: str | None = None) -> str:
        """Run a command that the cluster, or the command itself, refuses, and return the one line that says why."""
        ran = await self.run(*arguments, given=given)
        assert ran.exit_code == 1, (arguments, ran.stdout, ran.stderr)
        lines = ran.stderr.splitlines()
        assert len(lines) == 1, ran.stderr
        assert lines[0].startswith("raftsched: ")
        return lines[0]

    async def misused(self, *arguments: str) -> str:
        """Run a command that its wrong use ends, and return what it says."""
        ran = await self.run(*arguments)
        assert ran.exit_code == 2, (arguments, ran.stdout, ran.stderr)
        assert "--help" in ran.stderr
        return ran.stderr


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)
