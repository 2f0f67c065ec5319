from __future__ import annotations

from typing import Any

import pytest

from raftsched.cli.converters.exec_line import read_exec_line
from raftsched.cli.converters.report import Report
from raftsched.cli.converters.systemd import read_timer
from raftsched.cli.converters.unit_file import Setting, UnitFile, read_unit, span_seconds
from raftsched.errors import Invalid
from tests.cli.converters.reports import found, only, schedules
from tests.for_each import for_each

SERVICE = "[Service]\nExecStart=/usr/bin/job\n"
TIMER = "[Timer]\nOnCalendar=daily\n"


def read(timer: str, service: str | None = SERVICE, *, name: str = "job", timezone: str | None = "UTC") -> Report:
    def find_unit(unit: str) -> UnitFile | None:
        return read_unit(service, file=unit) if service is not None and unit == f"{name}.service" else None

    return read_timer(timer, file=f"{name}.timer", timezone=timezone, find_unit=find_unit)


def job(service: str, **named: Any) -> dict[str, Any]:
    found: dict[str, Any] = only(read(TIMER, service, **named))["job"]
    return found


def test_timer_and_its_service_are_a_schedule() -> None:
    timer = """
        [Unit]
        Description=Nightly
        [Timer]
        OnCalendar=Mon..Fri *-*-* 02:30
        Persistent=true
        RandomizedDelaySec=5min
        AccuracySec=1s
        [Install]
        WantedBy=timers.target
    """
    service = """
        [Service]
        Type=oneshot
        User=backup
        WorkingDirectory=/srv
        Environment="TARGET=/srv/back up" LEVEL=9 'FLAGS=-a  -b'
        # a comment
        ExecStart=/usr/bin/pg_dump --file=${TARGET}/%p.dump \\
            # within
            --compress $LEVEL $FLAGS "a b" 100%% $$HOME
        TimeoutStartSec=1h 30min
        SuccessExitStatus=3
        Nice=5
    """
    assert only(read(timer, service, timezone="Europe/Berlin")) == {
        "name": "job",
        "cron": "30 2 * * 1-5",
        "timezone": "Europe/Berlin",
        "dst_gap": "skip",
        "overlap": "skip",
        "misfire": "run_once",
        "catchup_window_seconds": 316_224_000,
        "jitter_seconds": 300,
        "description": "Nightly",
        "job": {
            "shell": {
                "argv": [
                    *("/usr/bin/pg_dump", "--file=/srv/back up/job.dump", "--compress", "9", "-a", "-b", "a b", "100%"),
                    "$HOME",
                ],
                "env": {
                    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    "TARGET": "/srv/back up",
                    "LEVEL": "9",
                    "FLAGS": "-a  -b",
                },
                "cwd": "/srv",
                "nice": 5,
                "success_exit_codes": [0, 3],
            },
            "max_attempts": 1,
            "start": "at_most_once",
            "queue": "shell-backup",
            "timeout_seconds": 5_400,
        },
    }


def test_timer_without_persistent_makes_up_for_nothing() -> None:
    assert only(read(TIMER))["misfire"] == "skip"


@for_each(
    ("timer", "every"),
    [
        ("OnBootSec=5min\nOnUnitActiveSec=1h", "1h"),
        ("OnActiveSec=0\nOnUnitActiveSec=90", "1m30s"),
        ("OnUnitActiveSec=1h 30min 5s", "1h30m5s"),
        ("OnUnitActiveSec=1week", "168h"),
    ],
)
def test_timer_that_counts_from_the_last_start_is_a_fixed_interval(timer: str, every: str) -> None:
    assert only(read(f"[Timer]\n{timer}"))["every"] == every


@for_each(
    ("timer", "reason"),
    [
        ("OnBootSec=5min", "once after a start"),
        ("OnUnitInactiveSec=5min", "from the end of a run"),
        ("OnUnitActiveSec=5min\nOnUnitActiveSec=", "neither OnCalendar"),
        ("OnUnitActiveSec=infinity", "infinity is no interval"),
        ("OnUnitActiveSec=5 parsecs", "not a span of time"),
        ("OnUnitActiveSec=10ms", "out of range"),
        ("OnCalendar=someday", "not a calendar event of systemd"),
        ("OnCalendar=*-*~3", "months of different length"),
        ("OnCalendar=2027,2029-1-1", "its years have gaps"),
        ("OnCalendar=1:2:3.5", "fraction of a second"),
        ("OnCalendar=daily\nUnit=other.service", "other.service is not beside it"),
        ("OnCalendar=daily\nUnit=some.target", "not a service"),
        ("OnCalendar=daily\nRandomizedDelaySec=2days", "jitter_seconds"),
        ("OnCalendar=daily\nPersistent=perhaps", "neither true nor false"),
        ("no assignment", "neither [Section] nor"),
    ],
)
def test_timer_without_a_counterpart_is_left_out(timer: str, reason: str) -> None:
    report = read(f"[Timer]\n{timer}")
    assert not report.entries
    assert reason in " ".join(found(report, "left out"))


