"""`raftsched run`: what the command gets and gives, what the cluster records, and what holds if one of the two is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from raftsched.cli.terminal import session
from raftsched.cli.wrapper import registered
from raftsched.cli.wrapper.registered import name_of
from raftsched.client import ClientSettings
from tests.api.node import Api, run_of, serving
from tests.cli.runner import Cli
from tests.client.cluster import WAIT_SECONDS
from tests.client.proxy import proxy_before
from tests.client.real import RealNode
from tests.for_each import for_each

NOWHERE = "http://127.0.0.1:1"
ROOT = Path(__file__).parents[3]
UNTIL_TERM = "trap 'echo bye; exit 7' TERM; echo $$; while :; do sleep 0.05; done"


@asynccontextmanager
async def started(url: str, *arguments: str, cwd: Path | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
    """`raftsched run` as a process; it is killed if it still runs in the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "raftsched", "run", "--url", url, *arguments),
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLOUR": "blue"},
        cwd=cwd,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=_with_signals,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def _with_signals() -> None:
    """Have the signals that a background process of a shell ignores."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(WAIT_SECONDS):
        return (await process.stdout.readline()).decode().strip()


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():
            await asyncio.sleep(0.01)


async def job_of(api: Api, name: str, *statuses: str) -> Any:
    """Wait until the latest job called `name` has one of `statuses`, and return it."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            jobs = (await api.get("jobs", name=name, order="desc")).json["jobs"]
            if jobs and jobs[0]["status"] in statuses:
                return jobs[0]
            await asyncio.sleep(0.02)


@for_each(
    ("words", "end", "log"),
    [
        (("sh", "-c", "echo a; echo b >&2"), (0, "completed", None), {"stdout: a", "stderr: b"}),
        (("sh", "-c", "echo a; exit 3"), (3, "dead_letter", "attempts_exhausted"), {"stdout: a"}),
        (("sh", "-c", "kill -9 $$"), (137, "dead_letter", "attempts_exhausted"), set()),
        (("--", "no-such-program", "--name"), (127, "dead_letter", "rejected"), set()),
        (("--timeout", "0.3s", "sleep", "60"), (124, "dead_letter", "timeout"), set()),
    ],
)
async def test_command_runs_as_a_job_and_ends_with_its_exit_code(
    api: Api, cli: Cli, words: tuple[str, ...], end: tuple[int, str, str | None], log: set[str]
) -> None:
    ran = await cli.run("run", "--name", "x", "--on-failure", '{"name": "page"}', *words)
    job = await job_of(api, "x", "completed", "dead_letter")
    assert (ran.exit_code, job["status"], job["failure_reason"]) == end, ran
    assert {f"stdout: {line}" for line in ran.stdout.splitlines()} == {line for line in log if line[:6] == "stdout"}
    assert set((await api.get(f"jobs/{job['id']}/logs")).json["text"].splitlines()) == log
    assert (job["queue"], job["payload"]["cwd"], job["lost_count"]) == ("run", str(Path.cwd()), 0)
    hooks = (await api.get("jobs", name="page", order="desc")).json["jobs"]
    assert (bool(hooks) and hooks[0]["hook_of"] == job["id"]) == (end[0] != 0)


async def test_attempts_of_a_command_run_one_after_the_other(api: Api, cli: Cli, tmp_path: Path) -> None:
    count = f"echo >> {tmp_path}/n; test $(wc -l < {tmp_path}/n) = 2"
    assert (await cli.run("run", "--name", "x", "--max-attempts", "3", "sh", "-c", count)).exit_code == 0
    assert (await job_of(api, "x", "completed"))["attempt_number"] == 2


