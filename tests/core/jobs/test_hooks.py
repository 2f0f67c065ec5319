"""Hooks: the job that an end submits, in the same entry, once for each run, and never because of a hook."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from raftsched.core.jobs.facts import FACTS, facts_of_end, filled
from raftsched.core.operations.codec import CancelJob
from raftsched.core.operations.queues import ConfigureQueue
from raftsched.core.records.ids import job_id_text
from raftsched.core.records.job import AttemptEnd, Job, JobError, Status
from raftsched.core.records.spec import Call, CallKind, Hook, JobSpec, OnDependencyFailure, Options
from raftsched.core.state.writes import PutJob
from raftsched.executors.placeholders import filled as filled_by_executor
from tests.core.relations_scene import RelationsScene, needs
from tests.core.scene import PLAIN_RETRY, Scene, code_of


def hook(name: str, payload: bytes = b"", options: Options | None = None) -> Hook:
    return Hook(JobSpec(name, name, 8, 2, 0, PLAIN_RETRY, options=options), payload)


BOTH = Options(on_failure=hook("page"), on_success=hook("cheer"))


def submitted(scene: Scene) -> list[str]:
    """The names of the jobs that the last operation stored."""
    return [write.new.spec.name for write in scene.last.writes if isinstance(write, PutJob) and write.old is None]


def dead(scene: Scene, job: Job) -> None:
    scene.fail(job, retryable=False, error=JobError("Boom", 'said "no"'))


def hooks_of(scene: Scene | RelationsScene, job: Job) -> list[Job]:
    return [each for each in scene.state.all_jobs() if each.spec.options and each.spec.options.hook_of == job.id]


ENDS: dict[str, tuple[Callable[[Scene, Job], Any], list[str]]] = {
    "completed": (lambda scene, job: scene.complete(job), ["cheer"]),
    "given up": (dead, ["page"]),
    "worker lost": (lambda scene, job: scene.lose_worker(job), []),
    "failed, to be retried": (lambda scene, job: scene.fail(job), []),
    "snoozed": (lambda scene, job: scene.snooze(job, 10), []),
    "cancelled": (lambda scene, job: scene.apply(CancelJob(job.id, "default", force=True)), []),
}


@pytest.mark.parametrize("end", ENDS)
def test_end_submits_its_hook_in_the_same_operation(end: str) -> None:
    scene = Scene()
    act, expected = ENDS[end]
    job = scene.running(options=BOTH)
    act(scene, job)
    assert submitted(scene) == expected
    assert [each.spec.name for each in hooks_of(scene, job)] == expected
    if end in ("completed", "given up"):
        assert code_of(scene.report(job, AttemptEnd.FAILED)) is not None
        assert submitted(scene) == [], "a second report of the same attempt ends nothing"


def test_hook_is_an_ordinary_job_of_the_same_tenant_that_knows_its_cause() -> None:
    scene = Scene()
    job = scene.running(options=BOTH, tenant="acme")
    dead(scene, job)
    (page,) = hooks_of(scene, job)
    assert (page.tenant, page.spec.priority, page.status) == ("acme", 8, Status.QUEUED)
    assert json.loads(scene.state.payload(page.id)) == {
        "job_id": job_id_text(job.id),
        "run_id": f"{job_id_text(job.id)}.1",
        "name": "send_email",
        "queue": "send_email",
        "status": "dead_letter",
        "reason": "rejected",
        "error": 'Boom: said "no"',
        "attempts": 1,
        "schedule": None,
        "fire_time": None,
        "event": "dead_letter",
        "since": None,
        "summary": 'Job send_email is in the dead-letter queue (rejected): Boom: said "no"',
    }
    scene.complete(scene.run(page))
    assert scene.status(page) is Status.COMPLETED


def test_each_run_has_a_hook_of_its_own(relations: RelationsScene) -> None:
    job = relations.submit(options=BOTH)
    relations.end(job, Status.DEAD_LETTER)
    relations.requeue(job)
    assert len(hooks_of(relations, job)) == 1
    relations.end(job, Status.DEAD_LETTER)
    assert [each.spec.name for each in hooks_of(relations, job)] == ["page", "page"]


def test_hook_of_the_queue_is_for_jobs_without_their_own_and_hooks_never_cause_hooks() -> None:
    scene = Scene()
    for queue in ("send_email", "page", "general"):
        scene.apply(ConfigureQueue(queue, on_failure=(hook("general"),)))
    dead(scene, scene.running(options=Options(on_failure=hook("page"))))
    assert submitted(scene) == ["page"]
    job = scene.running()
    dead(scene, job)
    assert submitted(scene) == ["general"]
    for each in hooks_of(scene, job):
        dead(scene, scene.run(each))
        assert submitted(scene) == []
    scene.apply(ConfigureQueue("send_email", on_failure=()))
    dead(scene, scene.running())
    assert submitted(scene) == []


@pytest.mark.parametrize(("policy", "expected"), [(OnDependencyFailure.FAIL, ["page"]), (OnDependencyFailure.SKIP, [])])
def test_job_that_fails_by_its_parent_has_its_hook_whenever_that_is_known(
    relations: RelationsScene, policy: OnDependencyFailure, expected: list[str]
) -> None:
    options = Options(on_dependency_failure=policy, on_failure=hook("page"))
    parent = relations.submit()
    children = [relations.submit(depends_on=needs(parent), options=options)]
    relations.end(parent, Status.DEAD_LETTER)
    children.append(relations.submit(depends_on=needs(parent), options=options))
    assert [[each.spec.name for each in hooks_of(relations, child)] for child in children] == [expected, expected]


def test_braces_of_facts_reach_an_executor_as_they_are() -> None:
    scene = Scene()
    call = Options(call=Call(CallKind.HTTP, b'{"url":"http://x/"}'))
    for payload in (b"", b'{"error":"{{cause.error}} {{run_id}}"}'):
        job = scene.running(options=Options(on_failure=hook("page", payload, call)))
        scene.fail(job, retryable=False, error=JobError("Boom", "{{{x}}"))
        (page,) = hooks_of(scene, job)
        body = json.loads(scene.state.payload(page.id))
        assert filled_by_executor(body["error"], {"run_id": "r"}) == ("Boom: {{{x}} r" if payload else "Boom: {{{x}}")


def test_nested_and_oversized_hooks_are_refused() -> None:
    scene = Scene()
    for bad in (hook("a", options=BOTH), hook("a", b'"%b"' % (b"x" * 20_000)), hook("a", b'"%b"' % (b"{{" * 21))):
        assert code_of(scene.apply(ConfigureQueue("q", on_failure=(bad,)))).label == "invalid"


def test_facts_fill_placeholders_as_escaped_text() -> None:
    scene = Scene()
    job = scene.running(
        options=Options(on_failure=hook("page", b'{"text":"{{cause.name}}: {{cause.error}} {{run_id}}"}'))
    )
    dead(scene, job)
    (page,) = hooks_of(scene, job)
    assert json.loads(scene.state.payload(page.id)) == {"text": 'send_email: Boom: said "no" {{run_id}}'}
    facts = facts_of_end(scene.now(job), None)
    assert tuple(facts) == FACTS
    assert filled(b'"{{cause.reason}}{{cause.nothing}}"', {"reason": None}) == b'"{{cause.nothing}}"'
    assert len(filled(b'"%b"' % (b"{{cause.error}}" * 20), {"error": "\0" * 9_000})) < 256 * 1024
