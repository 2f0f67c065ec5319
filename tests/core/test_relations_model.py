"""Random graphs of jobs with random ends, against a model that looks at everything again until nothing changes.

Bounds are so small here that most of what follows is left to chores. In the first test they are done after each step,
and every job must be as the model says. In the second they are done whenever it happens, mixed with everything else;
then the order decides, so what is watched is what must hold in any order: nothing starts before its parents ended as
they should, counts agree with the verdicts, and in the end nobody waits for ever.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from raftsched import limits
from raftsched.core.checks.invariants import check
from raftsched.core.jobs.dependency_resolution import ended_by_dependency, verdict_of
from raftsched.core.operations.codec import CancelJob, LeaseJobs, RejectCode, SubmitJob
from raftsched.core.operations.control import BackgroundKind, DoBackgroundStep, PauseJob, RequeueJob, ResumeJob
from raftsched.core.operations.queues import CancelWorkflow
from raftsched.core.records.ids import JobId, job_id_text
from raftsched.core.records.job import FINISHED, LEASED, WAITING, Condition, Dependency, Job, Status, Verdict
from raftsched.core.records.spec import OnDependencyFailure, Options
from raftsched.core.records.workflow import Workflow, WorkflowId
from raftsched.core.state.results import Changed, Leased, Purged, Refused, Submitted
from tests.core import relations_model
from tests.core.relations_model import ENDS, ModelJob, RelationsModel
from tests.core.relations_scene import RelationsScene, saved, workflow_id, workflow_part
from tests.core.scene import job_id, submit_operation
from tests.for_each import for_each

SEEDS = range(60)
STEPS = 70
CONDITIONS = [Condition.SUCCESS] * 4 + [Condition.FAILURE, Condition.COMPLETION]


@pytest.fixture(autouse=True)
def _small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INLINE_DEPENDANTS_MAX", 2)
    monkeypatch.setattr(limits, "BACKGROUND_STEP_ITEMS_MAX", 3)


class Play:
    """Random steps on the state; `model` follows where there is one."""

    def __init__(self, seed: int, *, model: RelationsModel | None) -> None:
        self.rng = random.Random(seed)
        self.scene = RelationsScene()
        self.model = model
        self.count = 0
        self.workflow_count = 0
        self.ends: dict[JobId, set[Status]] = {}
        """Every way in which a job has ever ended."""
        self.verbs: list[Callable[[], None]] = [
            *[self.submit] * 4,
            *[self.run] * 6,
            self.submit_workflow,
            self.cancel,
            self.requeue,
            self.requeue,
            self.pause,
            self.resume,
            self.purge,
            self.cancel_workflow,
        ]

    # -- steps

    def step(self) -> None:
        self.rng.choice(self.verbs)()
        self.watch()

    def submit(self) -> None:
        number, operation = self.new_job(self.known())
        result = self.scene.apply(operation)
        assert isinstance(result, Submitted)
        self.add_to_model(number, operation)

    def submit_workflow(self) -> None:
        self.workflow_count += 1
        jobs: list[tuple[int, SubmitJob]] = []
        outside = self.known()
        for _ in range(self.rng.randint(1, 6)):
            inside = [each.id for _, each in jobs]
            jobs.append(self.new_job(inside * 3 + outside, self.workflow_count))
        operations = [each for _, each in jobs]
        first = self.rng.randint(0, len(jobs) - 1)
        if self.model is not None and first:
            self.model.staged.add(self.workflow_count)
        if first:
            self.store_part(jobs[:first], first=0, job_count=len(jobs))
            for _ in range(self.rng.randint(0, 3)):
                self.rng.choice([self.run, self.cancel, self.requeue, self.pause])()
                self.drain_for_model()
                self.watch()
        known = [each for each in operations[first:] if self.parents_are_there(each, operations)]
        if len(known) < len(operations) - first:
            self.drop_workflow(self.workflow_count)
            return
        self.store_part(jobs[first:], first=first, job_count=len(jobs))
        if self.model is not None:
            self.model.staged.discard(self.workflow_count)
            self.model.settle()

    def store_part(self, jobs: list[tuple[int, SubmitJob]], *, first: int, job_count: int) -> None:
        operations = [each for _, each in jobs]
        self.rng.shuffle(operations)
        part = workflow_part(self.workflow_count, operations, first=first, job_count=job_count)
        saved(self.scene.apply(part))
        for number, operation in jobs:
            self.add_to_model(number, operation, self.workflow_count)
        self.drain_for_model()

    def parents_are_there(self, operation: SubmitJob, siblings: list[SubmitJob]) -> bool:
        ids = {each.id for each in siblings}
        return all(self.scene.state.job(each.parent) is not None or each.parent in ids for each in operation.depends_on)

    def drop_workflow(self, number: int) -> None:
        """Its parents are gone: it can't become whole any more."""
        self.scene.apply(CancelWorkflow(workflow_id(number), "default"))
        if self.model is not None:
            self.model.cancel_workflow(number, force=True)
            self.drain()
            for job in self.model.jobs.values():
                job.is_gone = job.is_gone or job.workflow == number

    def run(self) -> None:
        job = self.pick(lambda one: one.status in WAITING or one.status in LEASED)
        if job is None:
            return
        if job.lease is None and self.is_being_cancelled(job):
            result = self.scene.apply(LeaseJobs("w1", 10_000, (job.id,)))
            assert isinstance(result, Leased)
            assert result.missed == (job.id,), "it must not begin any more"
            return
        if job.lease is None:
            self.assert_may_start(job)
            self.scene.start(job)
            self.into_model(job, relations_model.RUNNING)
            if self.rng.random() < 0.3:
                return
        how = "cancelled" if job.status is Status.CANCELLING else self.rng.choice(["completed", "completed", "dead"])
        self.scene.end(job, ENDS[how])
        self.into_model(job, how)

    def cancel(self) -> None:
        job = self.pick(lambda one: one.status not in FINISHED)
        if job is not None:
            self.scene.apply(CancelJob(job.id, "default", force=True))
            self.into_model(job, "cancelled")

    def requeue(self) -> None:
        job = self.pick(lambda one: one.status in FINISHED - {Status.COMPLETED})
        if job is None:
            return
        result = self.scene.apply(RequeueJob(job.id, "default"))
        if isinstance(result, Refused) and result.code is RejectCode.NOT_STARTED:
            assert (
                not self.is_whole(job) or (BackgroundKind.OPEN_WORKFLOW, owner_of(job)) in self.scene.background_work()
            )
        elif self.model is not None:
            assert self.model.requeue(number_of(job)) is isinstance(result, Changed)
            self.model.settle()
        elif isinstance(result, Refused):
            assert (result.code, self.is_wanting(job)) == (RejectCode.DEPENDENCY_UNMET, True)

    def pause(self) -> None:
        job = self.pick(lambda one: one.status in {Status.WAITING_DEPENDENCIES, Status.QUEUED})
        if job is not None:
            self.scene.apply(PauseJob(job.id, "default"))
            self.into_model(job, relations_model.PAUSED)

    def resume(self) -> None:
        job = self.pick(lambda one: one.status is Status.PAUSED)
        if job is not None:
            self.scene.apply(ResumeJob(job.id, "default"))
            self.into_model(job, relations_model.WAITING)

    def purge(self) -> None:
        job = self.pick(lambda one: one.status in FINISHED)
        if job is None:
            return
        if self.scene.purge(job) == Purged(0):
            assert self.is_needed(job), "a job is kept only for those that depend on it, and for its workflow"
        elif self.model is not None:
            self.model.jobs[number_of(job)].is_gone = True

    def cancel_workflow(self) -> None:
        found = [each for each in self.scene.state.all_workflows() if each.is_whole and each.unfinished_count]
        if not found:
            return
        number = number_of_workflow(self.rng.choice(found))
        self.scene.apply(CancelWorkflow(workflow_id(number), "default"))
        if self.model is not None:
            self.model.cancel_workflow(number)

    def background_step(self) -> None:
        background_work = self.scene.background_work()
        if background_work:
            self.scene.apply(DoBackgroundStep(*self.rng.choice(background_work)))

    def drain_for_model(self) -> None:
        """The model knows nothing of chores: for it they are done at once."""
        if self.model is not None:
            self.drain()

    def drain(self) -> None:
        steps = 0
        while self.scene.background_work():
            self.background_step()
            self.note_ends()
            steps += 1
            assert steps < 10_000, "chores come to an end"

    # -- how

    def known(self) -> list[JobId]:
        return [job.id for job in self.scene.state.all_jobs()]

    def new_job(self, known: list[JobId], workflow: int = 0) -> tuple[int, SubmitJob]:
        self.count += 1
        parents = dict.fromkeys(self.rng.choices(known, k=self.rng.choice([0, 1, 1, 2, 3]))) if known else {}
        depends_on = tuple(Dependency(parent, self.rng.choice(CONDITIONS)) for parent in parents)
        options = Options(
            on_dependency_failure=self.rng.choice([*OnDependencyFailure]),
            workflow_id=workflow_id(workflow) if workflow else b"",
            task=f"t{self.count}" if workflow else "",
        )
        return self.count, submit_operation(self.count, depends_on=depends_on, options=options)

    def add_to_model(self, number: int, operation: SubmitJob, workflow: int = 0) -> None:
        if self.model is None:
            return
        parents = {int.from_bytes(each.parent, "big"): each.condition for each in operation.depends_on}
        policy = operation.spec.options.on_dependency_failure if operation.spec.options else OnDependencyFailure.SKIP
        self.model.add(ModelJob(number, parents, policy, workflow))
        self.model.settle()

    def into_model(self, job: Job, where: str) -> None:
        if self.model is not None:
            self.model.end(number_of(job), where)
            self.model.settle()

    def pick(self, wanted: Callable[[Job], bool]) -> Job | None:
        found = [job for job in self.scene.state.all_jobs() if wanted(job)]
        return self.rng.choice(found) if found else None

    def is_whole(self, job: Job) -> bool:
        workflow = self.scene.state.workflow(owner_of(job)) if owner_of(job) else None
        return workflow is None or workflow.is_whole

    def is_wanting(self, job: Job) -> bool:
        """Whether a parent that is there has ended otherwise than it should, or one that is gone may have."""
        for each in self.scene.state.dependencies(job.id):
            parent = self.scene.state.job(each.parent)
            if parent is None or verdict_of(parent, each.condition) is Verdict.UNMET:
                return True
        return False

    def is_needed(self, job: Job) -> bool:
        workflow = self.scene.state.workflow(owner_of(job)) if owner_of(job) else None
        children = [
            self.scene.state.job(row.child) for parent, row in self.scene.state.all_dependants() if parent == job.id
        ]
        return (
            (workflow is not None and not workflow.finished_at_ms)
            or any(child is not None and child.status not in FINISHED for child in children)
            or any(subject == job.id for _, subject in self.scene.background_work())
        )

    def is_being_cancelled(self, job: Job) -> bool:
        return (BackgroundKind.CANCEL_WORKFLOW, owner_of(job)) in self.scene.background_work()

    # -- what must hold

    def note_ends(self) -> None:
        for job in self.scene.state.all_jobs():
            if job.status in FINISHED:
                self.ends.setdefault(job.id, set()).add(job.status)

    def watch(self) -> None:
        """After each step: everything that must hold whatever the order."""
        self.note_ends()
        assert check(self.scene.state) == []
        edges = {(parent, row.child): row.verdict for parent, row in self.scene.state.all_dependants()}
        for job in self.scene.state.all_jobs():
            verdicts = Counter(edges[each.parent, job.id] for each in self.scene.state.dependencies(job.id))
            self.assert_counts_agree(job, verdicts)
        for workflow in self.scene.state.all_workflows():
            jobs = [self.scene.now(one) for owner, one in self.scene.state.all_workflow_jobs() if owner == workflow.id]
            assert workflow.unfinished_count == sum(job.status not in FINISHED for job in jobs)
            assert not workflow.is_whole or bool(workflow.finished_at_ms) == (workflow.unfinished_count == 0)

    def assert_counts_agree(self, job: Job, verdicts: Counter[Verdict]) -> None:
        if job.status in FINISHED and not ended_by_dependency(job):
            return
        assert job.unmet_count == verdicts[Verdict.UNMET]
        assert job.pending_count - verdicts[Verdict.PENDING] in {0, 1}, "its parents, and its workflow"
        assert bool(job.unmet_count) <= (job.status in FINISHED)
        assert (job.status is Status.WAITING_DEPENDENCIES) <= (job.pending_count > 0)

    def assert_may_start(self, job: Job) -> None:
        assert self.is_whole(job), "nothing runs before its workflow is whole"
        for each in self.scene.state.dependencies(job.id):
            ends = self.ends.get(each.parent, set())
            met = {
                Condition.SUCCESS: Status.COMPLETED in ends,
                Condition.FAILURE: Status.DEAD_LETTER in ends,
                Condition.COMPLETION: bool(ends),
            }
            assert met[each.condition], f"{job.id.hex()} starts though {each.parent.hex()} ended as {ends}"

    def assert_is_as_the_model_says(self) -> None:
        assert self.model is not None
        for job in self.scene.state.all_jobs():
            wanted = self.model.jobs[number_of(job)]
            where = seen(job)
            assert (where, job.run_number) == (wanted.where, wanted.run), job
            if ended_by_dependency(job):
                blamed = {f"dependency_failed: {text_of(parent)}" for parent in wanted.parents}
                assert job.failure_reason in blamed
        gone = {job.number for job in self.model.jobs.values() if not job.is_gone}
        assert gone == {number_of(job) for job in self.scene.state.all_jobs()}

    def finish(self) -> None:
        """Let all that can run do so: nobody is left behind."""
        while self.scene.background_work() or self.pick(lambda one: one.status not in FINISHED):
            self.drain()
            self.watch()
            job = self.pick(lambda one: one.status not in FINISHED)
            if job is None:
                break
            runnable = self.pick(lambda one: one.status in WAITING or one.status in LEASED)
            if runnable is not None:
                self.run()
            else:
                paused = self.pick(lambda one: one.status is Status.PAUSED)
                assert paused is not None, f"waits for ever: {job}"
                self.resume()


