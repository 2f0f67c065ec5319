"""A day of the tenant `acme` with a secret in everything that it sends, so that a test can look for them afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from raftsched.cli.local.cluster import LocalCluster, LocalNode
from raftsched.wire.workers import CALLBACK_TOKEN_HEADER
from tests.acceptance.http import call
from tests.executors.http.target import Target

TENANT: Final = "acme"
SECRET: Final = "token"
"""The secret of the tenant that its HTTP jobs name; the node's executors read it from a file."""
_LATER: Final = {"delay_seconds": 9_999}


class Canaries:
    """Texts to look for, by the way in which they were sent."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        return self.texts.setdefault(name, f"canary-{len(self.texts):02}-{name.replace(' ', '-')}-end")

    def found_in(self, content: bytes | str) -> set[str]:
        """Return the names of those that the content has."""
        read = content.encode() if isinstance(content, str) else content
        return {name for name, text in self.texts.items() if text.encode() in read}

    def found_below(self, *directories: Path) -> set[str]:
        """Return the names of those that a file of the directories has."""
        files = [file for each in directories for file in each.rglob("*") if file.is_file()]
        assert files, directories
        return set().union(*(self.found_in(file.read_bytes()) for file in files))


@dataclass(slots=True)
class Day:
    """The tenant, what it made, and its canaries."""

    cluster: LocalCluster
    token: str = ""
    content: Canaries = field(default_factory=Canaries)
    """What users write into jobs and get from them."""
    names: Canaries = field(default_factory=Canaries)
    """Names by which things are found: plain on disks, but of no concern to other tenants."""
    tokens: Canaries = field(default_factory=Canaries)
    """Credentials and what people search for: after they were made nobody is shown them, and no file has them."""
    things: dict[str, list[str]] = field(default_factory=dict)
    """Noun of a path -> ids and names of what the tenant has."""

    @property
    def queue(self) -> str:
        return f"{TENANT}:{self.names('queue')}"

    def ask(self, method: str, path: str, body: Any = None, *, token: str = "", base: str = "") -> Any:
        """Return the reply to a request by the tenant, which must succeed."""
        bearer = f"Bearer {token or self.token}"
        base = base or next(node.api for node in self.cluster.nodes if node.is_running)
        status, answer = call(base, method, f"/api/v1{path}", body, Authorization=bearer)
        assert status in (200, 201), (method, path, status, answer)
        return answer

    def make_token(self, role: str, tenant: str) -> str:
        """Make a token as the admin of the cluster, and return its text."""
        made = self.ask("POST", "/tokens", {"role": role, "tenant": tenant}, token=self.cluster.nodes[0].token)
        text: str = made["token"]
        self.tokens.texts[f"{role} of {tenant}"] = text.split("_", 2)[-1]
        if tenant == TENANT:
            self.note("tokens", made["id"])
        return text

    def note(self, noun: str, *names: str) -> None:
        """Note things that the tenant has."""
        self.things.setdefault(noun, []).extend(names)

    def submit(self, **fields: Any) -> str:
        """Return the id of a new job."""
        job_id: str = self.ask("POST", "/jobs", fields)["id"]
        return job_id

    def lease(self) -> Any:
        """Return the lease of the next job of the tenant's queue, as its worker `w1`."""
        wish = {"worker": "w1", "queues": [self.queue], "capacity": 1, "wait_seconds": 10}
        [held] = self.ask("POST", "/leases", wish)["leases"]
        self.note("runs", held["run_id"])
        return held

    def report(self, held: Any, **outcome: Any) -> None:
        """Report the outcome of a lease."""
        entry = {"run_id": held["run_id"], "fencing_token": held["fencing_token"], **outcome}
        self.ask("POST", "/leases/outcomes", {"worker": "w1", "outcomes": [entry]})


def spend(day: Day, target: Target) -> None:
    """Send a canary in every way that users send texts; runs fail, complete, and end in the dead-letter queue."""
    _fail_and_complete(day)
    _send_requests(day, target)
    _keep_plans(day)
    day.note("queues", day.queue)
    day.note("tenants", TENANT)
    day.note("workers", f"{TENANT}:w1")


