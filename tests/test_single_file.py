"""The single-file program gives its variables to processes of itself, and to nobody else."""

from __future__ import annotations

import os

import pytest

from raftsched import single_file

OWN = {"_PYI_ARCHIVE_FILE": "/raftsched", "LD_LIBRARY_PATH": "/tmp/_MEI1"}


def test_variables_of_the_unpacked_program_stay_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_file, "IS_SINGLE_FILE", True)
    monkeypatch.setattr(os, "environ", {"HOME": "/root", **OWN})
    assert single_file.own_variables() == OWN
    assert single_file.others_variables() == {"HOME": "/root"}
    os.environ["LD_LIBRARY_PATH_ORIG"] = "/opt/lib"
    assert single_file.others_variables() == {"HOME": "/root", "LD_LIBRARY_PATH": "/opt/lib"}


def test_an_interpreter_has_none_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"HOME": "/root", **OWN})
    assert single_file.own_variables() == {}
    assert single_file.others_variables() == os.environ
