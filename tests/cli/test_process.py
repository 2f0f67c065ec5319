"""The command line as a process: how it ends at Ctrl-C, and where its output can't be written."""

from __future__ import annotations

import asyncio
import os
import sys
import tomllib
from asyncio.subprocess import PIPE
from pathlib import Path

import msgspec
import pytest

from raftsched.__main__ import run
from raftsched.cli.terminal.exit_codes import EXIT_INTERRUPTED
from tests.api.node import Api

FULL = "/dev/full"
INTERRUPTED_AT_IMPORT = """
import signal, sys
module = sys.argv.pop(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # in a shell's background it is ignored

class Interrupts:
    def find_spec(self, name, *_):
        if name == module:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
from raftsched.__main__ import run
run()
"""
"""The command line, to which SIGINT comes when it loads the module that is named first."""
WRITERS = [
    ("list",),
    ("list", "--json"),
    ("get", "JOB"),
    ("tail", "JOB"),
    ("tail", "JOB", "--json"),
    ("logs", "JOB", "--follow"),
    ("logs", "JOB", "--json"),
    ("events", "--after", "1-0"),
    ("events", "--after", "1-0", "--json"),
    ("--help",),
    ("list", "--help"),
]
"""Commands that write something of a job that has ended."""


async def ran(*command: str, output: int = PIPE) -> tuple[int | None, str]:
    """Run a program with its standard output at `output`; return its exit code and what it says on standard error."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=output, stderr=PIPE, env=environment
    )
    _, said = await process.communicate()
    return process.returncode, said.decode()


async def written(api: Api, arguments: tuple[str, ...], output: int) -> tuple[int | None, str]:
    """Run one of `WRITERS` on a job that has ended and has written a line."""
    job = await api.submit(name="a", queue="a", max_attempts=1)
    [lease] = await api.lease("a")
    lines = await api.post(f"runs/{lease['run_id']}/logs", {"fencing_token": lease["fencing_token"], "lines": ["one"]})
    assert lines.status == 200, lines.body
    held = {"run_id": lease["run_id"], "fencing_token": lease["fencing_token"]}
    assert (await api.report(held | {"status": "completed"})).status == 200
    words = [job["id"] if word == "JOB" else word for word in arguments]
    where = [] if "--help" in words else ["--url", api.node.api_url]
    return await ran("-m", "raftsched", *words, *where, output=output)


@pytest.mark.parametrize("arguments", WRITERS, ids=" ".join)
async def test_command_whose_reader_has_gone_ends_quietly_with_1(api: Api, arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert await written(api, arguments, writing) == (1, "")
    finally:
        os.close(writing)


@pytest.mark.skipif(not Path(FULL).exists(), reason="a device of Linux")
@pytest.mark.parametrize("arguments", WRITERS, ids=" ".join)
async def test_output_that_can_not_be_written_is_said_in_one_line(api: Api, arguments: tuple[str, ...]) -> None:
    full = os.open(FULL, os.O_WRONLY)
    try:
        code, said = await written(api, arguments, full)
    finally:
        os.close(full)
    assert code == 1
    assert said == "raftsched: can't write to standard output: No space left on device\n"


@pytest.mark.parametrize(
    "module", ["raftsched.cli.main", "raftsched.cli.commands.jobs", "raftsched.cli.terminal.output"]
)
@pytest.mark.parametrize("arguments", [("list",), ("--help",), ("list", "--help")], ids=" ".join)
async def test_interrupt_while_a_command_is_loaded_ends_it_quietly(module: str, arguments: tuple[str, ...]) -> None:
    assert await ran("-c", INTERRUPTED_AT_IMPORT, module, *arguments) == (EXIT_INTERRUPTED, "")


def test_installed_command_is_the_one_that_ends_quietly() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["scripts"] == {"raftsched": f"{run.__module__}:{run.__name__}"}


async def test_a_node_that_is_down_leaves_no_word_on_the_output(api: Api) -> None:
    await api.submit(name="a", queue="a")
    down = "http://127.0.0.1:1"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "raftsched", "list", "--json", "--url", down, "--url", api.node.api_url,
        stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    output, said = await process.communicate()
    assert (process.returncode, said) == (0, b"")
    assert [job["name"] for job in msgspec.json.decode(output)] == ["a"]
