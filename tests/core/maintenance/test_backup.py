from __future__ import annotations

import pytest
from msgspec.structs import replace

from raftsched.core.operations.backup import RecordBackup
from raftsched.core.operations.codec import RejectCode
from raftsched.core.records.backup import LastBackup
from raftsched.core.records.ids import TimeMs
from raftsched.core.state.results import Counted
from tests.core.control_scene import ControlScene
from tests.core.scene import START_MS, code_of

FIRST = LastBackup(TimeMs(START_MS - 9), 1, "n2", 4_096, "0" * 64)


@pytest.fixture(autouse=True)
def _history(scene: ControlScene) -> None:
    for _ in range(3):
        scene.submit()


def test_the_latest_backup_is_recorded_with_who_has_it(scene: ControlScene) -> None:
    assert scene.apply(RecordBackup(FIRST, "ann")) == Counted(1)
    assert scene.state.last_backup == FIRST
    line = scene.audited()
    assert (line.action, line.subject, line.actor) == ("cluster.backup", "node:n2", "ann")
    assert "0" * 64 in line.detail
    for older in (FIRST, replace(FIRST, taken_at_ms=TimeMs(1))):
        assert scene.apply(RecordBackup(older)) == Counted(0)
        assert scene.state.last_backup == FIRST


def test_a_backup_is_never_of_the_future(scene: ControlScene) -> None:
    """Or it would hide that later ones are missing."""
    assert scene.apply(RecordBackup(replace(FIRST, taken_at_ms=TimeMs(START_MS * 2)))) == Counted(1)
    assert scene.state.last_backup == replace(FIRST, taken_at_ms=TimeMs(START_MS))
    assert code_of(scene.apply(RecordBackup(replace(FIRST, applied_index=99)))) is RejectCode.INVALID


def test_a_record_of_no_backup_is_rejected(scene: ControlScene) -> None:
    for field, value in (("taken_at_ms", 0), ("applied_index", 0), ("node", ""), ("byte_count", 0), ("sha256", "ab")):
        assert code_of(scene.apply(RecordBackup(replace(FIRST, **{field: value})))) is RejectCode.INVALID
    assert code_of(scene.apply(RecordBackup(FIRST, "x" * 10_000))) is RejectCode.INVALID
