"""A backup is the copy that it was made of, and any change or lack of its bytes is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.encryption.keys import Key, KeyMissing
from raftsched.errors import InvariantBroken
from raftsched.storage import backup
from raftsched.storage.backup import DamagedBackup, Manifest
from raftsched.storage.directory import inspect_copy, open_readonly, open_state
from raftsched.storage.store.lmdb_store import DATA_FILE
from raftsched.storage.store.port import CopyFailed, DamagedCopy
from tests.storage.jobs import NOW_MS
from tests.storage.test_directory import write_jobs

KEY = Key("k1", b"1" * 32)


def make(directory: Path, cipher: Cipher = NO_KEYS) -> tuple[Path, Manifest]:
    """Return a backup of a state with three jobs."""
    state = open_state(directory / "state", cipher=cipher)
    write_jobs(state, range(1, 4))
    state.checkpoint()
    state.copy_to(directory / "copy")
    state.close()
    manifest = backup.describe(directory / "copy", cipher, cluster="c", node="n1", taken_at_ms=NOW_MS, release="1.2")
    path = directory / "backup"
    with (directory / "copy").open("rb") as copy:
        path.write_bytes(b"".join(backup.stream(manifest, copy)))
    return path, manifest


def test_backup_holds_the_copy_and_says_what_it_is_of(tmp_path: Path) -> None:
    path, manifest = make(tmp_path)
    assert path.stat().st_size == backup.stream_bytes(manifest)
    assert (manifest.cluster, manifest.node, manifest.release) == ("c", "n1", "1.2")
    assert (manifest.applied_index, manifest.applied_term, manifest.fencing_token) == (3, 3, 3)
    assert manifest.keys == ()
    for read in (backup.verify(path), backup.read_manifest(path), backup.extract(path, tmp_path / "data.mdb")):
        assert read == manifest
    assert (tmp_path / "data.mdb").read_bytes() == (tmp_path / "copy").read_bytes()
    assert inspect_copy(tmp_path / "data.mdb") == (3, 3)
    with pytest.raises(FileExistsError):
        backup.extract(path, tmp_path / "data.mdb")


def test_damage_at_any_place_is_found_and_nothing_is_left(tmp_path: Path) -> None:
    path, _ = make(tmp_path)
    whole = path.read_bytes()
    places = sorted({*range(0, 1_000, 7), *range(1_000, len(whole), 4_099), *range(len(whole) - 80, len(whole))})
    changed = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in places]
    cut = [whole[:at] for at in (*range(0, len(whole), 9_973), len(whole) - 1)]
    for damaged in (*changed, *cut, whole + b"\n", whole[:100] + whole):
        path.write_bytes(damaged)
        for check in (backup.verify, lambda path: backup.extract(path, tmp_path / "new")):
            with pytest.raises(DamagedBackup):
                check(path)
        assert not (tmp_path / "new").exists()


def test_files_of_other_kinds_and_formats_are_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content, reason in (
        (b"", "is not a backup of raftsched"),
        (b"SQLite format 3\0", "is not a backup of raftsched"),
        (b"raftsched backup 2\n{}\n", "in format 2, and this release reads 1"),
        (b"raftsched backup 1\n{}\n", "its manifest can't be read"),
    ):
        path.write_bytes(content)
        with pytest.raises(DamagedBackup, match=reason):
            backup.verify(path)


def test_a_damaged_copy_becomes_no_backup(tmp_path: Path) -> None:
    make(tmp_path)
    copy = tmp_path / "copy"
    data = bytearray(copy.read_bytes())
    place = data.index(b"send_email")
    data[place] ^= 1
    copy.write_bytes(data)
    with pytest.raises(DamagedCopy, match="damaged"):
        backup.describe(copy, NO_KEYS, cluster="c", node="n1", taken_at_ms=NOW_MS, release="1.2")
    _, manifest = make(tmp_path / "other")
    copy.write_bytes(b"short")
    with copy.open("rb") as file, pytest.raises(DamagedCopy):
        list(backup.stream(manifest, file))


def test_backup_of_an_encrypted_state_names_its_keys_and_needs_them(tmp_path: Path) -> None:
    keys_file = tmp_path / "keys"
    keys_file.write_text("k1 MTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTE=\n")
    keys_file.chmod(0o600)
    path, manifest = make(tmp_path, Cipher([KEY], source=keys_file))
    assert [key.id for key in manifest.keys] == ["k1"]
    assert backup.verify(path) == manifest, "without keys"
    backup.extract(path, tmp_path / DATA_FILE)
    keys_file.unlink()
    with pytest.raises(CopyFailed, match="can't be verified"):
        backup.describe(
            tmp_path / "copy", Cipher([KEY], source=keys_file), cluster="c", node="n1", taken_at_ms=1, release=""
        )
    with pytest.raises(KeyMissing, match="k1"):
        open_readonly(tmp_path / DATA_FILE)
    open_readonly(tmp_path / DATA_FILE, Cipher([KEY])).close()


def test_a_state_continues_at_a_later_index_and_term_only(tmp_path: Path) -> None:
    state = open_state(tmp_path / "state")
    write_jobs(state, range(1, 4))
    for index, term in ((3, 4), (4, 3)):
        with pytest.raises(InvariantBroken, match="can't begin"):
            state.jump_to(index, term)
    state.jump_to(1_000, 4)
    state.advance(index=1_001, term=4, now_ms=NOW_MS)
    assert state.checkpoint() == 1_001
    state.close()
