from __future__ import annotations

import json
from typing import Any

from raftsched.cli.converters.kubernetes import read_cronjobs
from raftsched.cli.converters.report import Report
from tests.cli.converters.reports import found, only, schedules
from tests.for_each import for_each

MANIFEST = """\
apiVersion: batch/v1
kind: CronJob
metadata:
  name: report
  namespace: shop
  labels: {app: report, a/b: c}
spec:
  schedule: "30 2 */2 * 1"
  timeZone: Europe/Berlin
  concurrencyPolicy: Replace
  startingDeadlineSeconds: 200
  successfulJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 2
      activeDeadlineSeconds: 600
      ttlSecondsAfterFinished: 3600
      template:
        spec:
          activeDeadlineSeconds: 60
          restartPolicy: OnFailure
          containers:
            - name: report
              image: shop:1
              command: [/bin/sh, -c, 'echo $(WHO) $$(WHO) $(OTHER)']
              args: [a]
              workingDir: /srv
              env:
                - {name: WHO, value: you}
                - {name: GREETING, value: hello $(WHO)}
                - name: PASSWORD
                  valueFrom: {secretKeyRef: {name: db, key: password}}
"""
SECRET = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "db", "key": "a"}}}


def cronjob(spec: dict[str, Any], **changes: Any) -> str:
    container = {"image": "i", "command": ["x"]}
    pod = changes.pop("pod", {"containers": [container | changes.pop("container", {})]})
    job = {"backoffLimit": 0, "template": {"spec": pod}} | changes
    default = {"schedule": "0 * * * *", "jobTemplate": {"spec": job}}
    return json.dumps({"kind": "CronJob", "metadata": {"name": "x"}, "spec": default | spec})


def read(text: str, *, timezone: str | None = "UTC") -> Report:
    return read_cronjobs(text, file="cron.yaml", timezone=timezone)


def test_cronjob_is_a_schedule_of_its_command() -> None:
    report = read(MANIFEST)
    assert only(report) == {
        "name": "shop.report",
        "cron": "30 2 1-31/2 * 1",
        "timezone": "Europe/Berlin",
        "dst_gap": "skip",
        "dst_overlap": "both",
        "overlap": "cancel_previous",
        "misfire": "run_once",
        "catchup_window_seconds": 200,
        "labels": {"app": "report"},
        "job": {
            "shell": {
                "argv": ["/bin/sh", "-c", "echo you $(WHO) $(OTHER)", "a"],
                "env": {"WHO": "you", "GREETING": "hello you"},
                "cwd": "/srv",
            },
            "max_attempts": 3,
            "timeout_seconds": 60,
            "deadline_in_seconds": 600,
            "retention_seconds": 3600,
            "retry_policy": {
                "backoff": "exponential",
                "base_seconds": 10,
                "factor": 2,
                "cap_seconds": 360,
                "jitter": 0,
            },
        },
    }
    assert found(report, "not kept") == [
        "6: label a/b",
        "31: variable PASSWORD: its value is not in the file",
        "24: image shop:1: the command runs where its shell worker runs",
        "12: spec.successfulJobsHistoryLimit",
    ]


@for_each(
    ("policy", "overlap"),
    [({}, "allow"), ({"concurrencyPolicy": "Allow"}, "allow"), ({"concurrencyPolicy": "Forbid"}, "skip")],
)
def test_concurrency_policy_is_the_overlap(policy: dict[str, Any], overlap: str) -> None:
    assert only(read(cronjob(policy)))["overlap"] == overlap


def test_defaults_are_those_of_kubernetes() -> None:
    schedule = only(read(cronjob({}, backoffLimit=None)))
    assert schedule["job"]["max_attempts"] == 7
    assert schedule["catchup_window_seconds"] == 316_224_000
    assert only(read(cronjob({})))["job"]["start"] == "at_most_once"


def test_suspended_cronjob_is_paused() -> None:
    assert only(read(cronjob({"suspend": True})))["pause_until"] == "9999-01-01T00:00:00Z"


@for_each(
    ("schedule", "expected"),
    [
        ("@every 1h30m", {"every": "1h30m"}),
        ("@daily", {"cron": "0 0 * * *", "timezone": "UTC"}),
        ("CRON_TZ=Asia/Tokyo 5/15 * ? * *", {"cron": "5/15 * ? * *", "timezone": "Asia/Tokyo"}),
        ("TZ=UTC 0 0 10,*/1 * 2", {"cron": "0 0 * * 2", "timezone": "UTC"}),
    ],
)
def test_schedule_is_read_as_kubernetes_reads_it(schedule: str, expected: dict[str, str]) -> None:
    assert expected.items() <= only(read(cronjob({"schedule": schedule}))).items()


@for_each(
    ("text", "reason"),
    [
        (cronjob({"schedule": "0 0 * * 7"}), "day of week '7' is out of range"),
        (cronjob({"schedule": "0 0 0 * * *"}), "has 6 fields in place of 5"),
        (cronjob({"schedule": "@reboot"}), "'@reboot' is not known"),
        (cronjob({"schedule": "@every soon"}), "not a duration of Go"),
        (cronjob({"schedule": ""}), "has 0 fields"),
        (cronjob({"schedule": "TZ=UTC * * * * *", "timeZone": "UTC"}), "both timeZone and the schedule"),
        (cronjob({"timeZone": "Mars"}), "'Mars' is not a time zone"),
        (cronjob({"concurrencyPolicy": "Perhaps"}), "'Perhaps' is not known"),
        (cronjob({"suspend": "yes"}), "spec.suspend: must be true or false"),
        (cronjob({}, parallelism=2), "parallelism"),
        (cronjob({}, backoffLimit="1"), "backoffLimit: must be a whole number"),
        (cronjob({}, container={"command": []}), "what runs is in the image"),
        (cronjob({}, container={"workingDir": "x"}), "must be an absolute path"),
        (cronjob({}, container={"command": ["x", "$(A)"], "env": [SECRET]}), "its command needs $(A)"),
        (cronjob({}, container={"env": [SECRET, {"name": "B", "value": "$(A)"}]}), "its command needs $(A)"),
        (cronjob({}, container={"command": ["$(A)"], "envFrom": [{"secretRef": {}}]}), "its command needs $(A)"),
        (cronjob({}, pod={"containers": []}), "exactly one container"),
        (cronjob({}, pod={"containers": [{}], "initContainers": [{}]}), "exactly one container"),
    ],
)
def test_cronjob_without_a_counterpart_is_left_out(text: str, reason: str) -> None:
    report = read(text)
    assert not report.entries
    assert reason in " ".join(found(report, "left out"))


def test_manifests_and_lists_hold_several_objects() -> None:
    items = {"kind": "List", "items": [json.loads(cronjob({})), json.loads(cronjob({}))]}
    report = read(f"{MANIFEST}---\nkind: ConfigMap\n---\n{json.dumps(items)}", timezone=None)
    assert list(schedules(report)) == ["shop.report", "x", "x-2"]
    assert "34: ConfigMap is not a CronJob" in found(report, "note")
    assert "read in UTC" in " ".join(found(report, "note"))
