from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from raftsched.cli.commands.worker import worker_command
from raftsched.cli.local.children import UNTIL_STDIN_ENDS
from raftsched.config import NodeConfig, load
from raftsched.errors import Invalid
from raftsched.node import executor_process
from raftsched.node.executor_process import ExecutorProcess, commands_of

WRITES_ITS_PID = "import os,sys; open(sys.argv[1],'a').write(f'{os.getpid()}\\n'); "
LASTS = WRITES_ITS_PID + "sys.stdin.read()"
IGNORES_SIGTERM = "import signal; signal.signal(15, signal.SIG_IGN); " + LASTS
ENDS = WRITES_ITS_PID + "sys.exit(3)"


def command(program: str, pids: Path) -> list[str]:
    return [sys.executable, "-c", program, str(pids)]


async def started(pids: Path, count: int) -> list[int]:
    """Return the ids of the processes once there are `count` of them."""
    async with asyncio.timeout(30):
        while not pids.exists() or len(pids.read_text().splitlines()) < count:
            await asyncio.sleep(0.01)
    return [int(line) for line in pids.read_text().splitlines()]


async def test_executor_that_ends_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_process, "PAUSE_SECONDS_MIN", 0.0)
    executor = ExecutorProcess(command(ENDS, tmp_path / "pids"))
    running = asyncio.create_task(executor.run())
    assert len(set(await started(tmp_path / "pids", 3))) >= 3
    running.cancel()
    await executor.stop()


@pytest.mark.parametrize("program", [LASTS, IGNORES_SIGTERM])
async def test_stop_ends_it_even_if_it_does_not_listen(tmp_path: Path, program: str) -> None:
    executor = ExecutorProcess(command(program, tmp_path / "pids"))
    running = asyncio.create_task(executor.run())
    [pid] = await started(tmp_path / "pids", 1)
    executor.ask()
    await executor.stop()
    await running
    assert not Path(f"/proc/{pid}").exists()


async def test_it_ends_if_it_is_stopped_while_it_starts(tmp_path: Path) -> None:
    executor = ExecutorProcess(command(IGNORES_SIGTERM, tmp_path / "pids"))
    running = asyncio.create_task(executor.run())
    await asyncio.sleep(0)
    executor.ask()
    await executor.stop()
    await running
    assert executor._process is not None
    assert executor._process.returncode is not None


async def test_it_ends_with_a_node_that_is_killed(tmp_path: Path) -> None:
    node = (
        "import asyncio, sys; from raftsched.node.executor_process import ExecutorProcess; "
        "asyncio.run(ExecutorProcess(sys.argv[1:]).run())"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", node, *command(LASTS, tmp_path / "pids"))
    [pid] = await started(tmp_path / "pids", 1)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    async with asyncio.timeout(30):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)


def config_of(tmp_path: Path, text: str) -> NodeConfig:
    nodes = "".join(f'[[nodes]]\nid = "{each}"\nraft = "{each}:1"\napi = "{each}:2"\n' for each in ("n1", "n2"))
    (tmp_path / "node.toml").write_text(f'auth = "none"\nnode_id = "n2"\ndata_dir = "d"\n{text}\n{nodes}')
    return load(tmp_path / "node.toml", {})


def test_commands_of_executors_have_the_settings_of_the_node(tmp_path: Path) -> None:
    text = """
        executors = {http = true, http_queues = ["http", "web*"], email = true}
        http_targets = {allow = ["10.0.0.0/8"], proxy = "http://p:1"}
        smtp = {url = "smtp://h", from = "a@b.c", allow_from = ["*@b.c"], tls = "require", user = "u", password_secret = "s"}
        secrets = {dir = "/run/secrets"}
    """
    commands = commands_of(config_of(tmp_path, text))
    for arguments in commands:
        arguments.remove(UNTIL_STDIN_ENDS)  # this process would end with its own
    given = [worker_command.make_context("worker", arguments[4:]).params for arguments in commands]
    shared = {"urls": ("http://n2:2", "http://n1:2"), "secrets_dir": Path("/run/secrets")}
    http = {"http": True, "queues": ("http", "web*"), "concurrency": 100, "allow_targets": ("10.0.0.0/8",)}
    smtp = {"smtp": "smtp://h", "smtp_from": "a@b.c", "smtp_allow_from": ("*@b.c",), "smtp_tls": "require"}
    wanted = [
        shared | http | {"email": False, "proxy": "http://p:1"},
        shared | smtp | {"email": True, "queues": ("email",), "smtp_user": "u", "smtp_password_secret": "s"},
    ]
    assert [{name: params[name] for name in each} for each, params in zip(wanted, given, strict=True)] == wanted


def test_node_without_executors_starts_none_and_email_needs_a_mail_server(tmp_path: Path) -> None:
    assert commands_of(config_of(tmp_path, "")) == []
    with pytest.raises(Invalid, match=r"smtp: executors\.email needs smtp\.url and smtp\.from"):
        config_of(tmp_path, "[executors]\nemail = true\n")