def _fail_and_complete(day: Day) -> None:
    canary, names = day.content, day.names
    hook = {"name": "tell", "queue": f"{TENANT}:told", "payload": {"text": f"{canary('hook')} {{{{cause.error}}}}"}}
    failing = unique_job(day) | {"max_attempts": 1, "on_failure": hook, "tags": [names("tag")]}
    day.note("jobs", day.submit(**failing))
    held = day.lease()
    assert held["payload"] == failing["payload"]
    run, token = f"/runs/{held['run_id']}", {"fencing_token": held["fencing_token"]}
    day.ask("POST", f"{run}/progress", token | {"progress": {"at": canary("progress")}})
    day.ask("POST", f"{run}/logs", token | {"lines": [canary("log line")]})
    error = {"type": "Refused", "message": canary("error"), "trace": canary("trace")}
    day.report(held, status="failed", error=error)
    completed = day.submit(name="sum", queue=day.queue)
    day.report(day.lease(), status="completed", result={"sum": canary("result")})
    day.ask("POST", f"/jobs/{completed}/replay", {"payload": canary("payload of a replay")})
    day.note("jobs", completed)


def unique_job(day: Day) -> dict[str, Any]:
    """Return a job of which only one may be unfinished, by a digest of its payload."""
    unique = {"by": ["name", "payload"]}
    return {"name": "pay", "queue": day.queue, "payload": {"to": day.content("payload")}, "unique": unique}


def _send_requests(day: Day, target: Target) -> None:
    """Let the executors of the nodes send requests that fail, and one whose target will report by its own token."""
    canary = day.content
    sent = {"headers": {"X-Of": canary("header")}, "body": canary("body"), "bearer": {"secret": SECRET}}
    failed = sent | {"url": f"{target.url}/echo?code=404&q={canary('url')}"}
    accepted = {"url": f"{target.url}/status?code=202", "completion": "callback"}
    failed_id = day.submit(http=failed)
    day.note("jobs", failed_id)
    day.submit(http=accepted, timeout_seconds=900)
    shell = {"argv": ["/bin/true", canary("argument")], "env": {"OF": canary("variable")}, "stdin": canary("input")}
    day.submit(shell=shell, **_LATER)
    day.cluster.wait_until(
        lambda: day.ask("GET", f"/jobs/{failed_id}")["status"] == "dead_letter", what="the request to fail"
    )
    assert SECRET in day.tokens.found_in("".join(each.head for each in target.received)), target.received

    def callback_token() -> str | None:
        sent = (each.headers.get(CALLBACK_TOKEN_HEADER.lower()) for each in target.received if "202" in each.target)
        return next(sent, None)

    day.tokens.texts["callback"] = day.cluster.wait_until(callback_token, what="the request with a token of its own")


def _keep_plans(day: Day) -> None:
    """Make a schedule that a person triggers, and a workflow."""
    canary, names = day.content, day.names
    parameter = {"name": "region", "type": "text", "default": canary("default of a parameter")}
    notice = {"on": ["dead_letter"], "job": {"name": "tell", "queue": day.queue, "payload": canary("notice")}}
    plan = {"name": names("schedule"), "cron": "0 3 * * *", "parameters": [parameter], "notify": [notice]}
    job = {"name": "dump", "queue": day.queue, "payload": canary("payload of a schedule")}
    described = {"description": canary("description"), "owner": canary("owner")}
    made = day.ask("POST", "/schedules", {**plan, **described, "job": job})
    day.note("schedules", made["id"], made["name"])
    day.ask("POST", f"/schedules/{made['id']}/trigger", {"parameters": {"region": canary("parameter")}})
    parts = {"a": {"name": "x", "queue": day.queue, "payload": canary("payload of a workflow")}}
    day.note("workflows", day.ask("POST", "/workflows", {"name": names("workflow"), "jobs": parts})["id"])
    paused = day.submit(name=names("job"), queue=day.queue, **_LATER)
    day.ask("POST", f"/jobs/{paused}/pause", {"reason": canary("reason")})


def shown_to_the_tenant(day: Day, node: LocalNode) -> str:
    """Return all that a node shows to the tenant of its own jobs and schedules, as it knows them."""

    def read(path: str) -> Any:
        mark = "&" if "?" in path else "?"
        return day.ask("GET", f"{path}{mark}consistency=stale", base=node.api)

    jobs = read("/jobs?limit=100")["jobs"]
    pages = [jobs, read("/schedules"), read("/audit")]
    parts = [f"{job['id']}{part}" for job in jobs for part in ("", "/runs", "/history", "/logs")]
    return str(pages + [read(f"/jobs/{part}") for part in parts])
