"""`raftsched token`, and how each command finds its own token. None is ever shown but a new one, once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from raftsched import Client, Worker
from raftsched.api.access.admin_file import AdminFile
from raftsched.api.access.door import TokenDoor
from raftsched.client.http.token import TENANT_VARIABLE, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from raftsched.errors import Invalid, Rejected
from tests.api.access.scene import ADMIN_TEXT
from tests.api.node import Api, serving
from tests.cli.runner import Cli, written
from tests.client.real import RealNode

CANARY: Final = "rs_nobody_canary-of-this-test"


@pytest.fixture
async def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """A node that asks for tokens; the commands and clients of the test have that of its admin."""
    admin, node = Path(written(tmp_path / "admin.token", f"{ADMIN_TEXT}\n")), RealNode(10.0)
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(admin))
    for variable in (TOKEN_VARIABLE, TENANT_VARIABLE):
        monkeypatch.setenv(variable, "")
    async with serving(node, door=TokenDoor(node, AdminFile(admin))) as served:
        yield served


@pytest.fixture
def root(guarded: Api) -> Cli:
    return Cli(guarded.node.api_url)


async def refused(api: Api, token: str) -> bool:
    answer = await api.ask("GET", "jobs", headers={"Authorization": f"Bearer {token}"})
    return answer.status == 401


async def test_tokens_are_made_listed_rotated_and_revoked(guarded: Api, root: Cli) -> None:
    wanted = ("--role", "submitter", "--tenant", "acme", "--name", "ci", "--queue", "mail*", "--expires-in", "90d")
    made = await root.json("token", "create", *wanted)
    assert made["token"].startswith(f"rs_{made['id']}_")
    assert (made["role"], made["tenant"], made["name"], made["queues"]) == ("submitter", "acme", "ci", ["mail*"])
    assert made["expires_at"] > made["created_at"]
    [listed] = await root.json("token", "list")
    assert listed == {name: value for name, value in made.items() if name != "token"}
    assert "ci" in (await root.ok("token", "list")).stdout
    rotated = await root.json("token", "rotate", made["id"], "--overlap", "1h")
    assert (rotated["id"], rotated["token"] != made["token"], bool(rotated["former_until"])) == (made["id"], True, True)
    assert [await refused(guarded, text) for text in (made["token"], rotated["token"], CANARY)] == [False, False, True]
    assert "revoked" in (await root.ok("token", "revoke", made["id"])).stdout
    assert await refused(guarded, rotated["token"])
    assert "no such token" in await root.refused("token", "revoke", made["id"])
    await root.misused("token", "create", "--role", "king")
    await root.misused("token", "create", "--role", "viewer", "--expires-in", "soon")


async def test_option_wins_over_the_environment_and_a_tenant_is_chosen(
    guarded: Api, root: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = written(
        tmp_path / "acme.token", (await root.json("token", "create", "--role", "admin", "--tenant", "acme"))["token"]
    )
    await root.ok("submit", "mail", "--as-tenant", "zeta")
    monkeypatch.setenv(TENANT_VARIABLE, "")
    await root.ok("submit", "mail", "--token-file", acme)
    assert {job["tenant"] for job in await root.json("list")} == {"acme"}, "the command's option stays for its process"
    monkeypatch.setenv(TOKEN_VARIABLE, CANARY)
    assert "unauthorized" in await root.refused("list")
    assert [job["tenant"] for job in await root.json("list", "--token-file", acme)] == ["acme"]
    assert "forbidden" in await root.refused("list", "--token-file", acme, "--as-tenant", "zeta")
    monkeypatch.setenv(TENANT_VARIABLE, "")
    empty = written(tmp_path / "empty.token", "\n")
    assert "no token in it" in await root.refused("list", "--token-file", empty)


async def test_no_text_of_a_token_is_in_what_clients_show(
    guarded: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, CANARY)
    shown: list[Any] = []
    async with Client(guarded.node.api_url) as client:
        shown += [client, client.tokens, client.__dict__, vars(client.tokens)]
        with pytest.raises(Rejected, match="not valid") as error:
            await client.submit("mail")
        shown += [error.value, error.value.__dict__]
    with pytest.raises(Invalid, match="token") as invalid:
        Client(guarded.node.api_url, token=f"{CANARY} with a blank")
    shown += [invalid.value, invalid.value.__dict__, caplog.text]
    assert "canary" not in repr(shown)


async def test_worker_whose_token_is_revoked_ends_and_says_so(guarded: Api, root: Cli) -> None:
    made = await root.json("token", "create", "--role", "worker")
    worker = Worker(guarded.node.api_url, queues=["mail"], token=made["token"])
    serving_it = asyncio.ensure_future(worker.serve())
    async with asyncio.timeout(20):
        while not guarded.node.leadership().queue_scale("mail").waiting_workers:
            await asyncio.sleep(0.01)
        await root.ok("token", "revoke", made["id"])
        await root.ok("submit", "mail")
        with pytest.raises(Rejected, match="token") as error:
            await serving_it
    assert error.value.code == "unauthorized"
    assert made["token"] not in repr(error.value)


async def test_worker_process_says_in_one_line_that_its_token_is_refused(guarded: Api, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("from raftsched import Worker\nworker = Worker(queues=['mail'])\n")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "raftsched", "worker", "--app", "app:worker", "--url", guarded.node.api_url),
        cwd=tmp_path,
        env={TOKEN_VARIABLE: CANARY, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    assert process.returncode not in (0, None)
    assert "token" in output.decode().splitlines()[-1]
    assert b"Traceback" not in output
    assert b"canary" not in output
