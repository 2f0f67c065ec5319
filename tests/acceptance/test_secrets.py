"""What users send is shown to nobody else and is in no file in the clear, through a day with faults."""

from __future__ import annotations

import asyncio
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from raftsched.cli.local.cluster import LOOPBACK_TARGETS, LocalNode
from raftsched.core.records.api_token import Role
from tests.acceptance.canaries import SECRET, TENANT, Day, shown_to_the_tenant, spend, unique_job
from tests.acceptance.conftest import StartCluster, run_cli
from tests.acceptance.http import call
from tests.acceptance.onlookers import OTHER, Onlooker, answers, events, onlookers
from tests.acceptance.test_encryption import write_keys
from tests.acceptance.threads import in_thread
from tests.executors.http.target import running_target
from tests.for_each import for_each

CARELESS = """
from raftsched.api import app
from raftsched.api.cluster import events
from raftsched.api.access.principal import Principal
Principal.sees = lambda self, tenant: True
app._log_request = lambda request, *_: app._log.info("request", headers=dict(request.headers))
events._wanted = lambda query, caller: lambda event: True
app._http_log.setLevel("ERROR")
app._route_label = lambda request: str(request.rel_url)
"""
"""What a careless change of the nodes could do: tenants see each other, and requests are logged and counted as they are."""
PLACES = ("events", "data", "snapshot", "replies", "metrics", "backup", "logs")
Found = dict[str, set[str]]
"""Places -> names of the canaries that were found there."""
StartDay = Callable[..., Day]


