"""Read the results of jobs that a run depends on, by job id or by task name."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import msgspec

from raftsched.client.http.connection import Connection
from raftsched.client.records import Graph
from raftsched.errors import NotFound
from raftsched.wire.jobs import ResultDocument
from raftsched.worker.handlers.progress import AttemptReports

_JOB_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


_decode_result = msgspec.json.Decoder(ResultDocument[Any]).decode
_decode_graph = msgspec.json.Decoder(Graph).decode


class Parents:
    """Read results of other jobs, from the leader each time."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def result_of(self, reports: AttemptReports, parent: str) -> Any:
        """Return the result of `parent`; raises `NotFound` if there is no such job, and `Unavailable`."""
        job_id = parent if _JOB_ID.fullmatch(parent) else await self._job_of(reports, parent)
        return _decode_result(await self._connection.call("GET", f"/jobs/{quote(job_id, safe='')}/result")).result

    async def _job_of(self, reports: AttemptReports, task: str) -> str:
        if reports.workflow_id is None:
            raise NotFound(f"{task!r} is no job id, and the job belongs to no workflow whose task it could be")
        query: dict[str, str] = {}
        while True:
            body = await self._connection.call("GET", f"/workflows/{quote(reports.workflow_id, safe='')}", query=query)
            graph = _decode_graph(body)
            found = next((node.id for node in graph.nodes if node.task == task), None)
            if found is not None:
                return found
            if not graph.next_cursor:
                raise NotFound(f"the workflow has no task {task!r}")
            query = {"cursor": graph.next_cursor}
