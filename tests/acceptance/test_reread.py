"""A running node rereads its settings at SIGHUP."""

from __future__ import annotations

import json
import signal
from typing import Any

from raftsched.client import BlockingClient
from raftsched.errors import NotFound
from tests.acceptance.conftest import StartCluster


def test_a_hangup_rereads_the_settings_and_a_bad_file_changes_nothing(start_cluster: StartCluster) -> None:
    cluster = start_cluster(node_count=1)
    node = cluster.nodes[0]
    good = cluster.config.read_text()

    def events(name: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in node.log_file.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    def hang_up(text: str, name: str) -> dict[str, Any]:
        before = len(events(name))
        cluster.config.write_text(text)
        node.signal(signal.SIGHUP)
        cluster.wait_until(lambda: len(events(name)) > before, what=f"a line {name}")
        return events(name)[-1]

    refused = hang_up(good.replace('"info"', '"verbose"'), "config_refused")
    line = good.splitlines().index('log_level = "info"') + 1
    fault = f"{cluster.config}:{line}: log_level: 'verbose' is none of debug, info, warning, error"
    assert refused["faults"] == [fault]

    with BlockingClient(*cluster.urls) as client:
        job = client.submit("n", queue="kept")
        job.cancel()
        taken = hang_up(
            f"retention_seconds = 0.01\nlease_seconds = 9.0\n{without(good, 'lease_seconds')}", "config_reread"
        )
        assert (taken["changed"], taken["needs_restart"]) == (["retention_seconds"], ["lease_seconds"])

        def is_gone() -> bool:
            try:
                client.get(job.id)
            except NotFound:
                return True
            return False

        cluster.wait_until(is_gone, what="the finished job to be purged")
    hang_up(f"{without(good, 'log_level')}".replace("lease", 'log_level = "debug"\nlease', 1), "config_reread")
    assert node.is_ready()


def without(text: str, setting: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(setting))
