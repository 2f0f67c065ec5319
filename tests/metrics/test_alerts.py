"""The files for Prometheus and Grafana, and the pages of the runbook."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import yaml

from raftsched.cli.main import main
from raftsched.metrics.catalog import METRICS, Kind
from tests.metrics.alerting import ALERTS, RULES, promtool

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs/runbook"
SERIES = {metric.name for metric in METRICS if metric.kind is not Kind.HISTOGRAM} | {
    f"{metric.name}_{end}" for metric in METRICS if metric.kind is Kind.HISTOGRAM for end in ("bucket", "count", "sum")
}


def test_rules_and_settings_pass_promtool() -> None:
    promtool("check", "rules", str(RULES / "alerts.yml"), str(RULES / "recording.yml"))
    promtool("check", "config", "--syntax-only", str(RULES / "prometheus.yml"))
    promtool("test", "rules", str(Path(__file__).with_name("recording_test.yml")))


def test_rules_and_dashboard_read_only_metrics_that_exist_and_the_dashboard_reads_all() -> None:
    board = json.loads((ROOT / "configs/grafana/raftsched.json").read_text(encoding="utf-8"))
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    variables = [each["definition"] for each in board["templating"]["list"] if each["type"] == "query"]
    rules = [
        rule["expr"]
        for name in ("alerts", "recording")
        for group in yaml.safe_load((RULES / f"{name}.yml").read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
    ]
    named = {name for text in (*queries, *variables, *rules) for name in re.findall(r"\braftsched_\w+", text)}
    assert named - SERIES == set()
    shown = {
        re.sub("_(bucket|count|sum)$", "", name) for text in queries for name in re.findall(r"raftsched_\w+", text)
    }
    assert {metric.name for metric in METRICS} - shown == set()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_queries_of_the_dashboard_are_promql(tmp_path: Path) -> None:
    board = json.loads((ROOT / "configs/grafana/raftsched.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    plain = [each.replace("$__rate_interval", "1m").replace("$", "") for each in queries]
    rules = [{"record": f"dashboard:query:{number}", "expr": each} for number, each in enumerate(plain)]
    path = tmp_path / "dashboard.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    promtool("check", "rules", str(path))


def test_each_alert_has_a_page_in_the_runbook_that_names_real_commands_and_a_test() -> None:
    pages = {ROOT / rule["annotations"]["runbook_url"]: alert for alert, rule in ALERTS.items()}
    assert set(pages) - set(PAGES.glob("*.md")) == set()
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_alerts.py"))
    navigation = (ROOT / "configs/mkdocs.yml").read_text(encoding="utf-8")
    for page, alert in pages.items():
        text = page.read_text(encoding="utf-8")
        assert re.findall(r"^#+ (.*)$", text, re.MULTILINE) == [alert, "Meaning", "Cause", "Check", "Cure"]
        assert f"runbook/{page.name}" in navigation
        assert f'"{alert}"' in tests
        for command in re.findall(r"`raftsched ([^`]+)`", text):
            assert unknown_words(command) == [], f"{page.name}: raftsched {command}"
        assert set(re.findall(r"\braftsched_\w+", text)) <= {metric.name for metric in METRICS}


def unknown_words(line: str) -> list[str]:
    """Return the subcommands and options of a command line that do not exist."""
    command: click.Command = main
    words = line.split()
    while words and isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return words[:1]
        command, words = found, words[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    return [word for word in words if word.startswith("--") and word not in known]
