"""A node whose keys are not the leader's is refused at its start or says so, and unique keys are no oracle for payloads."""

from __future__ import annotations

import pytest

from raftsched.core.operations.codec import SubmitJob
from raftsched.core.operations.encryption import AdoptKey
from raftsched.core.records.encryption import SECRET_BYTES, ClusterKey
from raftsched.encryption.keys import Key, KeyMissing
from raftsched.node.cluster_key import difference, require_cluster_key
from raftsched.node.unique_keys import keyed
from tests.for_each import for_each
from tests.leader.scene import World

ONE, TWO = Key("k1", b"1" * 32), Key("k2", b"2" * 32)
KNOWN = ClusterKey("k1", ONE.check, b"s" * SECRET_BYTES)


@for_each(
    ["keys", "refusal", "warning"],
    [
        ((ONE,), "", ""),
        ((ONE, TWO), "", ""),
        ((), "keys_file is not set", "encrypts nothing"),
        ((Key("k1", b"9" * 32),), "other bytes", ""),
        ((TWO,), "", "lacks the leader's key k1"),
        ((TWO, ONE), "", "the leader encrypts with the key k1, this node with k2"),
    ],
)
def test_keys_that_are_not_the_leaders_are_told(keys: tuple[Key, ...], refusal: str, warning: str) -> None:
    assert warning in difference(KNOWN, keys)
    assert bool(difference(KNOWN, keys)) == bool(warning)
    if refusal:
        with pytest.raises(KeyMissing, match=refusal):
            require_cluster_key(KNOWN, keys)
    else:
        require_cluster_key(KNOWN, keys)
    require_cluster_key(None, keys)
    assert difference(None, keys) == ""


def unique_key(operation: object) -> bytes:
    assert isinstance(operation, SubmitJob)
    assert operation.spec.options is not None
    return operation.spec.options.unique_key


def test_digests_of_unique_keys_are_keyed_unless_a_job_holds_one_of_before() -> None:
    world = World()
    before, after = (world.submission(unique_key=text) for text in (b"b" * 16, b"a" * 16))
    assert keyed(before, world.state) is before
    world.apply(before)
    world.apply(AdoptKey("k1", ONE.check, KNOWN.secret))
    assert keyed(before, world.state) is before, "it must conflict with the job that holds it"
    digest = unique_key(keyed(after, world.state))
    assert len(digest) == 16
    assert digest != b"a" * 16
    world.apply(AdoptKey("k2", TWO.check, b"other" * 6 + b"xx"))
    assert unique_key(keyed(after, world.state)) == digest, "rotations leave it as it is"
    plain = world.submission()
    assert keyed(plain, world.state) is plain
