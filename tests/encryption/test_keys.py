"""The keys file is read whole or refused with the line at fault, and data is never left without its key in silence."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from raftsched.encryption.keys import Key, KeyCheck, KeyMissing, read_keys, require_keys
from raftsched.errors import Invalid
from tests.for_each import for_each

ONE = base64.b64encode(b"1" * 32).decode()
TWO = base64.b64encode(b"2" * 32).decode()


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_keys_are_read_in_their_order_without_comments(tmp_path: Path) -> None:
    path = written(tmp_path / "keys", f"# of 2027\n\n2027-01 {TWO}\n  k1   {ONE}  \n", 0o640)
    assert read_keys(path) == (Key("2027-01", b"2" * 32), Key("k1", b"1" * 32))


@for_each(
    ["text", "says"],
    [
        ("", "0 keys"),
        ("# nothing\n", "0 keys"),
        ("k1\n", "k1 has 0 bytes"),
        (f"# first\nk1 {ONE[:-4]}\n", "line 2: the key k1"),
        ("k1 no-base64!\n", "line 1: the key k1 is not base64"),
        (f"k 1 {ONE}\n", "line 1: the key k is not base64"),
        (f"ключ {ONE}\n", "not ASCII"),
        (f"-k {ONE}\n", "line 1: an id"),
        (f"{'k' * 33} {ONE}\n", "line 1: an id"),
        (f"k1 {ONE}\nk1 {TWO}\n", "a key twice: k1"),
        (f"k1 {ONE}\nk2 {ONE}\n", "a key twice"),
        ("#" * 70_000, "65536 bytes"),
    ],
)
def test_keys_of_a_faulty_file_are_refused_without_naming_them(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_keys(written(tmp_path / "keys", text))
    assert refused.value.field == "encryption.keys_file"
    assert says in str(refused.value)
    assert ONE[:10] not in str(refused.value)


@for_each("mode", [0o604, 0o644, 0o602])
def test_keys_that_others_can_read_are_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(Invalid, match="chmod 0600"):
        read_keys(written(tmp_path / "keys", f"k1 {ONE}\n", mode))


def test_keys_of_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"encryption\.keys_file: .*No such file"):
        read_keys(tmp_path / "keys")


def test_keys_do_not_show_their_bytes() -> None:
    key = Key("k1", b"secretsecretsecretsecretsecretse")
    assert "secret" not in f"{key!r} {key.check}"


KEY = Key("k1", b"1" * 32)


@for_each(
    ["needed", "keys", "says"],
    [
        (
            [KeyCheck("k1", KEY.check)],
            (),
            "the state is encrypted under the key k1, and encryption.keys_file is not set",
        ),
        ([KeyCheck("k1", KEY.check)], (Key("k2", b"2" * 32),), "the key k1, and the keys file has only k2"),
        ([KeyCheck("k1", KEY.check)], (Key("k1", b"3" * 32),), "other bytes under that id"),
    ],
)
def test_keys_that_are_missing_or_other_ones_are_named(
    needed: list[KeyCheck], keys: tuple[Key, ...], says: str
) -> None:
    with pytest.raises(KeyMissing) as refused:
        require_keys(needed, keys, whose="the state")
    assert says in str(refused.value)


def test_keys_that_are_there_suffice() -> None:
    require_keys([KeyCheck("k1", KEY.check)], (Key("k2", b"2" * 32), KEY), whose="the state")
    require_keys([], (), whose="the state")
