from __future__ import annotations

import pytest

from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.encryption import AdoptKey
from raftsched.core.records.encryption import SECRET_BYTES, ClusterKey
from raftsched.core.state.results import Counted
from tests.core.control_scene import ControlScene
from tests.core.scene import code_of

SECRET, OTHER = b"s" * SECRET_BYTES, b"t" * SECRET_BYTES


def test_the_key_of_the_latest_leader_is_known_and_the_secret_of_the_first_stays(scene: ControlScene) -> None:
    assert scene.apply(AdoptKey("k1", "c1", SECRET)) == Counted(1)
    assert (scene.audited().action, scene.audited().detail) == ("cluster.encrypt", "key: none -> k1")
    assert scene.apply(AdoptKey("k1", "c1", OTHER)) == Counted(0)
    assert scene.last.writes == ()
    assert scene.apply(AdoptKey("k2", "c2", OTHER)) == Counted(1)
    assert scene.state.cluster_key == ClusterKey("k2", "c2", SECRET)


@pytest.mark.parametrize(
    "operation", [AdoptKey("", "c", SECRET), AdoptKey("k", "", SECRET), AdoptKey("k", "c", b"short")]
)
def test_a_key_that_is_none_is_rejected(scene: ControlScene, operation: AdoptKey) -> None:
    assert code_of(scene.apply(operation)) is RejectCode.INVALID
