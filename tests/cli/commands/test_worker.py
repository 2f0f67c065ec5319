from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from raftsched.cli.local.children import UNTIL_STDIN_ENDS
from raftsched.cli.main import main
from tests.client.cluster import WAIT_SECONDS, running_cluster
from tests.executors.http.target import running_target
from tests.for_each import for_each

NOWHERE = "http://127.0.0.1:1"
HERE = "HERE"
"""Stands for the address of the test's cluster."""
ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def started(
    directory: Path,
    *arguments: str,
    app: str | None = "app:worker",
    in_app: Sequence[str] = (),
    region: str | None = None,
    **environment: str,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker whose app is made with the URLs `in_app` and `region`; it is killed if it still runs in the end."""
    of_app = [] if app is None else ["--app", app]
    text = f"from raftsched import Worker\nworker = Worker(*{list(in_app)}, queues=['mail'], region={region!r})\n"
    (directory / "app.py").write_text(text, encoding="utf-8")
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "raftsched", "worker", *of_app, UNTIL_STDIN_ENDS, *arguments),
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield worker
    finally:
        if worker.returncode is None:
            worker.kill()
        await worker.communicate()


@pytest.mark.parametrize(
    ("in_app", "arguments", "region"),
    [("", [], "eu"), ("us", [], "us"), ("us", ["--region", "ap"], "ap"), ("", ["--region", "ap"], "ap")],
)
async def test_worker_works_in_the_region_of_the_command_then_of_the_app_then_of_the_environment(
    tmp_path: Path, in_app: str, arguments: list[str], region: str
) -> None:
    async with (
        running_cluster() as cluster,
        started(
            tmp_path, "--url", cluster.nodes[0].url, *arguments, region=in_app or None, RAFTSCHED_REGION="eu"
        ) as worker,
    ):
        await cluster.until(lambda: cluster.bodies("/leases"))
        worker.kill()
        assert cluster.bodies("/leases")[0]["region"] == region


@pytest.mark.parametrize(
    ("in_environment", "arguments", "follows"),
    [("0", [], False), ("0", ["--follow-leader"], True), ("1", ["--no-follow-leader"], False)],
)
async def test_worker_follows_the_leader_unless_it_is_told_not_to(
    tmp_path: Path, in_environment: str, arguments: list[str], follows: bool
) -> None:
    async with (
        running_cluster(2) as cluster,
        started(tmp_path, "--url", cluster.nodes[1].url, *arguments, RAFTSCHED_FOLLOW_LEADER=in_environment) as worker,
    ):
        await cluster.until(lambda: cluster.nodes[0].seen if follows else len(cluster.bodies("/leases")) >= 2)
        worker.kill()
        assert bool(cluster.nodes[0].seen) == follows


@pytest.mark.parametrize(
    ("in_app", "in_environment", "arguments"),
    [
        ([], HERE, []),
        ([], f"{NOWHERE} {HERE}", []),
        ([HERE], NOWHERE, []),
        ([NOWHERE], NOWHERE, ["--url", NOWHERE, "--url", HERE]),
        ([], NOWHERE, ["--url", HERE]),
    ],
)
async def test_worker_goes_by_the_command_then_by_the_app_then_by_the_environment(
    tmp_path: Path, in_app: list[str], in_environment: str, arguments: list[str]
) -> None:
    async with running_cluster() as cluster:

        def told(urls: Sequence[str]) -> list[str]:
            return [url.replace(HERE, cluster.nodes[0].url) for url in urls]

        (environment,) = told([in_environment])
        async with started(tmp_path, *told(arguments), in_app=told(in_app), RAFTSCHED_URL=environment) as worker:
            await cluster.until(lambda: cluster.bodies("/leases"))
            worker.send_signal(signal.SIGTERM)
            async with asyncio.timeout(WAIT_SECONDS):
                assert await worker.wait() == 0
        assert cluster.bodies("/leases")[0]["queues"] == ["mail"]


async def test_worker_drains_when_the_process_that_started_it_is_gone(tmp_path: Path) -> None:
    async with running_cluster() as cluster, started(tmp_path, "--url", cluster.nodes[0].url) as worker:
        await cluster.until(lambda: cluster.bodies("/leases"))
        assert worker.stdin is not None
        worker.stdin.close()
        async with asyncio.timeout(WAIT_SECONDS):
            assert await worker.wait() == 0


async def test_wrong_address_is_told_in_one_line(tmp_path: Path) -> None:
    async with started(tmp_path, "--url", "htp:/x") as worker:
        _, told = await worker.communicate()
    assert (worker.returncode, told.count(b"\n")) == (1, 1)
    assert told.startswith(b"raftsched: ")


SHELL = ["--shell", "--allow-any"]
EMAIL = ["--email", "--smtp", "smtp://h", "--smtp-from", "jobs@example.org"]


@for_each(
    ("arguments", "text"),
    [
        ([], "--app: give the worker as package.module:variable, or --http, --shell or --email"),
        (["--http", "--app", "a:b"], "--app: start one worker for it and another for --http, --shell or --email"),
        (["--http", "--allow-target", "10.1"], "allow: '10.1' is not a network"),
        (["--http", "--deny-target", "a b"], "deny: 'a b' is not a network"),
        (["--http", "--secrets-dir", "/no/such"], "secrets_dir: /no/such is not a directory"),
        (["--http", "--proxy", "proxy:3128"], "proxy: not a URL"),
        (["--shell", "--allow-any", "--allow-target", "10.1.0.0/16"], "--allow-target: give it with --http"),
        (["--shell", "--allow-any", "--deny-target", "10.1.0.0/16"], "--deny-target: give it with --http"),
        ([*SHELL, "--secrets-dir", "/no/such"], "secrets_dir: /no/such is not a directory"),
        (["--app", "a:b", "--secrets-dir", "/run"], "--secrets-dir: give it with --http, --shell or --email"),
        (["--app", "a:b", "--proxy", "http://p"], "--proxy: give it with --http"),
        (["--shell"], "--shell: say what may run, with --allow PATH"),
        (["--shell", "--allow", "ls"], "--allow: 'ls' is not an absolute path"),
        (["--shell", "--allow", "/no/such/program"], "--allow: there is no program '/no/such/program'"),
        ([*SHELL, "--allow", "/bin/ls"], "--allow-any: give it in place of --allow"),
        ([*SHELL, "--env", "NO_SUCH_VARIABLE"], "--env: NO_SUCH_VARIABLE is not set"),
        ([*SHELL, "--app", "a:b"], "--app: start one worker for it and another for --http, --shell or --email"),
        ([*SHELL, "--concurrency", "0"], "concurrency: a whole number"),
        (["--allow", "/bin/ls"], "--allow: give it with --shell"),
        (["--app", "a:b", "--allow-any"], "--allow-any: give it with --shell"),
        (["--app", "a:b", "--env", "HOME"], "--env: give it with --shell"),
        (["--app", "a:b", "--queue", "mail"], "--queue: with --app, the app says it"),
        (["--email"], "--smtp: name the mail server, as smtp://mail.internal:587"),
        ([*EMAIL[:3]], "--smtp-from: name the sender"),
        ([*EMAIL, "--app", "a:b"], "--app: start one worker for it and another for --http, --shell or --email"),
        (
            [*EMAIL, "--smtp-user", "u", "--smtp-password-secret", "none"],
            "smtp-password-secret: the secret none is missing",
        ),
        ([*SHELL, "--smtp", "smtp://h"], "--smtp: give it with --email"),
        (["--app", "a:b", "--smtp-user", "u"], "--smtp-user: give it with --email"),
    ],
)
def test_options_that_contradict_each_other_are_refused(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(main, ["worker", *arguments])
    assert result.exit_code == 1
    assert text in result.stderr


async def test_shell_worker_runs_only_the_programs_that_it_was_started_for(tmp_path: Path) -> None:
    async with running_cluster() as cluster:
        arguments = ["--shell", "--allow", "/usr/bin/printenv", "--env", "PGHOST", "--queue", "nightly"]
        jobs = [
            await cluster.add_job("backup", queue="nightly", shell={"argv": argv})
            for argv in (["printenv", "PGHOST", "RAFTSCHED_URL"], ["env"])
        ]
        url = cluster.nodes[0].url
        async with started(tmp_path, "--url", url, *arguments, app=None, PGHOST="db"):
            await cluster.finished(*jobs)
    assert jobs[0].result["stdout_tail"] == f"db\n{url}\n"
    assert jobs[1].error is not None
    assert jobs[1].error["type"] == "CommandRefused"


async def test_http_worker_sends_what_it_may_and_refuses_the_nodes_of_its_cluster(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of a file")
    async with running_cluster() as cluster, running_target() as target:
        url = cluster.nodes[0].url
        jobs = [
            await cluster.add_job(name, queue="http", payload={"attempt": "{{attempt}}"}, http=call)
            for name, call in (
                ("http", {"url": f"{target.url}/status?body=done", "bearer": {"secret": "token"}}),
                ("any", {"url": f"{url}/api/v1/jobs"}),
                ("http", {"url": "http://127.0.0.3/"}),
            )
        ]
        environment = {"RAFTSCHED_HTTP_ALLOW": "10.0.0.0/8 127.0.0.0/8", "RAFTSCHED_HTTP_DENY": "127.0.0.3"}
        async with started(
            tmp_path, "--http", "--url", url, "--secrets-dir", str(tmp_path), app=None, **environment
        ) as worker:
            await cluster.finished(*jobs)
            worker.send_signal(signal.SIGTERM)
            async with asyncio.timeout(WAIT_SECONDS):
                assert await worker.wait() == 0
    [request] = target.received
    assert (request.body, request.headers["authorization"]) == (b'{"attempt":"1"}', "Bearer of a file")
    assert jobs[0].result["body"] == "done"
    assert [job.error["type"] for job in jobs[1:] if job.error] == ["TargetRefused"] * 2
    assert cluster.bodies("/leases")[0]["capacity"] >= 100
