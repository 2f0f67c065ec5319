"""Histories of drills: recorded by several processes, put together and judged as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from chaos.checkers import History
from chaos.checkers.history.events import AnyEvent, BadHistory, Effect, Granted, Invoke, Reply, Setup, write_history
from chaos.drills.history.exchanges import UNKNOWN, asked, ends
from chaos.drills.history.observed import read_observed
from chaos.drills.history.recorded_pool import RecordedPool
from chaos.drills.history.recorder import Recorder, in_order, merged
from chaos.drills.load.processes import LoadProcess
from chaos.drills.load.receiver import Receiver
from chaos.drills.verdict import judge
from raftsched.exchange import Exchange, HttpPool, Timeouts
from raftsched.exchange import Reply as HttpReply
from tests.chaos import histories_broken_jobs, histories_broken_nodes, histories_broken_runs
from tests.chaos.histories import good_history, replay
from tests.chaos.histories_broken import MUTATIONS, Mutator, NoPlace

JOB = "01a22758-d446-7000-a0a0-e46eefadb7b9"
SEEDS = 60
BROKEN_MIN = 20
REGISTERED_BY = (histories_broken_jobs, histories_broken_nodes, histories_broken_runs)


def test_broken_histories_are_flagged_after_the_way_through_the_files_of_several_processes(tmp_path: Path) -> None:
    missed, tried = [], 0
    for number, mutation in enumerate(MUTATIONS):
        expected = set(mutation.flagged_by)
        broken = next(_broken(mutation.mutate, number), None) if expected else None
        if broken is not None:
            tried += 1
            flagged = _flagged_by(broken, tmp_path / str(number))
            missed += [f"{mutation.name}: not flagged by {name}" for name in expected - flagged - _NEED_REPLAY]
    assert tried >= BROKEN_MIN
    assert missed == []


_NEED_REPLAY = {"snapshot_and_tail_equal_replay"}
"""A log that was read back is replayed by `read_back`, not by this reference scheduler."""


def _flagged_by(events: list[AnyEvent], directory: Path) -> set[str]:
    try:
        return set(judge(_through_files(events, directory)).violations)
    except BadHistory:  # of a file whose times fall
        return {"well_formed"}


def _broken(mutate: Mutator, first_seed: int) -> Iterator[list[AnyEvent]]:
    for seed in range(first_seed, first_seed + SEEDS):
        try:
            yield mutate(History(good_history(seed), replay=replay))
        except NoPlace:
            continue


def _through_files(events: list[AnyEvent], directory: Path) -> list[AnyEvent]:
    """Write what clients saw to one file a process, all else to the harness's, and put them together again."""
    directory.mkdir()
    of_files: dict[str, list[AnyEvent]] = defaultdict(list)
    for event in events:
        of_files[event.process if isinstance(event, Invoke | Reply) else "harness"].append(event)
    for name, of_file in of_files.items():
        write_history(directory / name, of_file)
    harness = directory / "harness"
    return merged([harness, *(path for path in sorted(directory.iterdir()) if path != harness)])


def test_recorders_of_several_processes_share_a_clock_and_no_operation_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Recorder(tmp_path / "ours")
    for name, value in ours.settings_for(tmp_path / "theirs", 1).items():
        monkeypatch.setenv(name, value)
    theirs = Recorder.of_process()
    for recorder, process in ((ours, "a"), (theirs, "b"), (ours, "c")):
        recorder.invoke(process, recorder.new_op(), "submit")
    calls = [event for event in merged([tmp_path / "ours", tmp_path / "theirs"]) if isinstance(event, Invoke)]
    assert [call.process for call in calls] == ["a", "b", "c"]
    assert len({call.op for call in calls}) == len(calls)


