from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.runner import Cli, written

FILE = """
# What runs at night.
schedules:
  - name: nightly
    cron: "0 3 * * *"
    timezone: Europe/Berlin
    calendar:
      skip_dates: [2030-12-25]
      blackouts:
        - {start: 22:30, end: 23:00}
    job: &job
      name: build_report
      payload: {country: no, n: 010}
      priority: 3
  - name: hourly
    every: 1h
    job:
      <<: *job
      priority: 8
"""


async def test_apply_creates_changes_and_leaves_alone(cli: Cli, tmp_path: Path) -> None:
    path = written(tmp_path / "schedules.yaml", FILE)
    created = await cli.ok("apply", "-f", path)
    assert [row[:2] for row in created.rows[:2]] == [["+", "nightly"], ["+", "hourly"]]
    assert "2 created, 0 changed, 0 deleted, 0 unchanged" in created.stdout
    nightly = await cli.json("schedule", "get", "nightly")
    assert nightly["job"]["payload"] == {"country": "no", "n": 10}  # as YAML 1.2 reads it
    assert nightly["calendar"]["blackouts"] == [{"start": "22:30", "end": "23:00"}]
    assert (await cli.json("schedule", "get", "hourly"))["job"]["priority"] == 8
    again = await cli.json("apply", "-f", path)
    assert (again["unchanged"], again["created"], again["changed"]) == (["nightly", "hourly"], [], [])


async def test_apply_shows_what_differs_and_a_dry_run_changes_nothing(cli: Cli, tmp_path: Path) -> None:
    path = written(tmp_path / "schedules.yaml", FILE)
    await cli.ok("apply", "-f", path)
    written(tmp_path / "schedules.yaml", FILE.replace("priority: 8", "priority: 9"))
    dry = await cli.ok("apply", "-f", path, "--dry-run")
    assert dry.rows[0] == ["~", "hourly", "job.priority", "8", "9"]
    assert "would create 0, change 1, delete 0; 1 unchanged" in dry.stdout
    assert (await cli.json("schedule", "get", "hourly"))["job"]["priority"] == 8
    await cli.ok("apply", "-f", path)
    assert (await cli.json("schedule", "get", "hourly"))["job"]["priority"] == 9


async def test_apply_deletes_the_others_only_when_told_to(cli: Cli, tmp_path: Path) -> None:
    await cli.ok("schedule", "create", "by-hand", "a", "--every", "1h")
    older = written(tmp_path / "older.yaml", "- {name: old, every: 1h, job: {name: a}}")
    await cli.ok("apply", "-f", older, "--source", "app")
    path = written(tmp_path / "schedules.yaml", FILE)
    assert (await cli.json("apply", "-f", path, "--source", "app"))["pruned"] == []
    pruned = await cli.ok("apply", "-f", path, "--source", "app", "--prune")
    assert ["-", "old"] in pruned.rows
    assert [each["name"] for each in await cli.json("schedule", "list")] == ["by-hand", "hourly", "nightly"]


async def test_apply_refuses_to_prune_where_neither_file_nor_option_names_a_source(cli: Cli, tmp_path: Path) -> None:
    await cli.ok("apply", "-f", written(tmp_path / "theirs.yaml", "- {name: theirs, every: 1h, job: {name: a}}"))
    for text in (
        "- {name: a, every: 1h, job: {name: a}}",
        "source:\nschedules:\n- {name: a, every: 1h, job: {name: a}}",
    ):
        path = written(tmp_path / "mine.yaml", text)
        for options in ((), ("--dry-run",), ("--json",)):
            ran = await cli.run("apply", "-f", path, "--prune", *options)
            assert ran.exit_code == 2, (text, options)
            assert "or give --source NAME" in " ".join(ran.stderr.split()), (text, options)
    assert [each["name"] for each in await cli.json("schedule", "list")] == ["theirs"]


async def test_apply_goes_by_the_source_of_the_files(cli: Cli, tmp_path: Path) -> None:
    one = written(tmp_path / "one.yaml", "source: team-a\nschedules:\n- {name: a, every: 1h, job: {name: a}}")
    two = written(tmp_path / "two.yaml", "source: team-b\nschedules:\n- {name: b, every: 1h, job: {name: b}}")
    await cli.ok("apply", "-f", one)
    assert (await cli.json("apply", "-f", two, "--prune"))["pruned"] == []
    assert [each["name"] for each in await cli.json("schedule", "list", "--source", "team-b")] == ["b"]
    assert (await cli.json("apply", "-f", two, "--source", "team-a", "--prune", "--dry-run"))["pruned"] == ["a"]
    clash = await cli.refused("apply", "-f", one, "-f", two)
    assert "two.yaml:1: source: team-b here and team-a in another file" in clash


async def test_apply_reads_json_standard_input_and_several_files(cli: Cli, tmp_path: Path) -> None:
    first = {"schedules": [{"name": "a", "every": "1h", "job": {"name": "a", "payload": "😀"}}]}
    path = written(tmp_path / "a.json", json.dumps(first))
    told = await cli.json("apply", "-f", path, "-f", "-", given="- {name: b, every: 2h, job: {name: b}}")
    assert told["created"] == ["a", "b"]
    assert (await cli.json("schedule", "get", "a"))["job"]["payload"] == "😀"


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        (FILE.replace("priority: 8", "priorty: 8"), 19, "hourly: job.priorty"),
        (FILE.replace("every: 1h", "every: 1 fortnight"), 16, "hourly: every"),
        (FILE.replace('cron: "0 3 * * *"', "cron: 61 * * * *"), 5, "nightly: cron"),
        (FILE.replace("timezone:", "time_zone:"), 6, "nightly: time_zone"),
        (FILE.replace("skip_dates: [2030-12-25]", "skip_dates: [2030-13-25]"), 8, "nightly: calendar.skip_dates"),
        (FILE.replace("schedules:", "shedules:"), 3, "shedules"),
        (FILE + "    every: 2h\n", 20, "every: duplicate key"),
        (FILE.replace("priority: 3", "priority: [3"), 15, ""),
        (FILE.replace("name: hourly", "name: nightly"), 15, "the name is used before"),
        (FILE.replace("  - name: nightly", "  - 7\n  - name: nightly"), 4, "a schedule has fields"),
        (FILE.replace("payload: {", "payload: {1: 2, "), 13, "a key must be text"),
        ("schedules: !!python/object/apply:os.system [ls]", 1, "could not determine a constructor"),
        ("just a text", None, "a file of schedules has the list"),
    ],
)
async def test_apply_names_the_file_the_line_and_the_field_at_fault(
    cli: Cli, tmp_path: Path, text: str, line: int | None, told: str
) -> None:
    path = written(tmp_path / "schedules.yaml", text)
    refused = await cli.refused("apply", "-f", path)
    assert refused.startswith(f"raftsched: {path}:{line}: " if line else f"raftsched: {path}:")
    assert told in refused
    assert await cli.json("schedule", "list") == []


async def test_apply_of_a_file_that_means_too_much_is_refused(cli: Cli, tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    path = written(tmp_path / "bomb.yaml", "\n".join(lines))
    assert "mind its aliases" in await cli.refused("apply", "-f", path)


async def test_apply_without_a_file_is_refused(cli: Cli, tmp_path: Path) -> None:
    assert "--file" in await cli.misused("apply")
    assert "does not exist" in await cli.misused("apply", "-f", str(tmp_path / "absent.yaml"))
