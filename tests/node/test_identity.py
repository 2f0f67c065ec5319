"""Whose data directory it is."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from raftsched.consensus.journal.register import SegmentId
from raftsched.encryption.keys import Key, KeyCheck, KeyMissing
from raftsched.node.identity import FORMAT_VERSION, PARTS, DirectoryClaim, WrongDirectory, read_identity


def claim(directory: Path, node_id: str = "n1", cluster: str = "c") -> DirectoryClaim:
    return DirectoryClaim(directory, node_id=node_id, cluster=cluster)


def test_directory_is_claimed_by_its_first_node_and_again_by_it(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "data"
    claim(directory).release()
    claim(directory).release()
    assert read_identity(directory).node_id == "n1"


@pytest.mark.parametrize(("node_id", "cluster"), [("n2", "c"), ("n1", "other")])
def test_directory_of_another_node_is_refused_and_left_alone(tmp_path: Path, node_id: str, cluster: str) -> None:
    claim(tmp_path).release()
    before = (tmp_path / "node.json").read_bytes()
    with pytest.raises(WrongDirectory, match="belongs to node 'n1' of cluster 'c'"):
        claim(tmp_path, node_id, cluster)
    assert (tmp_path / "node.json").read_bytes() == before


def test_directory_in_use_is_refused(tmp_path: Path) -> None:
    held = claim(tmp_path)
    with pytest.raises(WrongDirectory, match="in use"):
        claim(tmp_path)
    held.release()
    claim(tmp_path).release()


def test_directory_of_nobody_is_no_node(tmp_path: Path) -> None:
    with pytest.raises(WrongDirectory, match="not the data directory"):
        read_identity(tmp_path)


def test_directory_has_one_incarnation_for_all_its_life_and_a_new_one_another(tmp_path: Path) -> None:
    first = claim(tmp_path / "a")
    first.release()
    again = claim(tmp_path / "a")
    again.release()
    other = claim(tmp_path / "b")
    other.release()
    assert first.incarnation == again.incarnation == read_identity(tmp_path / "a").incarnation
    assert len({"", first.incarnation, other.incarnation}) == 3


def test_directory_of_another_format_is_refused_by_number(tmp_path: Path) -> None:
    for version in (FORMAT_VERSION - 1, FORMAT_VERSION + 1):
        (tmp_path / "node.json").write_text(f'{{"node_id":"n1","cluster":"c","format_version":{version},"new":1}}\n')
        with pytest.raises(WrongDirectory, match=f"has format {version}; this release reads {FORMAT_VERSION}"):
            claim(tmp_path)


@pytest.mark.parametrize("part", PARTS)
def test_data_without_its_owners_name_is_refused_and_left_alone(tmp_path: Path, part: str) -> None:
    (tmp_path / part).mkdir()
    (tmp_path / part / "something").write_bytes(b"x")
    for _ in range(2):
        with pytest.raises(WrongDirectory, match=rf"holds {part}, but its node\.json is missing"):
            claim(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [part]


def test_a_refused_claim_leaves_no_directory_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(WrongDirectory, match=r"EBADF.*must lie on a local disk"):
        claim(tmp_path / "new" / "data")
    assert not list(tmp_path.iterdir())


def test_every_flipped_bit_of_the_name_is_found(tmp_path: Path) -> None:
    claimed = claim(tmp_path)
    claimed.record(SegmentId(3, 12345))
    claimed.release()
    path = tmp_path / "node.json"
    whole = path.read_bytes()
    assert read_identity(tmp_path).journal == SegmentId(3, 12345)
    accepted = []
    for bit in range(8 * (len(whole) - 1)):  # without the newline at the end
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with suppress(WrongDirectory):
            accepted.append((bit, read_identity(tmp_path)))
    assert accepted == []


@pytest.mark.parametrize("length", [0, 1, 20])
def test_a_name_that_was_cut_short_is_refused(tmp_path: Path, length: int) -> None:
    claim(tmp_path).release()
    path = tmp_path / "node.json"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(WrongDirectory, match="damaged"):
        claim(tmp_path)
    assert path.stat().st_size == length


def test_the_newest_segment_outlives_the_process_and_what_a_crash_left_half_written(tmp_path: Path) -> None:
    first = claim(tmp_path)
    assert first.newest is None
    first.record(SegmentId(1, 7))
    first.record(SegmentId(2, 8))
    first.release()
    (tmp_path / "node.json.new").write_bytes(b'{"node')
    again = claim(tmp_path)
    assert again.newest == SegmentId(2, 8)
    again.record(SegmentId(3, 9))
    again.release()
    assert [path.name for path in tmp_path.iterdir()] == ["node.json"]


def test_a_name_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = claim(tmp_path)
    before = (tmp_path / "node.json").read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            claimed.record(SegmentId(1, 1))
    assert [path.name for path in tmp_path.iterdir()] == ["node.json"]
    assert (tmp_path / "node.json").read_bytes() == before
    assert claimed.newest is None
    claimed.release()


def test_every_directory_that_is_made_is_durable_in_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr("os.fsync", note)
    claim(tmp_path / "a" / "b").release()
    assert synced[:2] == [tmp_path, tmp_path / "a"]
    assert synced[-1] == tmp_path / "a" / "b", "the name of node.json"


def test_a_damaged_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text('{"node_id":')
    with pytest.raises(WrongDirectory, match="damaged"):
        claim(tmp_path)


def test_keys_of_a_directory_are_needed_until_they_are_not(tmp_path: Path) -> None:
    one, two = Key("k1", b"1" * 32), Key("k2", b"2" * 32)
    checks = [KeyCheck(key.id, key.check) for key in (one, two)]
    held = DirectoryClaim(tmp_path, node_id="n1", cluster="c", keys=[one])
    held.need_key(checks[0])
    held.record(SegmentId(1, 7))
    held.release()
    before = (tmp_path / "node.json").read_bytes()
    for keys in ((), (two,), (Key("k1", b"9" * 32),)):
        with pytest.raises(KeyMissing, match="k1"):
            DirectoryClaim(tmp_path, node_id="n1", cluster="c", keys=keys)
    assert (tmp_path / "node.json").read_bytes() == before
    held = DirectoryClaim(tmp_path, node_id="n1", cluster="c", keys=[two, one])
    held.need_key(checks[1])
    held.reencrypt_to("k2")
    assert (held.keys, held.newest) == ((checks[1], checks[0]), SegmentId(1, 7))
    held.need_only(checks[1])
    held.release()
    held = DirectoryClaim(tmp_path, node_id="n1", cluster="c", keys=[two])
    assert (held.keys, held.reencrypts_to) == ((checks[1],), "k2")
    held.release()