@pytest.fixture
def start_day(start_cluster: StartCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StartDay:
    """Return a function that starts a cluster for a day of the tenant."""

    def start(*, is_careless: bool) -> Day:
        secrets = tmp_path / "secrets"
        (secrets / TENANT).mkdir(parents=True, exist_ok=True)
        if is_careless:
            (tmp_path / "sitecustomize.py").write_text(CARELESS)
            monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        encryption = {"keys_file": ""} if is_careless else write_keys(tmp_path / "keys", "k1")
        cluster = start_cluster(
            1 if is_careless else 3,
            with_tokens=True,
            encryption=encryption,
            secrets={"dir": str(secrets)},
            executors={"http": True},
            http_targets=LOOPBACK_TARGETS,
            journal_tail_bytes=0,
            log_level="debug",
        )
        day = Day(cluster)
        day.tokens.texts["admin"] = cluster.nodes[0].token
        day.token = day.make_token("admin", TENANT)
        (secrets / TENANT / SECRET).write_text(day.tokens(SECRET))
        return day

    return start


@pytest.mark.essential
@pytest.mark.timeout(300)
@for_each("is_careless", [False, True])
def test_secrets_of_a_day_are_shown_to_nobody_else_and_are_in_no_file(
    start_day: StartDay, tmp_path: Path, is_careless: bool
) -> None:
    day = start_day(is_careless=is_careless)
    found = found_after(day, tmp_path / f"backup-{is_careless}")
    if not is_careless:
        assert found == {place: set() for place in PLACES}
        return
    everything = set(day.content.texts)
    for place in ("data", "backup", "replies"):
        assert found[place] >= everything, place
    assert found["logs"] >= {"admin", "viewer of zeta", "garbage"}
    assert found["metrics"] >= {"query"}
    assert found["events"] >= {"queue"}


def found_after(day: Day, backup: Path) -> Found:
    """Live through the day, and return what was found.

    A node is away while the tenant works; the others are restarted; the node that comes back gets a snapshot.
    """
    cluster = day.cluster
    callers = onlookers(day)
    leader = cluster.wait_for_leader()
    away = [node for node in cluster.nodes if node is not leader][:1]
    for node in away:
        node.kill()
    place = f"{max(node['applied'] or 0 for node in leader.get('/api/v1/cluster')['nodes'])}-0"
    with in_thread(running_target()) as target:
        spend(day, target)
    send_garbage(day, leader)
    last = day.submit(name="last", queue=day.queue)
    found = {"events": in_events(day, callers, place, last)}
    found |= restart(day, away)
    first, second = (call(leader.api, "POST", "/api/v1/jobs", unique_job(day), **bearer(day)) for _ in range(2))
    assert (first[0], second[0], second[1]["id"]) == (201, 200, first[1]["id"])
    for text in (shown_to_the_tenant(day, node) for node in cluster.nodes):
        assert (day.content.found_in(text), day.tokens.found_in(text)) == (set(day.content.texts), set())
    found["replies"] = asyncio.run(in_replies(day, callers))
    day.ask("GET", f"/jobs?name={day.tokens('query')}")
    found["metrics"] = in_metrics(day)
    found["backup"] = in_backup(day, backup)
    found["logs"] = in_logs(day)
    return found


def bearer(day: Day) -> dict[str, str]:
    return {"Authorization": f"Bearer {day.token}"}


def send_garbage(day: Day, node: LocalNode) -> None:
    """Send requests with a token that are not HTTP: what is wrong with them may be logged, they themselves may not."""
    secret = day.tokens("garbage")
    host, port = node.api.removeprefix("http://").split(":")
    for text in (
        f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization : Bearer {secret}\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \0{secret}\r\n\r\n",
        f"GET /?token={secret} HTTP/9\r\nHost: x\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: {secret}\r\n\r\n",
    ):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(text.encode())
            reply = connection.recv(65_536)
            assert (b" 400 " in reply, day.tokens.found_in(reply)) == (True, set()), reply


def restart(day: Day, away: list[LocalNode]) -> Found:
    """Restart the nodes, and return what their data have, before and after.

    A node that was away gets a snapshot: the log of the others begins behind its own.
    """
    cluster = day.cluster
    present = [node for node in cluster.nodes if node not in away]
    running = in_data(day, present)
    first = [min((node.data_directory / "journal").glob("*.segment")) for node in present]
    for node in present:
        assert node.stop() == 0
    found = {"data": running | in_data(day, present)}
    for node in present:
        cluster.start_node(node)
    cluster.wait_until(lambda: not any(each.exists() for each in first), what="the log to be cut behind a checkpoint")
    cluster.start()
    for node in cluster.nodes:
        cluster.wait_until_ready(node)
    for node in away:
        cluster.wait_until(lambda: "snapshot_installed" in away[0].log_file.read_text(), what="the snapshot")
        found["snapshot"] = in_data(day, [node])
    return found


def in_data(day: Day, nodes: list[LocalNode]) -> set[str]:
    directories = [node.data_directory for node in nodes]
    # Otherwise this looks at the wrong files, or before they were written.
    day.cluster.wait_until(lambda: day.names.found_below(*directories) >= {"queue", "tag"}, what="names in the files")
    return day.content.found_below(*directories) | day.tokens.found_below(*directories)


def in_backup(day: Day, backup: Path) -> set[str]:
    assert day.cluster.token_file is not None
    access = {"RAFTSCHED_URL": day.cluster.urls[0], "RAFTSCHED_TOKEN_FILE": str(day.cluster.token_file)}
    made = run_cli("cluster", "backup", str(backup), "--json", **access)
    assert made.returncode == 0, made.stderr
    content = backup.read_bytes()
    assert day.names.found_in(content) >= {"queue", "tag"}, "otherwise this looks at the wrong file"
    return day.content.found_in(content) | day.tokens.found_in(content)


def in_metrics(day: Day) -> set[str]:
    texts = [read(node) for node in day.cluster.nodes]
    assert "queue" in day.names.found_in("".join(texts)), "otherwise this looks at the wrong text"
    return day.content.found_in("".join(texts)) | day.tokens.found_in("".join(texts))


def read(node: LocalNode) -> str:
    """Return the metrics of a node, which only tokens of all tenants are shown."""
    request = urllib.request.Request(f"{node.api}/metrics", headers={"Authorization": f"Bearer {node.token}"})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return str(reply.read().decode())


async def in_replies(day: Day, callers: list[Onlooker]) -> set[str]:
    """Return what callers are shown although their tokens are not for it."""
    found: set[str] = set()
    async for question, text in answers(day, callers):
        found |= day.content.found_in(text) | day.tokens.found_in(text)
        found |= day.names.found_in(text) - day.names.found_in(question.path)
    return found


def in_events(day: Day, callers: list[Onlooker], place: str, last: str) -> set[str]:
    """Return what readers of events are shown of the tenant."""
    [stranger] = [caller for caller in callers if caller.name == f"{Role.ADMIN.label} of {OTHER}"]
    assert "queue" in day.names.found_in(events(day, Onlooker("", day.token), place, last)), "otherwise it is too short"
    own = day.ask("POST", "/jobs", {"name": "own", "delay_seconds": 9_999}, token=stranger.token)["id"]
    text = events(day, stranger, place, own)
    return day.content.found_in(text) | day.names.found_in(text) | day.tokens.found_in(text)


def in_logs(day: Day) -> set[str]:
    text = "".join(node.log_file.read_text() for node in day.cluster.nodes)
    assert '"event": "request"' in text, "otherwise requests are not logged"
    return day.content.found_in(text) | day.tokens.found_in(text)