@for_each(
    ("service", "reason"),
    [
        ("Type=forking\nExecStart=/x", "Type=forking"),
        ("ExecStart=", "has no ExecStart"),
        ("ExecStart=/a\nExecStart=/b", "several ExecStart"),
        ("ExecStart=/a\nExecStartPre=/b", "job.service:3: ExecStartPre has no counterpart"),
        ("ExecStart=/a $MISSING", "job.service:2: the command needs $MISSING"),
        ("ExecStart=/a ${MISSING}x", "the command needs $MISSING"),
        ("Environment=A=1\nEnvironmentFile=/x\nExecStart=/a $A", "the command needs $A"),
        ("ExecStart=/a ; /b", "`;` joins several commands"),
        ("ExecStart=@/a b", "another name"),
        ("ExecStart=/a %h", "%h depends on the machine"),
        ("ExecStart=/a 'b", "a quote ' is not closed"),
        (r"ExecStart=/a \q", r"the escape \q is not known"),
        ("ExecStart=/a\nWorkingDirectory=~", "WorkingDirectory=~ depends"),
        ("ExecStart=/a\nNice=-5", "can only lower"),
        ("ExecStart=/a\nSuccessExitStatus=SIGTERM", "SIGTERM is not a number"),
        ("ExecStart=/a\nEnvironment=A", "'A' is not NAME=value"),
    ],
)
def test_service_whose_command_would_be_another_is_left_out(service: str, reason: str) -> None:
    assert reason in " ".join(found(read(TIMER, f"[Service]\n{service}"), "left out"))


@for_each(
    ("line", "words"),
    [
        ("/a b  c", ["/a", "b", "c"]),
        ("""/a "b c" 'd "e"' f"g h"i""", ["/a", "b c", 'd "e"', "fg hi"]),
        (r"/a b\x41\s\t\"\101\u00e9", ["/a", 'bA \t"A\xe9']),
        (r"""/a "b\"c" 'd\'e'""", ["/a", 'b"c', "d'e"]),
        ("/a $V ${V} x${V}y $$V a$V", ["/a", "1", "2", "1 2", "x1 2y", "$V", "a$V"]),
        ("/a '' \"\"", ["/a", "", ""]),
        (":/a $V", ["/a", "$V"]),
    ],
)
def test_command_line_is_read_as_systemd_reads_it(line: str, words: list[str]) -> None:
    assert read_exec_line(line, {"V": "1 2"}).words == words


def test_several_commands_of_a_oneshot_service_stop_at_the_first_failure() -> None:
    service = "[Service]\nType=oneshot\nExecStart=/a 'b c'\nExecStart=/d"
    assert job(service)["shell"]["argv"] == ["/bin/sh", "-c", "/a 'b c' && /d"]


def test_instance_of_a_template_has_its_name() -> None:
    shell = job("[Service]\nExecStart=/x %i %p %n %N\n", name="dump@shop")["shell"]
    assert shell["argv"] == ["/x", "shop", "dump", "dump@shop.service", "dump@shop"]
    assert "is a template" in found(read(TIMER, name="dump@"), "left out")[0]


def test_several_times_are_several_schedules_that_never_run_at_once() -> None:
    report = read("[Timer]\nOnCalendar=Fri *-*-13\nOnCalendar=*-05~03\nOnCalendar=2028..2029-1-1")
    friday, late, years = schedules(report).values()
    assert (friday["name"], late["name"]) == ("job", "job-2")
    assert friday["cron"] == "0 0 13 * *"
    assert "fri" not in friday["calendar"]["blackouts"][0]["weekdays"]
    assert len(friday["calendar"]["blackouts"][0]["weekdays"]) == 6
    assert late["cron"] == "0 0 29 5 *"
    assert (years["start_at"], years["end_at"]) == ("2028-01-01T00:00:00Z", "2029-12-31T23:59:59Z")
    assert {each["job"]["concurrency_key"] for each in (friday, late, years)} == {"job"}


@for_each(
    ("event", "cron"),
    [
        ("Sat *-*-1..7 18:00", "0 18 * * 6#1"),
        ("Mon,Tue *-*-8..14", "0 0 * * 1#2,2#2"),
        ("Mon *-05~07/1", "0 0 * 5 L1"),
        ("*-*~1 12:00", "0 12 L * *"),
        ("Mon *-*-1/2", "0 0 */2 * 1"),
        ("*:0/15", "*/15 * * * *"),
        ("*-*-* *:*:0/10", "*/10 * * * * *"),
        ("10..14/2:00", "0 10-14/2 * * *"),
    ],
)
def test_calendar_event_is_written_as_people_write_expressions(event: str, cron: str) -> None:
    fields = only(read(f"[Timer]\nOnCalendar={event}"))
    assert (fields["cron"], fields.get("calendar")) == (cron, None)


def test_settings_that_are_lost_are_reported_with_their_line() -> None:
    service = (
        "[Unit]\nAfter=network.target\n[Service]\nExecStart=-/x\nEnvironmentFile=/etc/x\nRestart=no\nPrivateTmp=yes"
    )
    report = read(f"{TIMER}WakeSystem=yes", service)
    assert sorted(found(report, "not kept")) == [
        "2: After=network.target",
        "3: WakeSystem=yes",
        "4: `-`: its failure counts",
        "5: EnvironmentFile=/etc/x",
        "7: PrivateTmp=yes",
    ]


def test_spans_of_time_have_all_units() -> None:
    def seconds(text: str) -> float | None:
        return span_seconds(Setting("Timer", "OnBootSec", text, 1))

    assert seconds("1y 1month 1w 1d 1h 1min 1s 1ms") == 31_557_600 + 2_629_800 + 604_800 + 86_400 + 3_661.001
    assert (seconds("2.5 hours"), seconds("infinity"), seconds("1M")) == (9_000, None, 2_629_800)
    for wrong in ("", "h", "5 x", "1h -3min"):
        with pytest.raises(Invalid):
            seconds(wrong)
