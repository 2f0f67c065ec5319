"""`raftsched check`: sound directories pass, each kind of damage is named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from raftsched.check import check_directory
from raftsched.cli.check import check_command
from raftsched.consensus.journal import Journal
from raftsched.consensus.machine import ReplicatedState
from raftsched.core.ids import JobId, TimeMs
from raftsched.core.job import RetryPolicy
from raftsched.core.operations import SubmitJob, encode_batch
from raftsched.disk import SystemDisk
from raftsched.identity import DirectoryClaim, WrongDirectory
from raftsched.storage.store import Table

MAP_BYTES = 64 << 20


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A node's directory with one job in it, as a stopped node leaves it."""
    DirectoryClaim(tmp_path, node_id="n1", cluster="c").release()
    submit = SubmitJob(JobId(b"j" * 16), "t", "n", "q", 5, TimeMs(0), b'"x"', 3, 0, RetryPolicy())
    entry = encode_batch(TimeMs(1_000), (submit,))
    journal = Journal(SystemDisk(tmp_path / "journal"))
    machine = ReplicatedState(tmp_path / "state", map_bytes=MAP_BYTES)
    for index, command in ((1, None), (2, entry)):
        journal.add(b"\x01" if command is None else b"\x00" + command, index, 1)
        machine.apply(index, 1, command)
    journal.sync()
    journal._destroy()
    machine.close()
    return tmp_path


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
    report = msgspec.structs.replace(check_directory(named), violations=("job x: tags ['[bold]']",))
    monkeypatch.setattr("raftsched.check.check_directory", lambda _: report)
    told = CliRunner().invoke(check_command, [str(named)])
    assert told.exit_code == 1
    assert "data[red]: 1 jobs" in told.output.replace("\n", "")
    assert "job x: tags ['[bold]']" in told.output


def _delete_all(directory: Path, table: Table) -> None:
    machine = ReplicatedState(directory / "state", map_bytes=MAP_BYTES)
    store = machine.state._store
    for key, _ in store.scan(table, b"", None, limit=10):
        assert store.delete(table, key)
    store.commit()
    machine.state.close()
