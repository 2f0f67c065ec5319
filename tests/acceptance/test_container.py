"""The image in containers; `make container-drill` does it under more load."""

from __future__ import annotations

import os

import pytest

from chaos.drills.backends.containers.engine import NoEngine
from tests.drills.container import __main__ as drill

JOBS = 300


@pytest.mark.timeout(1_200)
def test_hardened_containers_of_the_image_survive_the_kill_of_their_leader() -> None:
    try:
        found = list(drill.run(JOBS))
    except NoEngine as missing:
        if os.environ.get("CI"):
            pytest.fail(f"the image was not tested: {missing}")
        pytest.skip(f"the image was not tested: {missing}")
    assert found == []