async def test_command_has_the_input_directory_and_environment_of_the_process(api: Api, tmp_path: Path) -> None:
    script = 'cat; pwd; echo "$COLOUR $RAFTSCHED_JOB_ID $RAFTSCHED_ATTEMPT"'
    async with started(api.node.api_url, "sh", "-c", script, cwd=tmp_path) as process:
        stdout, stderr = await process.communicate(b"typed\n")
    job = await job_of(api, "sh", "completed")
    assert stdout.decode().split() == ["typed", str(tmp_path), "blue", job["id"], "1"]
    assert (process.returncode, stderr) == (0, b"")


async def test_second_command_of_a_name_is_not_run_unless_it_is_told_to(api: Api, cli: Cli) -> None:
    async with started(api.node.api_url, "--name", "x", "cat") as process:
        job = await job_of(api, "x", "running")
        refused = await cli.run("run", "--name", "x", "echo", "no")
        assert (refused.exit_code, refused.stdout) == (75, "")
        assert f"x is running already on {job['region']}, job {job['id']}" in refused.stderr
        assert (await cli.ok("run", "--name", "x", "--no-lock", "echo", "both")).stdout == "both\n"
        await process.communicate(b"")
    assert (await cli.ok("run", "--name", "x", "echo", "then")).stdout == "then\n"


async def test_command_whose_queue_is_paused_is_not_run(api: Api, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered, "START_SECONDS", 0.2)
    await cli.ok("queue", "pause", "run")
    ran = await cli.run("run", "echo", "no")
    assert (ran.exit_code, ran.stdout) == (75, "")
    assert "echo did not start: job " in ran.stderr
    assert "expired" in ran.stderr


async def test_cancelled_job_stops_its_command(api: Api) -> None:
    async with started(api.node.api_url, "--name", "x", "sh", "-c", UNTIL_TERM) as process:
        pid = int(await line_of(process))
        await api.ask("DELETE", f"jobs/{(await job_of(api, 'x', 'running'))['id']}")
        stdout, _ = await process.communicate()
    assert (process.returncode, stdout) == (143, b"bye\n")
    assert not psutil.pid_exists(pid)
    await job_of(api, "x", "cancelled")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_signal_ends_the_command_and_its_job(api: Api, number: signal.Signals) -> None:
    async with started(api.node.api_url, "--max-attempts", "3", "--name", "x", "sh", "-c", UNTIL_TERM) as process:
        pid = int(await line_of(process))
        process.send_signal(number)
        stdout, _ = await process.communicate()
    assert (process.returncode, stdout) == (128 + number, b"bye\n")
    assert not psutil.pid_exists(pid)
    job = await job_of(api, "x", "dead_letter")
    assert f"{number.name} ended `raftsched run`" in job["error"]["message"]


async def test_killed_process_leaves_no_command_and_no_lock() -> None:
    async with serving(RealNode(1.0)) as api:
        async with started(
            api.node.api_url, "--on-failure", '{"name": "page"}', "--name", "x", "sh", "-c", UNTIL_TERM
        ) as run:
            pid = int(await line_of(run))
            run.kill()
        await until(lambda: not psutil.pid_exists(pid))
        assert (await job_of(api, "x", "dead_letter"))["failure_reason"] == "worker_lost"
        await job_of(api, "page", "queued")
        assert (await Cli(api.node.api_url).ok("run", "--name", "x", "echo", "next")).stdout == "next\n"


