from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from raftsched.cli.terminal.files import read_document
from tests.cli.runner import Cli, written

CRONTAB = """\
MAILTO=ops@example.org
PATH=/usr/local/bin:/usr/bin
*/5 * * * * echo "yes: no"  # a 'quote'
0 2 1 * 1 cat%first line%0o17
@reboot start
"""
REBOOT = "@reboot runs at the start of a machine, and a cluster has none; let that machine's init run it"


async def test_import_writes_what_apply_takes(cli: Cli, tmp_path: Path) -> None:
    ran = await cli.run("import", "crontab", written(tmp_path / "jobs", CRONTAB), "--timezone", "Europe/Berlin")
    assert ran.exit_code == 1
    assert [line.removeprefix(f"{tmp_path}/") for line in ran.stderr.splitlines()] == [
        "jobs:1: not kept: MAILTO=ops@example.org: output is in the log of each run; for mail, use hooks",
        f"jobs:5: left out: @reboot start: {REBOOT}",
        "jobs: note: cron runs commands in the HOME of their user; if one depends on it, set HOME=… in the crontab",
        "raftsched: 2 schedules, 1 left out, 1 settings not kept",
    ]
    path = written(tmp_path / "schedules.yaml", ran.stdout)
    assert "2 created" in (await cli.ok("apply", "-f", path)).stdout
    shell = (await cli.json("schedule", "get", "jobs-echo"))["job"]["shell"]
    assert shell["argv"] == ["/bin/sh", "-c", "echo \"yes: no\"  # a 'quote'"]
    assert (await cli.json("schedule", "get", "jobs-cat"))["job"]["shell"]["stdin"] == "first line\n0o17\n"
    assert "2 unchanged" in (await cli.ok("apply", "-f", path)).stdout


async def test_import_shows_the_next_five_times_that_the_cluster_will_use(cli: Cli, tmp_path: Path) -> None:
    ran = await cli.run("import", "crontab", written(tmp_path / "jobs", CRONTAB), "--timezone", "Europe/Berlin")
    lines = ran.stdout.splitlines()
    at = lines.index("  # next times in Europe/Berlin:", next(n for n, line in enumerate(lines) if "cat%" in line))
    shown = [line.removeprefix("  #   ") for line in lines[at + 1 : at + 6]]
    await cli.ok("apply", "-f", written(tmp_path / "schedules.yaml", ran.stdout))
    table = await cli.ok("schedule", "next", "jobs-cat", "--count", "5")
    assert all(time in table.stdout for time in shown), table.stdout
    assert lines[at + 6] == "  - name: jobs-cat"


async def test_import_partial_exits_with_0(cli: Cli, tmp_path: Path) -> None:
    path = written(tmp_path / "jobs", CRONTAB)
    partial = await cli.ok("import", "crontab", path, "--partial", "--timezone", "UTC")
    assert partial.stdout.count("- name: ") == 2
    complete = await cli.ok("import", "crontab", "-", "--timezone", "UTC", given="HOME=/\n0 0 * * * x\n")
    assert "1 schedules, 0 left out, 0 settings not kept" in complete.stderr
    assert "- name: crontab-x" in complete.stdout


async def test_import_reads_several_files_and_keeps_names_apart(cli: Cli, tmp_path: Path) -> None:
    paths = [written(tmp_path / name, "0 0 * * * x\n") for name in ("jobs", "jobs.old")]
    ran = await cli.ok("import", "crontab", *paths, "--timezone", "UTC")
    names = [each["name"] for each in yaml.safe_load(ran.stdout)["schedules"]]
    assert names == ["jobs-x", "jobs-x-2"]


async def test_import_of_a_file_without_schedules_is_an_empty_list(cli: Cli) -> None:
    ran = await cli.ok("import", "crontab", "-", given="# nothing\n")
    assert yaml.safe_load(ran.stdout) == {"schedules": []}


async def test_import_finds_the_service_beside_a_timer(cli: Cli, tmp_path: Path) -> None:
    timer = written(tmp_path / "dump@shop.timer", "[Timer]\nOnCalendar=hourly UTC\n")
    assert "is not beside it" in (await cli.run("import", "systemd", timer)).stderr
    service = written(tmp_path / "dump@.service", "[Service]\nUser=root\nExecStart=/bin/dump %i\n")
    ran = await cli.ok("import", "systemd", timer, service)
    (schedule,) = yaml.safe_load(ran.stdout)["schedules"]
    assert schedule["name"] == "dump@shop"
    assert schedule["job"]["shell"]["argv"] == ["/bin/dump", "shop"]
    (tmp_path / "dump@shop.timer.d").mkdir()
    assert "the drop-ins in" in (await cli.run("import", "systemd", timer)).stderr


