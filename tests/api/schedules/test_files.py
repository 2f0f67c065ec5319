"""PUT /schedules: what a file changes, and that a mistake in it changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from raftsched import limits
from raftsched.core.operations.base import Operation
from raftsched.core.operations.schedules import ControlSchedule, SaveSchedule
from tests.api.node import START_MS, Answer, Api
from tests.api.schedules.scene import MINUTE, REPORT, at, decided, saved


def _schedule(name: str, **fields: Any) -> dict[str, Any]:
    return REPORT | {"name": name, "cron": "0 * * * *"} | fields


async def _apply(api: Api, *schedules: dict[str, Any], **fields: Any) -> Answer:
    body = msgspec.json.encode({"schedules": schedules} | fields)
    headers = {"Content-Type": "application/json", "Raftsched-Actor": "ci"}
    return await api.ask("PUT", "schedules", data=body, headers=headers)


async def test_a_file_says_what_it_creates_changes_and_prunes(api: Api) -> None:
    await _apply(api, *map(_schedule, ("same", "other", "gone")), source="app")
    await _apply(api, _schedule("foreign"), tenant="acme", source="app")
    changed = _schedule("other", cron="30 * * * *", job={"name": "build_report", "payload": {"n": 2}, "priority": 7})
    file = (_schedule("new"), _schedule("same"), changed)
    told = {
        "created": ["new"],
        "changed": [
            {
                "name": "other",
                "changes": [
                    {"field": "cron", "before": "0 * * * *", "after": "30 * * * *"},
                    {"field": "job.payload", "before": None, "after": None},
                    {"field": "job.priority", "before": 5, "after": 7},
                ],
            }
        ],
        "unchanged": ["same"],
        "pruned": ["gone"],
    }
    count = len(api.node.proposed)
    assert (await _apply(api, *file, source="app", prune=True, dry_run=True)).json == told | {"dry_run": True}
    assert len(api.node.proposed) == count
    assert (await _apply(api, *file, source="app", prune=True)).json == told | {"dry_run": False}
    names = [schedule["name"] for schedule in (await api.get("schedules")).json["schedules"]]
    assert names == ["new", "other", "same"]
    assert (await api.get("schedules/foreign", tenant="acme")).status == 200
    assert (await api.get("audit", actor="ci", action="schedule.delete")).json["entries"][0][
        "subject"
    ] == "schedule:gone"
    again = (await _apply(api, *file, source="app", prune=True)).json
    assert (again["created"], again["changed"], again["unchanged"], again["pruned"]) == (
        [],
        [],
        ["new", "same", "other"],
        [],
    )


async def test_a_file_says_which_texts_labels_and_parameters_it_changes(api: Api) -> None:
    rows = {"name": "rows", "type": "integer", "default": 10}
    first = _schedule("export", owner="ops", labels={"team": "shop", "tier": "1"}, parameters=[rows])
    await _apply(api, first)
    assert (await _apply(api, first)).json["unchanged"] == ["export"]
    second = _schedule("export", labels={"team": "dev", "tier": "1"}, parameters=[rows | {"default": 20}])
    [changed] = (await _apply(api, second)).json["changed"]
    stored = rows | {"required": False}
    assert changed["changes"] == [
        {"field": "labels.team", "before": "shop", "after": "dev"},
        {"field": "owner", "before": "ops", "after": None},
        {"field": "parameters", "before": [stored], "after": [stored | {"default": 20}]},
    ]


async def test_prune_deletes_only_what_the_same_source_applied(api: Api) -> None:
    await _apply(api, _schedule("a1"), _schedule("a2"), source="team-a")
    await _apply(api, _schedule("b1"), source="team-b")
    await _apply(api, _schedule("d1"), _schedule("d2"))
    await saved(api, name="by-hand")
    told = (await _apply(api, _schedule("a1"), source="team-a", prune=True, dry_run=True)).json
    assert (told["unchanged"], told["pruned"]) == (["a1"], ["a2"])
    assert (await _apply(api, _schedule("a1"), source="team-a", prune=True)).json["pruned"] == ["a2"]
    assert (await _apply(api, _schedule("d2"), source="default", prune=True)).json["pruned"] == ["d1"]
    schedules = (await api.get("schedules")).json["schedules"]
    assert {each["name"]: each["source"] for each in schedules} == {
        "a1": "team-a",
        "b1": "team-b",
        "d2": "default",
        "by-hand": None,
    }


async def test_prune_without_a_source_is_refused_since_many_teams_may_share_the_default(api: Api) -> None:
    await _apply(api, _schedule("mine"))
    proposed_count = len(api.node.proposed)
    for fields in ({}, {"source": None}, {"dry_run": True}, {"tenant": "acme"}):
        answer = await _apply(api, _schedule("theirs"), prune=True, **fields)
        assert (answer.status, answer.json["field"]) == (422, "source"), fields
        assert "name your own source" in answer.json["detail"], fields
    assert len(api.node.proposed) == proposed_count
    assert (await _apply(api, _schedule("mine"))).json["unchanged"] == ["mine"]


async def test_a_schedule_goes_over_to_the_source_that_applies_it_and_says_so(api: Api) -> None:
    await saved(api, name="report")
    for before, after in ((None, "team-a"), ("team-a", "team-b")):
        told = (await _apply(api, _schedule("report"), source=after)).json
        assert told["changed"] == [
            {"name": "report", "changes": [{"field": "source", "before": before, "after": after}]}
        ]
        assert (await _apply(api, _schedule("report"), source=after)).json["unchanged"] == ["report"]
    assert (await _apply(api, _schedule("new"), source="team-a", prune=True)).json["pruned"] == []
    await saved(api, name="report", cron="5 * * * *")
    assert (await api.get("schedules/report")).json["source"] == "team-b"
    changes = (await api.get("audit", action="schedule.change")).json["entries"]
    assert any("team-a" in each["detail"] and "team-b" in each["detail"] for each in changes), changes


async def test_a_pause_is_a_change_of_its_own(api: Api) -> None:
    await _apply(api, _schedule("same"))
    until = at(START_MS + MINUTE)
    told = [{"name": "same", "changes": [{"field": "pause_until", "before": None, "after": until}]}]
    for dry_run in (True, False):
        answer = (await _apply(api, _schedule("same", pause_until=until), dry_run=dry_run)).json
        assert (answer["changed"], answer["unchanged"]) == (told, [])
    assert (await api.get("schedules/same")).json["pause"]["until"] == until
    assert (await _apply(api, _schedule("same", pause_until=until))).json["unchanged"] == ["same"]


async def test_a_schedule_that_runs_while_a_file_is_applied_is_saved_anew(api: Api) -> None:
    await saved(api, name="report", every="1m")
    ran: list[Operation] = []

    def run(operation: Operation) -> None:
        if isinstance(operation, SaveSchedule) and not ran:
            ran.append(operation)
            decided(api, schedule, START_MS + MINUTE)

    schedule = (await api.get("schedules/report")).json
    api.node.proposal_error = run
    answer = await _apply(api, REPORT | {"name": "report", "every": "1m", "overlap": "allow"})
    assert (answer.status, len(ran)) == (200, 1)
    assert (await api.get("schedules/report")).json["overlap"] == "allow"


async def test_a_schedule_that_another_source_takes_over_meanwhile_is_not_pruned(api: Api) -> None:
    await _apply(api, _schedule("kept"), _schedule("gone"), source="app")
    seen: list[Operation] = []

    def take_over(operation: Operation) -> None:
        if isinstance(operation, ControlSchedule) and not seen:
            seen.append(operation)
            known = api.node.fresh_state().schedule(operation.id)
            assert known is not None
            save = SaveSchedule(
                id=known.id,
                tenant=known.tenant,
                name=known.name,
                timing=known.timing,
                template=known.template,
                overlap=known.overlap,
                misfire=known.misfire,
                catchup_window_ms=known.catchup_window_ms,
                next_at_ms=known.next_at_ms,
                fingerprint=known.fingerprint,
                source="mail",
            )
            api.node.apply(save)

    api.node.proposal_error = take_over
    told = (await _apply(api, _schedule("kept"), source="app", prune=True)).json
    assert (len(seen), told["pruned"]) == (1, [])
    for source, names in (("app", ["kept"]), ("mail", ["gone"]), ("none", [])):
        page = (await api.get("schedules", source=source)).json["schedules"]
        assert [each["name"] for each in page] == names


async def test_a_change_of_the_source_alone_is_an_update_that_fires_nothing(api: Api) -> None:
    await saved(api, name="same", every="1m")
    before = (await api.get("schedules/same")).json
    await _apply(api, REPORT | {"name": "same", "every": "1m"}, source="app")
    after = (await api.get("schedules/same")).json
    changed = {name for name in after if after[name] != before[name]}
    assert changed - {"updated_at"} == {"source", "revision", "changed_revision"}
    assert (after["generation"], after["next_at"]) == (before["generation"], before["next_at"])


async def test_without_prune_nothing_is_deleted(api: Api) -> None:
    await saved(api, name="gone")
    assert (await _apply(api, _schedule("new"))).json["pruned"] == []
    assert (await api.get("schedules/gone")).status == 200


async def test_one_mistake_keeps_the_whole_file_out(api: Api) -> None:
    for wrong, field in (
        (_schedule("b", cron="nonsense"), "schedules[1].cron"),
        (_schedule("b", jobs={}), "schedules[1].jobs"),
        (_schedule("b", job={"name": "x", "priority": 11}), "schedules[1].job.priority"),
        (_schedule("b", calendar={"timezone": "x"}), "schedules[1].calendar.timezone"),
        (_schedule("b", cron=None, at="2020-01-01T00:00:00Z"), "schedules[1].at"),
        (_schedule("a"), "schedules[1].name"),
        (_schedule("b", tenant="acme"), "schedules[1].tenant"),
    ):
        answer = await _apply(api, _schedule("a"), wrong)
        assert (answer.status in (400, 422), answer.json["field"]) == (True, field), answer.json
        assert answer.json["detail"].startswith(field)
    assert api.node.proposed == []


async def test_a_file_without_schedules_prunes_nothing(api: Api) -> None:
    await saved(api)
    answer = await _apply(api, source="app", prune=True)
    assert (answer.status, answer.json["field"]) == (422, "prune")


async def test_far_too_many_prunings_are_taken_for_a_mistake(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "APPLY_SCHEDULES_MAX", 2)
    for name in "abcd":
        await _apply(api, _schedule(name), source="app")
    answer = await _apply(api, _schedule("a"), source="app", prune=True)
    assert (answer.status, answer.json["field"]) == (422, "prune")


async def test_a_tenant_of_the_file_is_that_of_its_schedules(api: Api) -> None:
    await _apply(api, _schedule("a"), tenant="acme")
    assert (await api.get("schedules/a", tenant="acme")).json["tenant"] == "acme"
    assert (await api.get("schedules/a")).code == "not_found"
