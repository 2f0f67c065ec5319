"""One node that is left becomes a new cluster with all that it holds; until then its data is untouched."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from raftsched.consensus.journal.recovery import DifferenceMark
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.encryption.keys import KeyMissing, read_keys
from raftsched.errors import Invalid, RaftschedError
from raftsched.node.check import check_directory
from raftsched.node.identity import DirectoryClaim, WrongDirectory, read_identity
from raftsched.node.new_cluster.recover import BEFORE, finish, is_interrupted, recover, survey
from tests.core.scene import START_MS
from tests.node.new_cluster.scene import HISTORY, NOW_MS, content, founder_of, make_node, opened, photographed

FOUNDER = founder_of(actor="recover", pauses_schedules=False)
LAST = len(HISTORY) + 2


@pytest.mark.parametrize("applied", [None, 4, 0])
def test_recovered_node_has_all_that_it_held_also_what_was_not_applied(tmp_path: Path, applied: int | None) -> None:
    directory = make_node(tmp_path / "n1", applied=applied)
    if applied == 0:
        shutil.rmtree(directory / "state")
    left = survey(directory, NO_KEYS)
    assert (left.cluster, left.node_id, left.last_index, left.last_term) == ("c", "n1", LAST, 1)
    assert left.applied_index == (LAST if applied is None else applied)
    assert (left.others, left.raft, left.api) == (("n2", "n3"), "127.0.0.1:8401", "127.0.0.1:8411")

    founded = recover(directory, FOUNDER, NO_KEYS, NOW_MS)

    assert (founded.jobs, founded.ended_leases, founded.paused_schedules) == (4, 1, 0)
    assert founded.fencing_token == NOW_MS * 1_000
    assert read_identity(directory).cluster == "c-2"
    assert check_directory(directory).violations == ()
    with opened(directory) as state:
        assert sum(1 for _ in state.all_jobs()) == 4
        assert state.leased_jobs() == []
        assert [schedule.paused for schedule in state.all_schedules()] == [False]
    assert read_identity(directory / BEFORE).cluster == "c"
    assert {path.name for path in directory.iterdir()} == {"journal", "state", "snapshots", "node.json", BEFORE}


def test_the_old_data_is_kept_as_it_was(tmp_path: Path) -> None:
    directory = make_node(tmp_path / "n1", applied=4)
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != "lock.mdb"}
    recover(directory, FOUNDER, NO_KEYS, NOW_MS)
    kept = {path: (directory / BEFORE / path.relative_to(directory)).read_bytes() for path in before}
    assert kept == before
    with pytest.raises(WrongDirectory, match="earlier recovery"):
        recover(directory, founder_of(cluster="c-3"), NO_KEYS, NOW_MS + 1)


def test_a_recovery_that_can_not_be_changes_nothing(tmp_path: Path) -> None:
    directory = make_node(tmp_path / "n1")
    before = content(directory)

    def refused(kind: type[RaftschedError], text: str, *, now_ms: int = NOW_MS, **fields: Any) -> None:
        with pytest.raises(kind, match=text):
            recover(directory, founder_of(**fields), NO_KEYS, now_ms)
        assert content(directory) == before

    refused(Invalid, "cluster: c is the name of the old cluster", cluster="c")
    refused(Invalid, "api: '' is not host:port", api="")
    refused(Invalid, "the clock of this machine", now_ms=START_MS - 1)
    running = DirectoryClaim(directory, node_id="n1", cluster="c")
    refused(WrongDirectory, "in use by another raftsched process")
    running.release()
    (directory / "snapshots").mkdir(exist_ok=True)
    DifferenceMark(directory / "snapshots").write("it differs")
    before = content(directory)
    refused(WrongDirectory, "must not be recovered: it differs")
    with pytest.raises(WrongDirectory, match="is not the data directory of a node"):
        survey(tmp_path / "nowhere", NO_KEYS)


def test_an_empty_node_and_one_without_its_log_have_nothing_to_recover(tmp_path: Path) -> None:
    blank = tmp_path / "blank"
    DirectoryClaim(blank, node_id="n1", cluster="c").release()
    (blank / "journal").mkdir()
    with pytest.raises(WrongDirectory, match="nothing to recover"):
        survey(blank, NO_KEYS)
    lost = make_node(tmp_path / "lost")
    shutil.rmtree(lost / "journal")
    with pytest.raises(RaftschedError, match="journal has begun"):
        survey(lost, NO_KEYS)


def test_an_interrupted_recovery_is_finished_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, photos = make_node(tmp_path / "n1"), tmp_path / "photos"
    (directory / "snapshots").mkdir(exist_ok=True)
    with photographed(monkeypatch, directory, photos):
        recover(directory, FOUNDER, NO_KEYS, NOW_MS)
    first, *later = sorted(photos.iterdir())
    assert len(later) == 7
    shutil.rmtree(first / BEFORE, ignore_errors=True)
    assert not is_interrupted(first)
    recover(first, FOUNDER, NO_KEYS, NOW_MS)
    for crashed in later:
        assert is_interrupted(crashed)
        for cluster in ("c", "c-2"):
            with pytest.raises(WrongDirectory, match="cluster recover` again"):
                DirectoryClaim(crashed, node_id="n1", cluster=cluster)
        finish(crashed)
        assert not is_interrupted(crashed)
    for recovered in (first, *later):
        assert check_directory(recovered).violations == ()
        assert read_identity(recovered).cluster == "c-2"


def test_encrypted_node_is_recovered_with_its_keys(tmp_path: Path) -> None:
    keys_file = tmp_path / "keys"
    keys_file.write_text("k1 MTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTE=\n")
    keys_file.chmod(0o600)
    cipher = Cipher(read_keys(keys_file), source=keys_file)
    directory = make_node(tmp_path / "n1", applied=4, cipher=cipher)
    with pytest.raises(KeyMissing):
        survey(directory, NO_KEYS)
    recover(directory, FOUNDER, cipher, NOW_MS)
    assert check_directory(directory, cipher).violations == ()
    with pytest.raises(KeyMissing):
        check_directory(directory)