def test_what_a_worker_was_doing_ends_when_it_is_paused_or_killed(tmp_path: Path) -> None:
    harness = Recorder(tmp_path / "harness.jsonl")
    worker = LoadProcess("asyncio", "worker", [], tmp_path, harness, numbers=range(1, 2))  # it waits for its stdin
    worker.start()
    life = Recorder(tmp_path / "worker-0.jsonl", origin_ns=harness.origin_ns)
    first, paused, killed = (Granted(JOB, 1, number, number) for number in (1, 2, 3))
    try:
        for phase, run in (("begin", first), ("end", first), ("begin", paused)):
            life.effect(phase, run, "worker")
        worker.pause()
        for phase, run in (("end", paused), ("begin", killed)):
            life.effect(phase, run, "worker")
    finally:
        worker.kill()
    effects = [event for event in in_order(worker.events()) if isinstance(event, Effect)]
    expected = "begin 1, end 1, begin 2, end 2, end 2, begin 3, end 3"  # at the pause, and what it says itself
    assert ", ".join(f"{effect.phase} {effect.token}" for effect in effects) == expected


def test_an_entry_has_the_time_of_the_first_node_that_applied_it_if_all_nodes_were_observed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("led 5 2\napplied 10 7\napplied 30 8\n")
    (tmp_path / "b").write_text("applied 20 7\napplied 25 8\n")
    whole = read_observed({name: tmp_path / name for name in ("a", "b")})
    assert whole.applied_at == {7: 10, 8: 25}
    assert [(leader.node, leader.t, leader.term) for leader in whole.leaders] == [("a", 5, 2)]
    assert read_observed({name: tmp_path / name for name in ("a", "b", "c")}).applied_at == {}


def test_a_request_for_several_runs_is_an_operation_for_each_with_an_end_of_its_own() -> None:
    runs = [{"run_id": f"{JOB}.1", "fencing_token": token, "status": "completed"} for token in (7, 8, 9)]
    operations = asked(_post("/leases/outcomes", {"worker": "w", "outcomes": runs}))
    assert [(each.f, each.fields["token"], each.fields["run"]) for each in operations] == [
        ("outcome", token, 1) for token in (7, 8, 9)
    ]
    answers = [
        {"run_id": f"{JOB}.1", "accepted": True, "revision": 5},
        {"run_id": f"{JOB}.1", "accepted": False, "code": "lease_lost"},
        {"run_id": f"{JOB}.1", "accepted": False, "code": "outcome_unknown"},
    ]
    found = ends(operations, _reply(200, {"outcomes": answers}))
    assert [(end.type, end.fields) for end in found] == [
        ("ok", {"revision": 5}),
        ("fail", {"error": "lease_lost"}),
        ("info", {}),
    ]


def test_requests_about_schedules_workflows_queues_and_starts_are_operations_with_their_subject() -> None:
    plain = JOB.replace("-", "")
    found = [
        (each.f, each.fields.get("subject", ""), each.fields.get("action", ""))
        for method, path, document in (
            ("POST", "/schedules", {"name": "tick", "every": "1s"}),
            ("POST", f"/schedules/{JOB}/pause", {}),
            ("DELETE", f"/schedules/{JOB}", None),
            ("POST", f"/schedules/{JOB}/trigger", {}),
            ("DELETE", f"/workflows/{JOB}", None),
            ("POST", "/queues/flow/pause", {}),
            ("PATCH", "/queues/flow", {"concurrency": 2}),
        )
        for each in asked(_request(method, path, document))
    ]
    assert found == [
        ("save_schedule", "tick", ""),
        ("control_schedule", plain, "pause"),
        ("control_schedule", plain, "delete"),
        ("run_schedule", plain, ""),
        ("cancel_workflow", plain, ""),
        ("pause_queue", "flow", ""),
        ("configure_queue", "flow", ""),
    ]
    [start] = asked(_post(f"/runs/{JOB}.2/start", {"fencing_token": 7}))
    assert (start.f, start.fields) == ("start", {"job": plain, "run": 2, "token": 7})


async def test_the_receiver_refuses_an_older_token_of_a_run_and_a_completion_without_its_effect_is_flagged(
    tmp_path: Path,
) -> None:
    recorder = Recorder(tmp_path / "history")
    recorder.add(Setup, nodes=("n1",))
    receiver = Receiver(recorder, Random(1))
    receiver.is_calm = True
    url, plain = await receiver.open(), JOB.replace("-", "")
    pool = HttpPool()
    statuses = []
    for token in (8, 7, 9):
        headers = {"Raftsched-Run-Id": f"{JOB}.1", "Raftsched-Fencing-Token": f"{token}"}
        exchange = Exchange("POST", url, headers=headers, body=b"{}")
        statuses.append((await pool.send(exchange, Timeouts(connect_seconds=5.0, total_seconds=5.0))).status)
    await pool.close()
    await receiver.close()
    assert statuses == [200, 409, 200]
    for op, token in enumerate((8, 7), start=1):
        recorder.invoke(
            "e", op, "outcome", worker="http-executor-1", job=plain, run=1, token=token, outcome="completed"
        )
        recorder.reply("e", op, "ok")
    found = judge(recorder.events).violations
    assert "fenced_tokens_never_fall" not in found
    [violation] = found["completed_was_received"]
    assert "token 7" in violation.message


