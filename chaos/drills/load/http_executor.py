"""A process with the SDK's `Worker` and production's executor of HTTP jobs, whose targets are on this host."""

from __future__ import annotations

from typing import Any, Final

from chaos.drills.load.recorded_worker import RecordedWorker
from raftsched.cli.local.children import stop_when_stdin_ends
from raftsched.executors.http.executor import HttpExecutor, HttpSettings
from raftsched.executors.http.targets import Targets

QUEUE: Final = "http"


def _run() -> None:
    worker = RecordedWorker(QUEUE)
    executor = HttpExecutor(HttpSettings(targets=Targets(allow=["127.0.0.0/8"])))

    async def send(context: Any, payload: Any) -> dict[str, Any]:
        with worker.body(context):
            return await executor(context, payload)

    worker.execute("http", send, on_stop=executor.close)
    worker.run()


if __name__ == "__main__":
    stop_when_stdin_ends()
    _run()