def number_of(job: Job) -> int:
    return int.from_bytes(job.id, "big")


def owner_of(job: Job) -> WorkflowId:
    return WorkflowId(job.spec.options.workflow_id if job.spec.options is not None else b"")


def number_of_workflow(workflow: Workflow) -> int:
    return int.from_bytes(workflow.id[1:], "big")


def text_of(number: int) -> str:
    return job_id_text(job_id(number))


def seen(job: Job) -> str:
    """The job as the model would put it."""
    if job.status in FINISHED:
        if job.status is Status.DEAD_LETTER:
            return "wanting" if ended_by_dependency(job) else "dead"
        return job.status.label
    names = {Status.PAUSED: relations_model.PAUSED, Status.WAITING_DEPENDENCIES: relations_model.WAITING}
    return relations_model.RUNNING if job.status in LEASED else names.get(job.status, relations_model.READY)


@for_each("seed", SEEDS)
def test_jobs_end_as_the_model_says(seed: int) -> None:
    play = Play(seed, model=RelationsModel())
    for _ in range(STEPS):
        play.step()
        play.drain_for_model()
        play.watch()
        play.assert_is_as_the_model_says()
    play.finish()


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_waits_for_ever_whenever_the_background_work_is_done(seed: int) -> None:
    play = Play(seed, model=None)
    play.verbs.extend([play.background_step] * 5)
    for _ in range(STEPS):
        play.step()
    play.finish()
    assert {job.status for job in play.scene.state.all_jobs()} <= FINISHED
