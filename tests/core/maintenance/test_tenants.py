from __future__ import annotations

import pytest

from raftsched import limits
from raftsched.core.operations.codec import RejectCode
from raftsched.core.operations.tenants import RemoveTenant, SaveTenant
from raftsched.core.records.tenant import Tenant
from raftsched.core.state.results import TenantSaved
from tests.core.control_scene import ControlScene
from tests.core.scene import code_of


def saved(scene: ControlScene, **settings: object) -> Tenant:
    result = scene.apply(SaveTenant("acme", **settings))  # type: ignore[arg-type]  # a test's own words
    assert isinstance(result, TenantSaved), result
    return result.tenant


def test_settings_that_are_not_given_stay_and_a_repetition_writes_nothing(scene: ControlScene) -> None:
    first = saved(scene, unfinished_jobs_max=5, weight=3, actor="ann")
    assert (first.unfinished_jobs_max, first.schedules_max, first.weight, first.burst) == (5, 0, 3, 0)
    assert scene.audited().action == "tenant.configure"
    assert scene.audited().detail == "unfinished_jobs: none -> 5; weight: 1 -> 3"
    second = saved(scene, submits_per_second=20, weight=0)
    assert (second.unfinished_jobs_max, second.submits_per_second, second.weight) == (5, 20, 1)
    assert second.burst == 20, "a second's submits by default"
    assert saved(scene, submits_per_second=20) == second
    assert scene.last.writes == ()
    assert saved(scene, unfinished_jobs_max=0, submit_burst=40).burst == 40


def test_removed_settings_are_gone_and_not_the_jobs(scene: ControlScene) -> None:
    job = scene.submit(tenant="acme")
    known = saved(scene, unfinished_jobs_max=1)
    assert scene.apply(RemoveTenant("acme", "ann")) == TenantSaved(known)
    assert (scene.audited().action, scene.audited().subject, scene.audited().actor) == (
        "tenant.remove",
        "tenant:acme",
        "ann",
    )
    assert (scene.state.tenant("acme"), scene.now(job)) == (None, job)
    assert code_of(scene.apply(RemoveTenant("acme"))) is RejectCode.NOT_FOUND


def test_impossible_settings_are_refused_by_name(scene: ControlScene, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(scene, weight=2)
    bad = {
        "name": SaveTenant(""),
        "actor": RemoveTenant("acme", "x" * 1_000),
        "unfinished_jobs_max": SaveTenant("acme", limits.QUOTA_MAX + 1),
        "schedules_max": SaveTenant("acme", schedules_max=-2),
        "submits_per_second": SaveTenant("acme", submits_per_second=limits.QUEUE_LIMIT_MAX + 1),
        "submit_burst": SaveTenant("acme", submit_burst=-2),
        "weight": SaveTenant("acme", weight=1_001),
    }
    for field, operation in bad.items():
        assert code_of(scene.apply(operation)) is RejectCode.INVALID, field
        assert str(scene.last.result).count(f"'{field}") == 1, field
    monkeypatch.setattr(limits, "TENANTS_MAX", 1)
    assert code_of(scene.apply(SaveTenant("globex", 1))) is RejectCode.LIMIT_REACHED
    assert code_of(scene.apply(RemoveTenant(""))) is RejectCode.NOT_FOUND
