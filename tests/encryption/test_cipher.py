"""What the cipher returns is exactly what was encrypted for that place, or an error."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from raftsched.encryption.cipher import NO_KEYS, Cipher, DataUnreadable, key_id_of
from raftsched.encryption.keys import Key, KeyMissing
from tests.for_each import for_each

OLD, NEW = Key("k1", b"1" * 32), Key("k2", b"2" * 32)


@for_each("content", [b"", b"x", b'{"to": "a@example.org"}' * 500])
def test_cipher_decrypts_what_it_encrypted(content: bytes) -> None:
    cipher = Cipher((OLD,))
    encrypted = cipher.encrypt(b"here", content)
    assert cipher.decrypt(b"here", encrypted) == content
    assert len(encrypted) == len(content) + cipher.overhead
    assert len(content) < 20 or content not in encrypted


def test_cipher_encrypts_equal_content_differently() -> None:
    first, second = Cipher((OLD,)), Cipher((OLD,))
    encrypted = {cipher.encrypt(b"here", b"yes") for cipher in (first, second) for _ in range(100)}
    assert len(encrypted) == 200


def test_cipher_decrypts_under_each_of_its_keys() -> None:
    encrypted = Cipher((OLD,)).encrypt(b"here", b"yes")
    both = Cipher((NEW, OLD))
    assert both.decrypt(b"here", encrypted) == b"yes"
    assert (key_id_of(encrypted), key_id_of(both.encrypt(b"here", b"yes"))) == ("k1", "k2")


def test_cipher_that_changes_its_key_while_others_write_uses_no_nonce_twice() -> None:
    cipher, place, rows = Cipher((OLD, NEW)), b"place", [(b"key", b"yes")] * 3
    under_way = cipher.encryptor.encrypt_all(place, rows)
    held = cipher.encryptor
    written = [next(under_way)]
    for key in (NEW, OLD, NEW):  # the first key once more has another salt
        cipher.encrypt_under(key.id)
        assert cipher.keys[0] is key
        written += [cipher.encrypt(b"placekey", b"yes"), held.encrypt(b"placekey", b"yes")]
    written += under_way
    assert [key_id_of(each) for each in written[:3]] == ["k1", "k2", "k1"]
    assert [cipher.decrypt(b"placekey", each) for each in written] == [b"yes"] * 9
    content_bytes = 3 + 16
    assert len({each[:-content_bytes] for each in written}) == 9, "head and count: the derived key and its nonce"


@for_each("keys", [(), (NEW,)])
def test_cipher_names_the_key_that_it_lacks(keys: tuple[Key, ...]) -> None:
    encrypted = Cipher((OLD,)).encrypt(b"here", b"yes")
    with pytest.raises(KeyMissing, match="key k1"):
        Cipher(keys).decrypt(b"here", encrypted)


def _flips(encrypted: bytes) -> Iterator[bytes]:
    for bit in range(8 * len(encrypted)):
        changed = bytearray(encrypted)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


def _cuts(encrypted: bytes) -> Iterator[bytes]:
    for length in range(len(encrypted)):
        yield encrypted[:length]
        yield encrypted[length + 1 :]
    yield encrypted + b"\0"


def _noise(encrypted: bytes) -> Iterator[bytes]:
    randomness = random.Random(1)
    for _ in range(2_000):
        yield randomness.randbytes(randomness.randint(0, len(encrypted)))


@for_each("changes", [_flips, _cuts, _noise])
def test_cipher_never_returns_anything_from_changed_bytes(changes: Callable[[bytes], Iterator[bytes]]) -> None:
    cipher = Cipher((OLD,))
    for changed in changes(cipher.encrypt(b"here", b"yes")):
        with pytest.raises((DataUnreadable, KeyMissing)):
            cipher.decrypt(b"here", changed)


@for_each("place", [b"", b"her", b"here ", b"there"])
def test_cipher_binds_content_to_its_place(place: bytes) -> None:
    cipher = Cipher((OLD,))
    with pytest.raises(DataUnreadable):
        cipher.decrypt(place, cipher.encrypt(b"here", b"yes"))


def test_cipher_is_off_without_keys() -> None:
    assert (bool(NO_KEYS), NO_KEYS.key_id, NO_KEYS.overhead, NO_KEYS.checks) == (False, "", 0, ())


def test_cipher_of_other_bytes_under_the_same_id_decrypts_nothing() -> None:
    encrypted = Cipher((OLD,)).encrypt(b"here", b"yes")
    with pytest.raises(DataUnreadable):
        Cipher((Key("k1", b"3" * 32),)).decrypt(b"here", encrypted)
