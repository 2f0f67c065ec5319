"""What all commands have in common: help, JSON, and errors in one line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from raftsched.cli.commands.submit import submit_command
from raftsched.cli.main import main
from raftsched.cli.terminal.options import JOB_OPTIONS
from raftsched.client import ClientSettings
from raftsched.wire.jobs import JobRequest
from tests.cli.runner import Cli
from tests.for_each import for_each

RUNS_IN_THE_FOREGROUND = {"run", "node", "worker", "dev", "demo", "healthcheck"}
"""Commands without an answer."""
WRITES_A_FILE = {"import"}
"""Commands whose answer is a file for another command."""
NOWHERE = "http://127.0.0.1:1"
IMPATIENT = ClientSettings(retry_seconds=0.1, backoff_base_seconds=0.01)


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _commands(found, (*path, name))


COMMANDS = dict(_commands(main))


@for_each("path", COMMANDS)
async def test_every_command_has_a_help_text_that_begins_with_a_sentence(path: tuple[str, ...]) -> None:
    ran = await Cli(NOWHERE).ok(*path, "--help")
    assert ran.stdout.startswith("Usage: ")
    [summary, *_] = (COMMANDS[path].help or "").split("\n")
    assert summary.endswith((".", ".\x0c"))
    for parameter in COMMANDS[path].params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.opts[0] in ran.stdout


@for_each("path", [path for path in COMMANDS if path[0] not in RUNS_IN_THE_FOREGROUND | WRITES_A_FILE])
async def test_every_command_with_an_answer_prints_json(path: tuple[str, ...]) -> None:
    assert "as_json" in {parameter.name for parameter in COMMANDS[path].params}


async def test_help_names_every_command_in_its_section() -> None:
    shown = (await Cli(NOWHERE).ok("--help")).stdout
    for name in {path[0] for path in COMMANDS}:
        assert f"\n  {name} " in shown
    assert "Schedules and workflows:" in shown


async def test_one_line_in_the_list_of_commands_is_enough_for_each() -> None:
    groups = {(), *(path[:1] for path in COMMANDS if len(path) > 1)}
    for group in groups:
        shown = (await Cli(NOWHERE).ok(*group, "--help")).stdout
        listed = shown.partition("Commands:" if group else "Jobs:")[2]
        assert "..." not in listed, group
        assert [line for line in listed.splitlines() if line.startswith("     ") or len(line) > 78] == [], group


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "00000000-0000-7000-8000-000000000001"),
        ("submit", "a"),
        ("list",),
        ("cancel", "--all", "--yes"),
        ("schedule", "list"),
        ("queue", "list"),
        ("events",),
        ("cluster", "status"),
    ],
)
async def test_no_cluster_is_said_in_one_line_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr("raftsched.cli.terminal.session.SETTINGS", IMPATIENT)
    monkeypatch.setattr("raftsched.client.client.ClientSettings", lambda: IMPATIENT)
    refused = await Cli(NOWHERE).refused(*arguments)
    assert "can't connect to http://127.0.0.1:1" in refused
    assert "RAFTSCHED_URL" in refused


async def test_address_that_is_none_is_refused() -> None:
    assert "[invalid]" in await Cli("htp:/x").refused("list")


def test_commands_run_as_a_process_of_their_own() -> None:
    command = [sys.executable, "-m", "raftsched", "get", "x", "--url", "htp:/x"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("raftsched: ")


async def test_unknown_command_is_told_with_the_way_to_the_help() -> None:
    assert "No such command" in await Cli(NOWHERE).misused("lst")


def test_submit_has_an_option_for_every_field_of_a_job() -> None:
    said_otherwise = {"name", "payload", "unique", "start"}
    options = {str(parameter.name) for parameter in submit_command.params}
    assert set(JobRequest.__struct_fields__) - said_otherwise <= options
    assert "at_most_once" in JOB_OPTIONS


def _options(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option) and not each.hidden]


@for_each("path", COMMANDS)
async def test_every_option_has_a_help_text_and_no_line_of_the_help_is_over_80(path: tuple[str, ...]) -> None:
    assert [each.opts[0] for each in _options(COMMANDS[path]) if not each.help] == []
    lines = (await Cli(NOWHERE).ok(*path, "--help")).stdout.splitlines()
    assert [line for line in lines if len(line) > 80] == []
