"""Jobs that need no handler, from the command line: what is stored, shown and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raftsched.cli.commands.schedule.save import create_schedule
from raftsched.cli.commands.submit import submit_command
from raftsched.wire.calls import HttpCall, ShellCommand
from tests.cli.runner import Cli, written
from tests.for_each import for_each

URL = "https://hooks.example.org/invoices"
HTTP = (
    "--http", URL, "--method", "PUT", "--header", "Accept: text/plain", "--header", "X-Time:10:30",
    "--body", '{"n": 12345678901234567890.5}', "--sign", "shop", "--bearer", "token", "--success-status", "204",
    "--success-status", "3xx", "--retry-status", "404", "--max-redirects", "0", "--http-timeout", "5s", "--callback",
    "--timeout", "1h",
)  # fmt: skip
HTTP_FIELDS: dict[str, Any] = {
    "url": URL,
    "method": "PUT",
    "headers": {"Accept": "text/plain", "X-Time": "10:30"},
    "body": {"n": 12345678901234567890.5},
    "timeout_seconds": 5.0,
    "success_statuses": ["204", "3xx"],
    "retry_statuses": ["404"],
    "signing_secret": "shop",
    "bearer": {"secret": "token"},
    "completion": "callback",
}
"""As the API shows them: without those that are the default."""
SHELL = (
    "--shell", "--env", "PGHOST=db", "--env", "A=b=c", "--cwd", "/tmp", "--stdin-file", "-", "--success-exit-code", "0",
    "--success-exit-code", "3", "--retry-exit-code", "75", "--nice", "5", "--memory-mib", "512", "--cpu-seconds", "60",
)  # fmt: skip
COMMAND = ("--", "pg_dump", "-Fc", "--", "shop", "--json")
SHELL_FIELDS: dict[str, Any] = {
    "argv": ["pg_dump", "-Fc", "--", "shop", "--json"],
    "env": {"PGHOST": "db", "A": "b=c"},
    "cwd": "/tmp",
    "stdin": "in\n",
    "success_exit_codes": [0, 3],
    "retry_exit_codes": [75],
    "nice": 5,
    "memory_mib": 512,
    "cpu_seconds": 60,
}


def test_there_is_an_option_for_every_field_of_a_request_and_of_a_command() -> None:
    wanted = {f"http_{field}" for field in HttpCall.__struct_fields__} - {"http_url"}
    wanted |= {f"shell_{field}" for field in ShellCommand.__struct_fields__} - {"shell_argv"}
    for command in (submit_command, create_schedule):
        assert wanted | {"http", "shell"} <= {str(parameter.name) for parameter in command.params}


async def test_submit_and_schedule_pass_on_every_field_that_an_option_names(cli: Cli) -> None:
    http = await cli.json("submit", "--priority", "high", *HTTP)
    assert (http["http"], http["name"], http["queue"], http["timeout_seconds"]) == (HTTP_FIELDS, "http", "http", 3_600)
    shell = (await cli.ok("submit", "dump", "--json", *SHELL, *COMMAND, given="in\n")).json
    assert (shell["shell"], shell["name"], shell["queue"]) == (SHELL_FIELDS, "dump", "shell")
    timing = ("schedule", "create", "nightly", "--cron", "0 3 * * *", "--json")
    assert (await cli.ok(*timing, *HTTP)).json["job"]["http"] == HTTP_FIELDS
    saved = (await cli.ok(*timing, "dump", "--on-failure", URL, *SHELL, *COMMAND, given="in\n")).json["job"]
    assert (saved["name"], saved["shell"], saved["on_failure"]["http"]) == ("dump", SHELL_FIELDS, {"url": URL})


@for_each(
    ("text", "body"),
    [("[1, null]", [1, None]), ('"a"', "a"), ("plain text", "plain text"), ("", ""), ("{'a'}", "{'a'}")],
)
async def test_body_is_json_if_it_reads_as_json_else_text(cli: Cli, tmp_path: Path, text: str, body: object) -> None:
    path = written(tmp_path / "body", text)
    for source in (("--body", text), ("--body-file", path)):
        assert (await cli.json("submit", "--http", URL, *source))["http"]["body"] == body
    assert (await cli.json("submit", "--http", URL, "--body-file", "-", given=text))["http"]["body"] == body


async def test_get_shows_what_the_job_does_and_its_hooks(cli: Cli) -> None:
    page = '{"http": {"url": "https://a.example/", "method": "PUT"}, "priority": 8}'
    job = await cli.ok("submit", "--json", "--shell", "--nice", "5", "--on-failure", page, "--on-success",
                       '{"name": "tidy"}', "--", "sh", "-c", "pg_dump 'a b' | gzip")  # fmt: skip
    shown = [line.strip() for line in (await cli.ok("get", job.json["id"])).stdout.splitlines()]
    assert "shell  sh -c 'pg_dump '\"'\"'a b'\"'\"' | gzip'  {\"nice\":5}" in shown
    assert "on_failure  PUT https://a.example/" in shown
    assert "on_success  submit tidy" in shown
    http = await cli.ok("submit", "--http", URL, "--body", "1", "--on-failure", '{"shell": {"argv": ["date", "-u"]}}')
    shown = [line.strip() for line in http.stdout.splitlines()]
    assert f'http  POST {URL}  {{"body":1}}' in shown
    assert "on_failure  date -u" in shown


async def test_hooks_of_a_queue_are_set_shown_and_taken_away(cli: Cli) -> None:
    queue = ("queue", "set", "http", "--on-failure", URL, "--on-success", '{"name": "tidy"}')
    settings = await cli.json(*queue)
    assert (settings["on_failure"]["http"], settings["on_success"]["name"]) == ({"url": URL}, "tidy")
    shown = (await cli.ok("queue", "set", "http", "--on-success", "none")).stdout
    assert f"on_failure  POST {URL}" in shown
    assert "on_success" not in shown
    assert f"on_failure  POST {URL}" in (await cli.ok("queue", "get", "http")).stdout


MISUSED = [
    ((), "give either"),
    (("--method", "GET"), "--method: is an option of --http"),
    (("pay", "--callback", "--timeout", "1m"), "--callback: is an option of --http"),
    (("--shell", "--body", "x", "--", "date"), "--body: is an option of --http"),
    (("--http", URL, "--env", "A=b"), "--env: is an option of --shell"),
    (("pay", "--nice", "0"), "--nice: is an option of --shell"),
    (("--http", URL, "--shell", "--", "date"), "--shell: give either --http or --shell"),
    (("--shell",), "--shell: give the command after --"),
    (("--shell", "--"), "--shell: give the command after --"),
    (("pay", "1", "--shell", "--", "date"), "PAYLOAD: goes to handlers; give --stdin-file"),
    (("pay", "1", "--http", URL), "PAYLOAD: goes to handlers; give --body"),
    (("--http", URL, "--body", "1", "--body-file", "-"), "--body-file: give either"),
    (("--http", URL, "--callback"), "--callback: give --timeout"),
    (("--http", URL, "--header", "Accept"), "--header: write it like 'Name: value'"),
    (("--http", URL, "--header", "A: 1", "--header", "A: 2"), "--header: A is given twice"),
    (("--shell", "--env", "=b", "--", "date"), "--env: write it like NAME=VALUE"),
    (("--http", URL, "--method", "TRACE"), "--method"),
]
REFUSED = [
    (("--http", "ftp://x"), "http.url"),
    (("--http", ""), "http.url"),
    (("--http", URL, "--header", "Host: x"), "http.headers"),
    (("--shell", "--cwd", "tmp", "--", "date"), "shell.cwd"),
    (("--shell", "--success-exit-code", "256", "--", "date"), "shell.success_exit_codes"),
    (("pay", "--on-failure", "["), "--on-failure: not JSON"),
    (("pay", "--on-failure", "1"), "--on-failure: must be a URL, or a JSON object"),
    (("pay", "--on-success", "{}"), "on_success.name"),
]


@pytest.mark.parametrize("command", [("submit",), ("schedule", "create", "s", "--cron", "@daily")])
async def test_options_that_do_not_go_together_are_named(cli: Cli, tmp_path: Path, command: tuple[str, ...]) -> None:
    faults = [(words, told) for words, told in MISUSED if told not in await cli.misused(*command, *words)]
    faults += [(words, told) for words, told in REFUSED if told not in await cli.refused(*command, *words)]
    assert faults == []
    (tmp_path / "binary").write_bytes(b"\xff")
    told = await cli.refused(*command, "--http", URL, "--body-file", str(tmp_path / "binary"))
    assert "--body-file: " in told
    assert await cli.json("list") == []
