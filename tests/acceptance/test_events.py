"""Streams of events: any node serves the same, and a reader goes on elsewhere when its node is killed (DESIGN 8)."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.request
from itertools import cycle, islice
from typing import Any

from raftsched.cli.local.cluster import LocalCluster
from tests.acceptance.http import lease, report, submit

LAST = "last"
SECONDS_MAX = 40.0


class Reader(threading.Thread):
    """Reads a stream until a job called `LAST` is there; when the stream breaks it goes on at the next node."""

    def __init__(self, cluster: LocalCluster, first: int) -> None:
        super().__init__(daemon=True)
        self._nodes = islice(cycle(cluster.urls), first, None)
        self._place = ""
        self.started = threading.Event()
        self.served_by: list[str] = []
        self.events: list[tuple[str, dict[str, Any]]] = []
        """With their ids."""

    def run(self) -> None:
        while not any(event.get("name") == LAST for _, event in self.events):
            try:
                self._read(next(self._nodes))
            except (OSError, http.client.HTTPException):
                continue

    def _read(self, node: str) -> None:
        request = urllib.request.Request(f"{node}/api/v1/events?types=job&queue=watched")
        if self._place:
            request.add_header("Last-Event-ID", self._place)
        with urllib.request.urlopen(request, timeout=SECONDS_MAX) as stream:
            self.served_by.append(node)
            for raw in stream:
                field, _, value = raw.decode().rstrip("\n").partition(": ")
                if field == "id":
                    self._place = value
                    self.started.set()
                elif field == "data":
                    self.events.append((self._place, json.loads(value)))
                    if self.events[-1][1].get("name") == LAST:
                        return


def test_every_node_streams_the_same_and_readers_of_a_killed_one_go_on_elsewhere(cluster: LocalCluster) -> None:
    leader = cluster.wait_for_leader()
    readers = [Reader(cluster, first) for first in range(3)]
    for reader in readers:
        reader.start()
        assert reader.started.wait(SECONDS_MAX)
    base = next(node.api for node in cluster.nodes if node is not leader)
    ids = []
    for number in range(30):
        ids.append(submit(base, name="watched", payload=number)["id"])
        if number == 15:
            leader.kill()
    done_count = 0
    while done_count < len(ids):
        done_count += _done(base)
    cluster.start_node(leader)
    cluster.wait_until_ready(leader)
    submit(base, name=LAST, queue="watched", delay_seconds=3600)
    for reader in readers:
        reader.join(SECONDS_MAX)
        assert not reader.is_alive()
    assert readers[0].events == readers[1].events == readers[2].events
    moved = readers[cluster.nodes.index(leader)]
    assert len(moved.served_by) > 1
    assert moved.served_by[0] == leader.api
    places = [place for place, _ in moved.events]
    assert len(set(places)) == len(places)
    by_job: dict[str, list[str]] = {job_id: [] for job_id in ids}
    for _, event in moved.events[:-1]:
        by_job[event["job_id"]].append(event["type"])
    assert set(map(tuple, by_job.values())) == {("job.created", "job.running", "job.completed")}


def _done(base: str) -> int:
    """Complete some jobs; return how many."""
    leases = lease(base, "w", "watched", capacity=10)
    for granted in leases:
        assert report(base, "w", granted)[0] == 200
    return len(leases)
