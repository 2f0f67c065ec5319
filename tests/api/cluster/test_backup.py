"""A backup is sent whole or visibly cut off, and one that was stored is recorded for everybody."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from raftsched import limits
from raftsched.storage.backup import OpenBackup
from tests.api.node import Api, Fault, misjudged
from tests.storage.test_backup import make

RECORD = {
    "node": "n1",
    "applied_index": 1,
    "taken_at": "2030-03-17T17:46:39.000Z",
    "content_bytes": 4_096,
    "content_sha256": "ab" * 32,
}


def prepare(api: Api, directory: Path) -> Path:
    """Let the node send the backup that is at the returned path."""
    path, manifest = make(directory)
    api.node.open_backup = lambda: OpenBackup(manifest, (directory / "copy").open("rb"))
    return path


async def test_backup_is_sent_by_the_asked_node(api: Api, follower: Api, tmp_path: Path) -> None:
    path = prepare(follower, tmp_path)
    answer = await follower.get("cluster/backup")
    assert answer.status == 200
    assert answer.body == path.read_bytes()
    assert answer.headers["Content-Length"] == str(len(answer.body))
    assert answer.headers["Content-Disposition"] == 'attachment; filename="c-n1-3.backup"'
    assert answer.headers["Raftsched-Revision"] == "3"
    assert (await api.get("cluster/backup")).code == "backup_under_way"
    assert (await follower.ask("HEAD", "cluster/backup")).status == 405, "it would be made for nothing"


async def test_node_sends_few_backups_at_a_time(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(api, tmp_path)
    monkeypatch.setattr(limits, "BACKUP_STREAMS_MAX", 0)
    assert (await api.get("cluster/backup")).code == "backup_under_way"
    monkeypatch.setattr(limits, "BACKUP_STREAMS_MAX", 1)
    for _ in range(2):
        assert (await api.get("cluster/backup")).status == 200, "the one before has ended"


async def test_backup_that_breaks_off_is_no_whole_reply(api: Api, tmp_path: Path) -> None:
    prepare(api, tmp_path)
    (tmp_path / "copy").write_bytes((tmp_path / "copy").read_bytes()[:30_000])
    with pytest.raises(aiohttp.ClientError):
        await api.get("cluster/backup")


async def test_recorded_backup_is_shown_and_an_older_one_does_not_replace_it(api: Api, follower: Api) -> None:
    await api.submit()
    recorded = await follower.post("cluster/backups", RECORD, Raftsched_Actor="ann")
    assert (recorded.status, recorded.json) == (200, RECORD)
    assert (await api.get("cluster")).json["last_backup"] == RECORD
    older = await api.post("cluster/backups", RECORD | {"taken_at": "2030-03-16T00:00:00Z", "node": "n2"})
    assert older.json == RECORD
    (line, *_) = (await api.get("audit")).json["entries"]
    assert (line["action"], line["actor"]) == ("cluster.backup", "ann")


async def test_record_of_no_backup_is_refused_by_name(api: Api) -> None:
    faults: list[Fault] = [
        *(({name: value}, 400, name) for name, value in {"node": "", "applied_index": 0, "content_bytes": 0}.items()),
        ({"taken_at": "yesterday"}, 400, "taken_at"),
        ({"content_sha256": "AB" * 32}, 400, "content_sha256"),
    ]
    assert await misjudged(faults, lambda fields: api.post("cluster/backups", RECORD | fields)) == []
    assert (await api.post("cluster/backups", RECORD | {"applied_index": 10**9})).code == "invalid"
