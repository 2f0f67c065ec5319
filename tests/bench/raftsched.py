"""The peer benchmark's adapter for raftsched: copied to `adapters/raftsched.py` of the harness by `tests/bench/run.sh`.

One `raftsched dev` cluster of three nodes with fsync on stands in for the peers' store; the workers are two processes
with this package's `Worker`, the producer uses its blocking `Client`. Completed jobs are counted where the cluster
keeps them: in the counters of `GET /queues/NAME`.
"""

import json
import os
import sys
import time
import urllib.request
from datetime import UTC, datetime

from adapters.base import Adapter, python

JOB = "noop"
WORKER_PROCESSES = 2
START_SECONDS_MAX = 30


class Raftsched(Adapter):
    name = "raftsched"
    stores = ()
    bulk = "Client.submit_many"
    far_bulk = "Client.submit_many"
    workers = f"{WORKER_PROCESSES} worker processes"
    durability = "fsynced on two of three nodes before the reply"

    # -- orchestrator --------------------------------------------------------------------------------------------------

    def start_own_store(self, run_dir):
        import procs
        import stores

        data = os.path.join(run_dir, "cluster")
        command = [python(), "-m", "raftsched", "dev", "--data-dir", data, "--base-port", str(stores.free_port())]
        process = procs.spawn(command, log=os.path.join(run_dir, "own.log"))
        self.urls = _wait_until_ready(os.path.join(data, "cluster.json"))
        self.env = {"RAFTSCHED_URL": " ".join(self.urls)}
        return [process]

    def worker_cmds(self, case):
        return [[python(), "-m", "adapters.raftsched"]] * WORKER_PROCESSES

    def count_done(self, stores, submitted):
        for url in self.urls:
            try:
                return _get(f"{url}/api/v1/queues/{JOB}")["completed"]
            except OSError:
                continue
        raise RuntimeError("no node answers")

    # -- producer ------------------------------------------------------------------------------------------------------

    def open(self):
        from raftsched import Client

        self.client = Client.blocking(*os.environ["RAFTSCHED_URL"].split())

    def submit(self, payload):
        self.client.submit(JOB, payload)

    def submit_bulk(self, payloads):
        _raise_errors(self.client.submit_many({"name": JOB, "payload": payload} for payload in payloads))

    def schedule(self, payload, due):
        self.client.submit(JOB, payload, run_at=_time(due))

    def schedule_bulk(self, items):
        jobs = ({"name": JOB, "payload": payload, "run_at": _time(due)} for payload, due in items)
        _raise_errors(self.client.submit_many(jobs))


PEERS = [Raftsched]


def _time(due):
    return datetime.fromtimestamp(due, UTC)


def _raise_errors(results):
    for result in results:
        if isinstance(result, Exception):
            raise result


def _get(url):
    with urllib.request.urlopen(url, timeout=5) as reply:
        return json.load(reply)


def _wait_until_ready(description):
    """Return the API addresses once a leader serves."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            with open(description, encoding="utf-8") as file:
                urls = [node["api"] for node in json.load(file)["nodes"]]
            _get(f"{urls[0]}/api/v1/queues")
        except (OSError, ValueError):
            time.sleep(0.05)
            continue
        return urls
    raise RuntimeError(f"no leader after {START_SECONDS_MAX} s")


def main():
    import job

    from raftsched import Worker

    worker = Worker(*os.environ["RAFTSCHED_URL"].split(), queues=[JOB], concurrency=100)

    @worker.job(JOB)
    async def noop(payload):
        return job.record(payload)

    worker.run()


if __name__ == "__main__":
    sys.exit(main())