async def test_import_reads_the_other_formats(cli: Cli, tmp_path: Path) -> None:
    job = "{name: x, schedule: '@hourly', executor: http, executor_config: {method: GET, url: 'http://a.example/'}}"
    dkron = await cli.ok("import", "dkron", written(tmp_path / "job.yaml", job), "--timezone", "UTC")
    assert yaml.safe_load(dkron.stdout)["schedules"][0]["job"]["http"]["method"] == "GET"
    pod = "{containers: [{image: i, command: [x]}]}"
    cronjob = f"{{kind: CronJob, metadata: {{name: x}}, spec: {{schedule: '@daily', jobTemplate: {{spec: {{template: {{spec: {pod}}}}}}}}}}}"
    ran = await cli.ok("import", "k8s-cronjob", written(tmp_path / "cron.yaml", cronjob), "--partial")
    assert yaml.safe_load(ran.stdout)["schedules"][0]["job"]["shell"]["argv"] == ["x"]
    app = "from celery import Celery\napp = Celery()\napp.conf.beat_schedule = {'x': {'task': 't', 'schedule': 60}}\n"
    beat = await cli.ok("import", "celery-beat", written(tmp_path / "app_of_a_test.py", app))
    assert yaml.safe_load(beat.stdout)["schedules"][0]["every"] == "1m"


async def test_import_refuses_what_it_can_not_read(cli: Cli, tmp_path: Path) -> None:
    cases: dict[tuple[str, ...], str] = {
        ("crontab", str(tmp_path / "none")): "can't be read as UTF-8 text",
        ("crontab", "-", "--timezone", "Mars"): "--timezone: 'Mars' is not a time zone",
        ("dkron", "-", "--system"): "--system is for crontabs only",
        ("quartz", "-"): "is not one of",
        ("dkron", written(tmp_path / "broken.json", "{")): "broken.json:1: error: not JSON",
        ("k8s-cronjob", written(tmp_path / "broken.yaml", "a: 1\na: 2")): "broken.yaml:2: error: a: duplicate key",
        ("systemd", written(tmp_path / "x.conf", "")): "name files of timers",
        ("celery-beat", str(tmp_path / "none.py")): "the application can't be imported",
        (
            "systemd",
            written(tmp_path / "bad.timer", "[Timer]\nOnCalendar"),
        ): "bad.timer: left out: bad: line 2: neither",
    }
    for arguments, reason in cases.items():
        ran = await cli.run("import", *arguments)
        assert ran.exit_code != 0
        assert reason in ran.stderr, arguments


async def test_import_writes_what_it_can_although_a_file_is_broken(cli: Cli, tmp_path: Path) -> None:
    job = "{name: x, schedule: '@every 1m', executor: shell, executor_config: {command: date}}"
    broken, sound = written(tmp_path / "a.yaml", "a: 1\na: 2"), written(tmp_path / "b.yaml", job)
    ran = await cli.run("import", "dkron", broken, sound, "--partial")
    assert ran.exit_code == 1
    assert f"{broken}:2: error: a: duplicate key" in ran.stderr
    assert [each["name"] for each in yaml.safe_load(ran.stdout)["schedules"]] == ["x"]


async def test_texts_survive_both_versions_of_yaml(cli: Cli, tmp_path: Path) -> None:
    texts = [
        "no",
        "0o17",
        "1_0",
        "22:30",
        "1e3",
        "null",
        "~",
        "- x",
        "a: b",
        "# c",
        "é\u2028",
        "tab\there",
        "x'\"",
        "<<",
        "=",
    ]
    crontab = "".join(f"A{number}={text}\n" for number, text in enumerate(texts)) + "HOME=/\n0 0 * * * x\n"
    ran = await cli.ok("import", "crontab", "-", "--timezone", "UTC", given=crontab)
    path = Path(written(tmp_path / "schedules.yaml", ran.stdout))
    documents: list[Any] = [read_document(path).value, yaml.safe_load(ran.stdout)]
    for document in documents:
        environment = document["schedules"][0]["job"]["shell"]["env"]
        assert [environment[f"A{number}"] for number in range(len(texts))] == texts
