"""`raftsched check`: sound directories pass, each kind of damage is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from raftsched.cli.commands.check import check_command
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.journal.recovery import DifferenceMark
from raftsched.consensus.machine import ReplicatedState
from raftsched.core.operations.codec import SubmitJob, encode_batch
from raftsched.core.records.ids import JobId, TimeMs
from raftsched.core.records.retry import RetryPolicy
from raftsched.core.records.spec import JobSpec
from raftsched.disk import SystemDisk
from raftsched.node.check import check_directories, check_directory
from raftsched.node.identity import DirectoryClaim, WrongDirectory
from raftsched.storage.store.lmdb_store import open_store
from raftsched.storage.store.port import Table

MAP_BYTES = 64 << 20


def make(directory: Path, *, node_id: str = "n1", cluster: str = "c", jobs: int = 1, first: bytes = b"j") -> Path:
    """A node's directory with some jobs in it, an entry each, as a stopped node leaves it."""
    DirectoryClaim(directory, node_id=node_id, cluster=cluster).release()
    journal = Journal(SystemDisk(directory / "journal"))
    machine = ReplicatedState(directory / "state", map_bytes=MAP_BYTES)
    for index in range(1, jobs + 2):
        job_id = JobId(bytes([first[0] + index - 2]) * 16)
        submit = SubmitJob(job_id, "t", JobSpec("n", "q", 5, 3, 0, RetryPolicy()), TimeMs(0), b'"x"')
        command = None if index == 1 else encode_batch(TimeMs(1_000), (submit,))
        journal.add(b"\x01" if command is None else b"\x00" + command, index, 1)
        machine.apply(index, 1, command)
    journal.sync()
    journal._destroy()
    machine.close()
    return directory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make(tmp_path / "n1")


def test_a_sound_directory_passes_and_is_described(directory: Path) -> None:
    report = check_directory(directory)
    assert (report.violations, report.job_count, report.applied_index, report.journal_last) == ((), 1, 2, 2)


def test_a_counter_that_disagrees_with_the_records_is_found(directory: Path) -> None:
    _delete_all(directory, Table.COUNTERS)
    assert any("counter" in violation for violation in check_directory(directory).violations)


def test_a_lost_index_entry_is_found(directory: Path) -> None:
    _delete_all(directory, Table.WAITING)
    assert any("waiting" in violation or "index" in violation for violation in check_directory(directory).violations)


def test_rot_in_the_journal_is_found(directory: Path) -> None:
    [segment] = sorted((directory / "journal").iterdir())
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    assert any("journal" in violation for violation in check_directory(directory).violations)


def test_a_directory_in_use_is_refused(directory: Path) -> None:
    claim = DirectoryClaim(directory, node_id="n1", cluster="c")
    with pytest.raises(WrongDirectory, match="in use"):
        check_directory(directory)
    claim.release()