async def test_job_whose_process_died_between_two_attempts_holds_no_lock(
    api: Api, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listed(region: str | None) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while region not in [worker["region"] for worker in (await api.get("workers")).json["workers"]]:
                await api.lease("run", **({"region": region} if region else {}))

    monkeypatch.setattr(registered, "ABANDONED_AFTER", timedelta())
    job = await api.submit(name="x", queue="run", region="there", unique={"by": ["name"]}, max_attempts=9,
                           retry_policy={"backoff": "fixed", "base_seconds": 3_600})  # fmt: skip
    [lease] = await api.lease("run", region="there")
    await api.report(run_of(lease, status="failed", error={"type": "E", "message": "m"}))
    await listed("there")
    assert (await cli.run("run", "--name", "x", "echo", "no")).exit_code == 75
    await listed(None)
    assert (await cli.ok("run", "--name", "x", "echo", "yes")).stdout == "yes\n"
    assert (await api.job(job["id"]))["status"] == "cancelled"


async def test_command_runs_without_the_cluster_unless_that_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SETTINGS", ClientSettings(retry_seconds=0.1, backoff_base_seconds=0.01))
    ran = await Cli(NOWHERE).run("run", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (ran.exit_code, ran.stdout) == (3, "out\n")
    assert "can't connect to http://127.0.0.1:1" in ran.stderr
    assert "sh runs without the cluster: no lock, no log, no hook" in ran.stderr
    assert ran.stderr.endswith("\nerr\n")
    refused = await Cli(NOWHERE).run("run", "--require-cluster", "echo", "no")
    assert (refused.exit_code, refused.stdout) == (69, "")
    assert len(refused.stderr.splitlines()) == 1
    assert (await Cli(NOWHERE).run("run", "--timeout", "0.1s", "sleep", "60")).exit_code == 124
    assert (await Cli(NOWHERE).run("run", "no-such-program")).exit_code == 127


async def test_command_that_loses_the_cluster_before_its_start_runs_without_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registered, "START_SECONDS", 0.2)
    monkeypatch.setattr(session, "SETTINGS", ClientSettings(retry_seconds=0.2, backoff_base_seconds=0.01))
    async with proxy_before(api.node.api_url, lambda _path, _body: 502 if proxy.passed else 0) as proxy:
        ran = await Cli(proxy.url).run("run", "--name", "x", "echo", "yes")
        assert (ran.exit_code, ran.stdout) == (0, "yes\n")
        assert "x runs without the cluster" in ran.stderr
    await job_of(api, "x", "dead_letter", "queued")


@pytest.mark.parametrize(
    ("words", "given", "end"),
    [
        ((), b"b\n", (0, b"b\n")),
        (("--timeout", "5s"), None, (124, b"")),
        (("--require-cluster",), None, (143, b"")),
    ],
)
async def test_command_that_loses_the_cluster_continues_unless_it_is_required(
    words: tuple[str, ...], given: bytes | None, end: tuple[int, bytes]
) -> None:
    async with serving(RealNode(1.0)) as api, proxy_before(api.node.api_url, lambda _path, _body: 0) as proxy:
        async with started(proxy.url, *words, "--name", "x", "sh", "-c", "echo a; read line; echo $line") as process:
            assert await line_of(process) == "a"
            proxy.rule = lambda _path, _body: 502
            assert (await job_of(api, "x", "dead_letter"))["failure_reason"] == "worker_lost"
            proxy.rule = lambda _path, _body: 0
            if end[0] != 143:
                assert process.stderr is not None
                assert b"lost its lease: the command continues" in await process.stderr.readline()
            stdout, _ = await process.communicate(given)
        assert (process.returncode, stdout) == end


async def test_use_that_can_not_be_meant_is_refused_before_anything_is_done(api: Api, cli: Cli) -> None:
    assert "COMMAND" in await cli.misused("run")
    assert "--max-attempts" in await cli.misused("run", "--max-attempts", "0", "echo")
    assert "--on-failure: not JSON" in await cli.refused("run", "--on-failure", "{", "echo", "no")
    assert "name" in await cli.refused("run", "--name", "a b", "echo", "no")
    assert (await api.get("jobs")).json["jobs"] == []


@for_each(
    ("program", "name"),
    [
        ("/usr/bin/pg_dump", "pg_dump"),
        ("./my job.sh", "my-job.sh"),
        ("_x", "x"),
        ("--", "run"),
        ("/a/" + "b" * 200, "b" * 128),
    ],
)
def test_name_is_that_of_the_program(program: str, name: str) -> None:
    assert name_of(program) == name
