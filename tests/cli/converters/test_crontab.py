from __future__ import annotations

from typing import Any

from raftsched.cli.converters.crontab import read_crontab
from raftsched.cli.converters.report import Report
from tests.cli.converters.reports import found, only, schedules
from tests.for_each import for_each


def read(text: str, *, file: str = "crontab", timezone: str | None = "Europe/Berlin", system: bool = False) -> Report:
    return read_crontab(text, file=file, timezone=timezone, system=system)


def shell(text: str, *, system: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = only(read(text, system=system))["job"]["shell"]
    return found


def test_entry_is_a_command_that_runs_as_cron_runs_it() -> None:
    assert only(read("30 2 * * mon-fri  /usr/bin/pg_dump shop > /srv/shop.dump # nightly\n")) == {
        "name": "crontab-pg_dump",
        "cron": "30 2 * * mon-fri",
        "timezone": "Europe/Berlin",
        "overlap": "allow",
        "misfire": "skip",
        "job": {
            "shell": {
                "argv": ["/bin/sh", "-c", "/usr/bin/pg_dump shop > /srv/shop.dump # nightly"],
                "env": {"PATH": "/usr/bin:/bin"},
            },
            "max_attempts": 1,
            "start": "at_most_once",
        },
    }


@for_each(
    ("written", "command", "stdin"),
    [
        ("date", "date", None),
        (r"date +\%F", "date +%F", None),
        ("cat%one%two", "cat", "one\ntwo\n"),
        ("cat%one%", "cat", "one\n"),
        ("cat%", "cat", None),
        ("cat%%", "cat", "\n"),
        (r"cat \% x%50\% off", "cat % x", "50% off\n"),
        (r"printf '\n\\'", r"printf '\n\\'", None),
        (r"printf \\%in", r"printf \\", "in\n"),
        (r"cat%a\\%b", "cat", "a\\%b\n"),
        ("echo {{run_id}}%{{run_id}}", "echo {{run_id}}", "{{{{run_id}}\n"),  # no fact of a run is filled in
        ("echo a=b", "echo a=b", None),
        ("A=1 B='x y' run", "A=1 B='x y' run", None),
    ],
)
def test_percent_sign_begins_the_input(written: str, command: str, stdin: str | None) -> None:
    found = shell(f"* * * * * {written}")
    assert (found["argv"][2], found.get("stdin")) == (command, stdin)


@for_each(
    ("line", "name", "value"),
    [
        ("A=b", "A", "b"),
        ("A = b ", "A", "b"),
        ("A= b c # d", "A", "b c # d"),
        ("A='b c '", "A", "b c "),
        ('"A"="b"', "A", "b"),
        ("  A=$B", "A", "$B"),
        ("A=", "A", ""),
        ('A=""', "A", ""),
        ("TZ=Asia/Tokyo", "TZ", "Asia/Tokyo"),
        ("PATH=/opt/bin", "PATH", "/opt/bin"),
    ],
)
def test_environment_line_is_kept(line: str, name: str, value: str) -> None:
    assert shell(f"{line}\n* * * * * job")["env"][name] == value


def test_environment_lines_hold_for_the_entries_below_them() -> None:
    text = "* * * * * a\nSHELL=/bin/bash\nHOME=/srv\nCRON_TZ=Asia/Tokyo\nTZ=UTC\n@daily b\nHOME=/tmp\n0 0 1 * * c"
    first, second, third = schedules(read(text)).values()
    assert (first["timezone"], first["job"]["shell"]["argv"][0]) == ("Europe/Berlin", "/bin/sh")
    assert (second["timezone"], second["cron"]) == ("Asia/Tokyo", "@daily")
    assert second["job"]["shell"]["argv"] == ["/bin/bash", "-c", "b"]
    assert (second["job"]["shell"]["cwd"], third["job"]["shell"]["cwd"]) == ("/srv", "/tmp")


def test_user_of_a_system_crontab_is_a_queue_of_its_own() -> None:
    report = read("17 *\t* * *\troot    cd / && run-parts\n@daily www-data x", file="/etc/crontab", system=True)
    first, second = schedules(report).values()
    assert first["job"]["queue"] == "shell-root"
    assert first["job"]["shell"]["argv"][2] == "cd / && run-parts"
    assert first["job"]["shell"]["env"]["LOGNAME"] == "root"
    assert second["job"]["queue"] == "shell-www-data"
    assert "start a shell worker for the queue shell-www-data" in " ".join(found(report, "note"))


def test_minutes_that_begin_with_a_star_follow_the_clock_as_in_cron() -> None:
    assert {"dst_gap": "skip", "dst_overlap": "both"}.items() <= only(read("*/10 2 * * * x")).items()
    assert "dst_gap" not in only(read("*/10 2 * * * x", timezone="UTC"))
    assert "dst_gap" not in only(read("10 2 * * * x"))


@for_each(
    ("line", "reason"),
    [
        ("@reboot x", "@reboot runs at the start of a machine"),
        ("@Daily x", "@Daily is not known to cron"),
        ("@fortnightly x", "is not known to cron"),
        ("* * * * *", "not an entry"),
        ("* * * * x", "not an entry"),
        ("nonsense", "not an entry"),
        ('A="b" c', "not an entry"),
        ("60 * * * * x", "minute '60' is out of range"),
        ("* 24 * * * x", "hour '24' is out of range"),
        ("* * 0 * * x", "day of month '0' is out of range"),
        ("* * * 13 * x", "month '13' is out of range"),
        ("* * * * 8 x", "day of week '8' is out of range"),
        ("* * * * monday x", "day of week 'monday' is out of range"),
        ("* 22-3 * * * x", "runs over the end"),
        ("* * * * fri-sun x", "runs over the end"),
        ("5/15 * * * * x", "write 5-59/15"),
        ("*/90 * * * * x", "a step here is 1 to 60"),
        ("*/0 * * * * x", "a step here is 1 to 60"),
        ("0~59 * * * * x", "each cron draws other values"),
        ("* * L * * x", "day of month 'L' is out of range"),
        ("* * * * 5#2 x", "not known to cron"),
        ("* * ? * * x", "not known to cron"),
        ("1,,2 * * * * x", "not known to cron"),
        ("0 0 30 2 * x", "would never run"),
        ("0 0 * * * root x", "give --system"),
        ("0 0 * * * %only input", "there is no command"),
    ],
)
def test_line_that_cron_rejects_or_crons_read_differently_is_left_out(line: str, reason: str) -> None:
    report = read(f"# first\n{line}\n* * * * * fine")
    assert [entry.line for entry in report.entries] == [3]
    (finding,) = found(report, "left out")
    assert finding.startswith("2: ")
    assert reason in finding


@for_each(
    ("text", "system", "reason"),
    [
        ("CRON_TZ=Mars/Base\n* * * * * x", False, "'Mars/Base' is not a time zone"),
        ("HOME=relative\n* * * * * x", False, "job.shell.cwd: must be an absolute path"),
        ("A B=c\n* * * * * x", False, "not an entry"),
        ("RANDOM_DELAY=some\n* * * * * x", False, "RANDOM_DELAY='some' is not a number"),
        ("RAFTSCHED_X=1\n* * * * * x", False, "RAFTSCHED_X is set by the executor"),
        ("* * * * * /bin/x -y", True, "no name of a user"),
        ("* * * * * root", True, "no name of a user"),
    ],
)
def test_entry_that_depends_on_something_invalid_is_left_out(text: str, system: bool, reason: str) -> None:
    assert reason in " ".join(found(read(text, system=system), "left out"))


def test_system_crontab_without_its_option_is_left_out() -> None:
    report = read("0 5 * * * backup /srv/backup", file="/etc/cron.d/backup")
    assert not report.entries
    assert "give --system" in found(report, "left out")[0]


def test_settings_that_are_lost_are_reported() -> None:
    report = read('MAILTO=ops@example.org\nMAILTO=""\nRANDOM_DELAY=5\n-0 5 * * * x')
    assert [text[:10] for text in found(report, "not kept")] == ["1: MAILTO=", "4: `-` in "]
    assert "MAILTO" not in only(report)["job"]["shell"]["env"]
    assert only(report)["jitter_seconds"] == 300


def test_facts_that_a_crontab_does_not_say_are_notes() -> None:
    notes = " ".join(found(read("0 5 * * * x", timezone=None), "note"))
    assert "read in UTC; --timezone" in notes
    assert "in the HOME of their user" in notes
    assert not found(read("HOME=/srv\nCRON_TZ=UTC\n0 5 * * * x", timezone=None), "note")


def test_names_are_valid_and_each_once() -> None:
    text = "* * * * * A=1 /opt/my_tool --password x\n* * * * * my_tool\n* * * * * 'odd name'\n* * * * * (cd /x; y)"
    assert list(schedules(read(text, file="/etc/nightly jobs"))) == [
        "nightly-jobs-my_tool",
        "nightly-jobs-my_tool-2",
        "nightly-jobs-odd",
        "nightly-jobs-cd",
    ]