def test_texts_with_brackets_are_printed_as_they_stand(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = directory.rename(directory.with_name("data[red]"))
    found = check_directories([named])
    report = msgspec.structs.replace(found.reports[0], violations=("job x: tags ['[bold]']",))
    monkeypatch.setattr(
        "raftsched.node.check.check_directories", lambda *_: msgspec.structs.replace(found, reports=(report,))
    )
    told = CliRunner().invoke(check_command, [str(named)])
    assert told.exit_code == 1
    assert "data[red]: 1 jobs" in told.output.replace("\n", "")
    assert "job x: tags ['[bold]']" in told.output


# -- what a start checks, and exceptions ------------------------------------------------------------------------------


def test_a_record_that_this_release_can_t_read_is_one_line_with_table_and_key(directory: Path) -> None:
    for table, key in ((Table.JOBS, b"j" * 16), (Table.TIMERS, b"t" * 24), (Table.QUEUES, b"q\0")):
        store = open_store(directory / "state")
        before = store.get(table, key)
        store.put(table, key, b"\xc1\xff")
        store.commit()
        store.close()
        told = CliRunner().invoke(check_command, [str(directory)])
        output = told.output.replace("\n", "")
        assert (told.exit_code, "Traceback" in output) == (1, False)
        assert f"table {table.name.lower()}, key {key.hex()}: the row can't be read" in output
        store = open_store(directory / "state")
        if before is None:
            store.delete(table, key)
        else:
            store.put(table, key, before)
        store.commit()
        store.close()
    assert not check_directory(directory).violations


def test_every_damage_is_told_in_lines_without_a_trace(
    directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A bit of any byte of the state's file, in steps, and files that are cut or gone."""
    accepted = []
    data = (directory / "state" / "data.mdb").read_bytes()
    spoilt = tmp_path_factory.mktemp("spoilt")
    shutil.copytree(directory, spoilt / "n1")
    for offset in range(0, len(data), 997):
        changed = bytearray(data)
        changed[offset] ^= 0x10
        (spoilt / "n1" / "state" / "data.mdb").write_bytes(changed)
        check_directory(spoilt / "n1")
    for length in (0, 100, 4096, 5_000, len(data) // 2, len(data) - 1):
        (spoilt / "n1" / "state" / "data.mdb").write_bytes(data[:length])
        if not check_directory(spoilt / "n1").violations:
            accepted.append(length)
    assert not accepted


def test_a_journal_that_is_gone_or_ends_before_the_state_is_no_sound_directory(directory: Path) -> None:
    segments = directory / "journal"
    kept = directory.with_name("kept")
    segments.rename(kept)
    assert any("journal" in violation for violation in check_directory(directory).violations)
    segments.mkdir()
    assert any("journal" in violation for violation in check_directory(directory).violations)
    segments.rmdir()
    kept.rename(segments)
    assert not check_directory(directory).violations


def test_a_node_that_is_known_to_differ_is_not_sound(directory: Path) -> None:
    (directory / "snapshots").mkdir(exist_ok=True)
    DifferenceMark(directory / "snapshots").write("its digest is another one")
    assert any("another one" in violation for violation in check_directory(directory).violations)


# -- several directories ----------------------------------------------------------------------------------------------


def compared(*directories: Path) -> tuple[str, ...]:
    found = check_directories(directories)
    assert not [report.violations for report in found.reports if report.violations]
    return found.violations


def test_directories_of_one_history_agree(tmp_path: Path) -> None:
    one, other = make(tmp_path / "n1"), make(tmp_path / "n2", node_id="n2")
    assert compared(one, other) == ()
    told = CliRunner().invoke(check_command, [str(one), str(other)])
    assert (told.exit_code, "they agree" in told.output) == (0, True)


def test_states_that_differ_at_one_index_are_told_with_their_tables(tmp_path: Path) -> None:
    one, other = make(tmp_path / "n1"), make(tmp_path / "n2", node_id="n2")
    store = open_store(other / "state")
    store.put(Table.PAYLOADS, b"j" * 16, b'"other"')
    store.commit()
    store.close()
    (violation,) = compared(one, other)
    assert "states differ at log index 2, in payloads" in violation
    assert CliRunner().invoke(check_command, [str(one), str(other)]).exit_code == 1


def test_states_at_different_indexes_are_compared_by_their_logs(tmp_path: Path) -> None:
    one, behind = make(tmp_path / "n1"), make(tmp_path / "n2", node_id="n2", jobs=0)
    found = check_directories([one, behind])
    assert found.violations == ()
    assert "log indexes 2 and 1" in found.notes[0]
    other = make(tmp_path / "n3", node_id="n3", jobs=2, first=b"k")
    assert any("different entries at index 2" in violation for violation in compared(one, other))


def test_directories_that_can_t_be_compared_are_named(tmp_path: Path) -> None:
    one, twice = make(tmp_path / "n1"), make(tmp_path / "again")
    assert any("both of node 'n1'" in violation for violation in compared(one, twice))
    alien = make(tmp_path / "alien", node_id="n2", cluster="other")
    assert any("different clusters" in violation for violation in compared(one, alien))


def _delete_all(directory: Path, table: Table) -> None:
    machine = ReplicatedState(directory / "state", map_bytes=MAP_BYTES)
    store = machine.state._store
    for key, _ in store.scan(table, b"", None, limit=10):
        assert store.delete(table, key)
    store.commit()
    machine.state.close()
