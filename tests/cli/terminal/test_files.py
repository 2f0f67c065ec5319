"""Files as they are read, before anybody judges what they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raftsched.cli.terminal.files import Document, read_document
from raftsched.errors import Invalid, Malformed, Rejected


def read(directory: Path, text: str, name: str = "file.yaml") -> Document:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return read_document(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[no, yes, on, off, y, n]", ["no", "yes", "on", "off", "y", "n"]),
        ("[true, False, NULL, ~, null]", [True, False, None, None, None]),
        ("{empty: }", {"empty": None}),
        ("[22:30, 1_000, 010, 0x1f, 0o17, -3, +4]", ["22:30", "1_000", 10, 31, 15, -3, 4]),
        ("[1.5, 1e3, .5, 2., .inf, .nan]", [1.5, 1000.0, 0.5, 2.0, ".inf", ".nan"]),
        ("[2030-12-25, 2030-12-25T00:00:00Z]", ["2030-12-25", "2030-12-25T00:00:00Z"]),
        ("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}", {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}}),
        ('"😀"', "😀"),
        ("", None),
    ],
)
def test_yaml_is_read_by_the_core_schema(tmp_path: Path, text: str, value: Any) -> None:
    assert read(tmp_path, text).value == value


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("f.yaml", "a: 1\nb: 2\na: 3", "f.yaml:3: a: duplicate key"),
        ("f.yaml", "a:\n  - {b: 1, b: 2}", "f.yaml:2: b: duplicate key"),
        ("f.yaml", "<<: {a: 1}\n<<: {b: 2}", "f.yaml:2: <<: duplicate key"),
        ("f.yaml", "true: 1", "f.yaml:1: a key must be text"),
        ("f.yaml", "[1]: 1", "f.yaml:1: a key must be text"),
        ("f.yaml", "a: [1", "f.yaml:"),
        ("f.yaml", "a: 1\n---\nb: 2", "f.yaml:2: but found another document"),
        ("f.yaml", "a: !!python/name:os.system", "f.yaml:1: could not determine a constructor"),
        ("f.yaml", "a: &a [*a]", "mind its aliases"),
        ("f.yaml", "[" * 10_000, "nested too deeply"),
        ("f.json", '{"a": 1, "a": 2}', "f.json: a: duplicate key"),
        ("f.json", '{"a": \n NaN}', "f.json: NaN is not JSON"),
        ("f.json", '{"a":\n}', "f.json:2: not JSON"),
        ("f.json", "{a: 1}", "f.json:1: not JSON"),
    ],
)
def test_file_that_is_not_sound_is_refused_with_its_place(tmp_path: Path, name: str, text: str, told: str) -> None:
    with pytest.raises(Malformed) as caught:
        read(tmp_path, text, name)
    assert told in str(caught.value)


def test_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Malformed, match="UTF-8"):
        read_document(tmp_path / "f.yaml")


TEXT = """\
name: etl
jobs:
  extract.all:
    name: a
  extract:
    depends_on: [x, y]
list:
  - - deep
    - deeper
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("name", 1),
        ("jobs", 2),
        ("jobs.extract.all.name", 4),
        ("jobs.extract.all", 3),
        ("jobs.extract", 5),
        ("jobs.extract.depends_on[1]", 6),
        ("jobs.extract.absent", 5),
        ("list[0][1]", 9),
        ("list[7]", 7),
        ("absent", None),
        ("", None),
    ],
)
def test_line_of_a_field_is_that_of_its_key_or_of_what_is_around_it(
    tmp_path: Path, path: str, line: int | None
) -> None:
    assert read(tmp_path, TEXT).line_of(path) == line


def test_json_is_found_by_line_where_yaml_reads_it_too(tmp_path: Path) -> None:
    assert read(tmp_path, '{\n "a": 1,\n "b": 2}', "f.json").line_of("b") == 3
    assert read(tmp_path, '{\n\t"a": 1,\n\t"b": 2}', "f.json").value == {"a": 1, "b": 2}


def test_fault_keeps_its_code_and_gains_its_place(tmp_path: Path) -> None:
    document = read(tmp_path, TEXT)
    invalid = document.fault(Invalid("x"), "name", "name: is bad")
    assert (str(invalid), invalid.code) == (f"{tmp_path}/file.yaml:1: name: is bad", "invalid")
    rejected = document.fault(Rejected("cycle", "x", http_status=422), "absent", "a cycle")
    assert (str(rejected), rejected.code) == (f"{tmp_path}/file.yaml: a cycle", "cycle")