async def test_a_repeated_report_shows_no_revision_since_its_answer_is_that_of_the_first(tmp_path: Path) -> None:
    async def record(_request: web.Request) -> web.Response:
        return web.json_response({"outcomes": [{"run_id": f"{JOB}.1", "accepted": True, "revision": 5}]})

    app = web.Application()
    app.router.add_post("/api/v1/leases/outcomes", record)
    recorder = Recorder(tmp_path / "history")
    pool = RecordedPool(recorder, "worker", lambda _: None)
    async with TestServer(app) as server:
        run = {"run_id": f"{JOB}.1", "fencing_token": 7, "status": "completed"}
        for _ in range(2):
            exchange = _post("/leases/outcomes", {"worker": "w", "outcomes": [run]})
            exchange.url = str(server.make_url("/api/v1/leases/outcomes"))
            await pool.send(exchange, Timeouts(connect_seconds=5.0, total_seconds=5.0))
    await pool.close()
    replies = [event for event in recorder.events if isinstance(event, Reply)]
    assert [(reply.type, reply.revision) for reply in replies] == [("ok", 5), ("ok", 0)]


async def test_a_request_for_leases_that_is_sent_again_may_give_leases_of_any_time_since_the_first(
    tmp_path: Path,
) -> None:
    """The first one is answered; each repetition is one more of its time, of which nobody knows what became."""
    statuses = [503, 503, 200, 503]
    codes = iter(["outcome_unknown", "not_leader", "", "not_leader"])

    async def lease(_request: web.Request) -> web.Response:
        return web.json_response({"leases": [], "code": next(codes)}, status=statuses.pop(0))

    app = web.Application()
    app.router.add_post("/api/v1/leases", lease)
    recorder = Recorder(tmp_path / "history")
    pool = RecordedPool(recorder, "worker", lambda _: None)
    async with TestServer(app) as server:
        for request_id in ("a", "a", "a", "b"):
            exchange = _post("/leases", {"worker": "w", "queues": ["q"], "request_id": request_id})
            exchange.url = str(server.make_url("/api/v1/leases"))
            await pool.send(exchange, Timeouts(connect_seconds=5.0, total_seconds=5.0))
    await pool.close()
    calls = [event for event in recorder.events if isinstance(event, Invoke)]
    assert [call.op for call in calls] == [1, 2, 3, 4]
    assert calls[0].t == calls[1].t == calls[2].t < calls[3].t
    assert len({call.process for call in calls[:3]}) == 3
    replies = [(event.op, event.type) for event in recorder.events if isinstance(event, Reply)]
    assert replies == [(1, "ok"), (4, "fail")]


def test_refusals_are_definite_only_by_a_code_that_says_so() -> None:
    submit = asked(_post("/jobs", {"name": "a", "max_attempts": 5, "tags": ["op:17"]}))
    assert submit[0].op == 17
    assert ends(submit, _reply(503, {"code": "not_leader"}))[0].type == "fail"
    for reply in (_reply(503, {"code": "outcome_unknown"}), _reply(500, {"code": "internal_error"}), _reply(502, {})):
        assert ends(submit, reply) == [UNKNOWN]
    assert ends(submit, HttpReply(503, {}, b"<html>")) == [UNKNOWN]


def _post(path: str, document: object) -> Exchange:
    return _request("POST", path, document)


def _request(method: str, path: str, document: object) -> Exchange:
    body = None if document is None else msgspec.json.encode(document)
    return Exchange(method, f"http://n1:1/api/v1{path}", headers={}, body=body)


def _reply(status: int, document: object) -> HttpReply:
    return HttpReply(status, {}, msgspec.json.encode(document))
