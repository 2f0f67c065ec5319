"""A backup becomes the first node of a new cluster, or nothing at all."""

from __future__ import annotations

from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest

from raftsched import limits
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.encryption.keys import Key, KeyMissing, read_keys
from raftsched.errors import Invalid, RaftschedError
from raftsched.node.check import check_directory
from raftsched.node.identity import DirectoryClaim, WrongDirectory, read_identity
from raftsched.node.new_cluster.founder import new_name
from raftsched.node.new_cluster.restore import restore
from raftsched.storage import backup
from raftsched.storage.backup import DamagedBackup
from raftsched.storage.tables.position import FORMAT_VERSION, UnknownFormat
from tests.core.scene import START_MS
from tests.node.new_cluster.scene import (
    FOUNDER,
    HISTORY,
    NOW_MS,
    content,
    founder_of,
    make_backup,
    opened,
    photographed,
)

LAST = len(HISTORY) + 2


def test_restored_directory_is_sound_and_of_a_new_cluster(tmp_path: Path) -> None:
    file = make_backup(tmp_path)
    directory = tmp_path / "new" / "n1"
    founded = restore(file, directory, FOUNDER, NO_KEYS, NOW_MS)
    assert (founded.jobs, founded.ended_leases, founded.paused_schedules) == (4, 1, 1)
    assert founded.fencing_token == NOW_MS * 1_000

    assert content(directory) >= {"node.json", "journal", "state/data.mdb", "snapshots"}
    identity, old = read_identity(directory), read_identity(tmp_path / "node")
    assert (identity.cluster, identity.node_id) == ("c-2", "n1")
    assert identity.incarnation != old.incarnation
    report = check_directory(directory)
    assert report.violations == ()
    assert report.applied_index == report.journal_first == report.journal_last == founded.applied_index
    assert founded.applied_index > LAST + limits.NEW_CLUSTER_INDEX_STEP
    assert report.term == 2
    with opened(directory) as state:
        assert state.leased_jobs() == []
        assert state.cluster_time_ms == NOW_MS
    with pytest.raises(WrongDirectory, match="set cluster = 'c-2' on all nodes"):
        DirectoryClaim(directory, node_id="n1", cluster="c")


def test_schedules_are_left_alone_if_that_is_wanted(tmp_path: Path) -> None:
    founded = restore(make_backup(tmp_path), tmp_path / "n1", founder_of(pauses_schedules=False), NO_KEYS, NOW_MS)
    assert founded.paused_schedules == 0


def test_a_restore_that_can_not_be_leaves_the_directory_as_it_was(tmp_path: Path) -> None:
    file = make_backup(tmp_path)
    directory = tmp_path / "n1"
    whole = file.read_bytes()

    def refused(kind: type[RaftschedError], text: str, *, now_ms: int = NOW_MS, **fields: Any) -> None:
        before = content(directory)
        with pytest.raises(kind, match=text):
            restore(file, directory, founder_of(**fields), NO_KEYS, now_ms)
        assert content(directory) == before

    for _ in range(2):  # missing, then empty but for what belongs to the file system
        refused(Invalid, "cluster: c is the name of the old cluster", cluster="c")
        refused(Invalid, "cluster: expected 1 to 64 letters", cluster="a b")
        refused(Invalid, "node_id: expected", node_id="")
        refused(Invalid, "raft: 'x' is not host:port", raft="x")
        refused(Invalid, "the clock of this machine", now_ms=START_MS - 1)
        for damaged in (whole[:-1], whole[: len(whole) // 2], whole[:60], b"", whole[:-900] + b"x" + whole[-899:]):
            file.write_bytes(damaged)
            refused(DamagedBackup, str(file))
        file.write_bytes(whole.replace(b'"state_format":%d' % FORMAT_VERSION, b'"state_format":5'))
        refused(UnknownFormat, f"in format 5, and this release reads {FORMAT_VERSION}: restore it with release 1")
        file.write_bytes(whole)
        (directory / "lost+found").mkdir(parents=True, exist_ok=True)
    (directory / "journal").mkdir()
    refused(WrongDirectory, "is not empty, it holds journal: name an empty one")
    (directory / "journal").rmdir()
    restore(file, directory, FOUNDER, NO_KEYS, NOW_MS)
    refused(WrongDirectory, "is not empty")


def test_an_interrupted_restore_is_no_node_and_a_failed_one_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_backup(tmp_path)
    photos = tmp_path / "photos"
    with photographed(monkeypatch, tmp_path / "n1", photos):
        restore(file, tmp_path / "n1", FOUNDER, NO_KEYS, NOW_MS)
    moves = sorted(photos.iterdir())
    assert len(moves) == 4
    for crashed in moves:
        with pytest.raises(WrongDirectory, match="unfinished restore"):
            DirectoryClaim(crashed, node_id="n1", cluster="c-2")
        with pytest.raises(WrongDirectory, match="empty it after"):
            restore(file, crashed, FOUNDER, NO_KEYS, NOW_MS)
    for number in range(1, len(moves) + 1):
        directory = tmp_path / f"failed{number}"
        with (
            photographed(monkeypatch, directory, tmp_path / f"photos{number}", partial(eq, number)),
            pytest.raises(OSError, match="no move"),
        ):
            restore(file, directory, FOUNDER, NO_KEYS, NOW_MS)
        assert not directory.exists()


def test_encrypted_backup_needs_its_keys_and_stays_encrypted(tmp_path: Path) -> None:
    keys_file = tmp_path / "keys"
    keys_file.write_text("k1 MTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTE=\n")
    keys_file.chmod(0o600)
    cipher = Cipher(read_keys(keys_file), source=keys_file)
    file = make_backup(tmp_path, cipher)
    for keys in (NO_KEYS, Cipher([Key("k1", b"2" * 32)])):
        with pytest.raises(KeyMissing, match="the key k1"):
            restore(file, tmp_path / "n1", FOUNDER, keys, NOW_MS)
    restore(file, tmp_path / "n1", FOUNDER, cipher, NOW_MS)
    assert check_directory(tmp_path / "n1", cipher).violations == ()
    assert [key.id for key in read_identity(tmp_path / "n1").keys] == ["k1"]
    with pytest.raises(KeyMissing):
        check_directory(tmp_path / "n1")


def test_names_of_new_clusters_differ_and_do_not_grow() -> None:
    first = new_name("prod")
    second = new_name(first)
    assert first != second
    assert {first[:6], second[:6]} == {"prod-r"}
    assert len(first) == len(second) == len("prod") + 8
    assert len(new_name("x" * 64)) == 64


def test_a_second_restore_from_the_same_backup_has_higher_tokens(tmp_path: Path) -> None:
    file = make_backup(tmp_path)
    first = restore(file, tmp_path / "first", FOUNDER, NO_KEYS, NOW_MS)
    second = restore(file, tmp_path / "second", founder_of(cluster="c-3"), NO_KEYS, NOW_MS + 1_000)
    assert second.fencing_token == first.fencing_token + 1_000_000
    assert backup.verify(file).fencing_token == 2
