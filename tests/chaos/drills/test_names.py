"""Names that were not synced are lost, and those of files that were removed since are back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chaos.drills.names import KEPT, lose, track
from raftsched.disk import make_directory, sync_directory


def _content(directory: Path) -> dict[str, str]:
    files = (path for path in directory.rglob("*") if path.is_file() and KEPT not in path.relative_to(directory).parts)
    return {str(path.relative_to(directory)): path.read_text() for path in files}


@pytest.mark.parametrize("drops_all", [False, True])
def test_each_directory_has_the_names_of_its_last_sync_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, drops_all: bool
) -> None:
    monkeypatch.setattr(os, "fsync", os.fsync)
    track(tmp_path, drops_all=drops_all)
    data = tmp_path / "data"
    make_directory(data / "journal")
    for name in ("removed", "replaced", "written"):
        (data / name).write_text(f"old {name}")
    sync_directory(data)
    (data / "journal" / "synced").write_text("")
    sync_directory(data / "journal")
    (data / "journal" / "unsynced").write_text("")
    (data / "late").mkdir()
    (data / "late" / "file").write_text("")
    (data / "removed").unlink()
    (data / "new").write_text("new")
    (data / "new").replace(data / "replaced")
    (data / "written").write_text("new bytes")
    lose(tmp_path)
    kept = {"removed": "old removed", "replaced": "old replaced", "written": "new bytes", "journal/synced": ""}
    assert _content(tmp_path) == ({} if drops_all else {f"data/{name}": text for name, text in kept.items()})
    assert (data / "late").exists() is False
