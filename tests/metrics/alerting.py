"""Evaluate the alerts that ship with raftsched over scrapes of real nodes, by Prometheus' own engine.

`promtool test rules` takes series with a made-up time. So a fault that lasts for an hour needs two scrapes: what a node
answered is held until the next one.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import yaml

from tests.metrics.scene import scraped

RULES: Final = Path(__file__).parents[2] / "configs/prometheus"
ALERTS: Final[Mapping[str, Mapping[str, Any]]] = {
    rule["alert"]: rule
    for group in yaml.safe_load((RULES / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}
_Series = dict[str, float]


def promtool(*arguments: str, text: str | None = None) -> str:
    """Run promtool and return its output; fails the test if it finds a fault, or is not installed."""
    try:
        done = subprocess.run(
            ["promtool", *arguments], input=text, capture_output=True, text=True, timeout=60, check=False
        )
    except FileNotFoundError:
        raise AssertionError("promtool is missing: apt-get install prometheus") from None
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


class Timeline:
    """Scrapes of the nodes of a cluster, each at a minute of the made-up time, which begins at zero."""

    def __init__(self, *, step_seconds: int = 15) -> None:
        self._step_seconds = step_seconds
        self._scrapes: list[tuple[float, _Series]] = []

    def add(self, minute: float, texts: Mapping[str, str | None]) -> None:
        """Add what each node answered; None = nothing. Minutes rise."""
        series: _Series = {}
        for instance, text in texts.items():
            target = f'job="raftsched",instance="{instance}"'
            series[f"up{{{target}}}"] = float(text is not None)
            for name, value in scraped(text or "").items():
                metric, _, labels = name.removesuffix("}").partition("{")
                moved = 60 * minute - time.time() if metric.endswith("_timestamp_seconds") else 0.0
                series[f"{metric}{{{','.join(filter(None, (labels, target)))}}}"] = value + moved
        self._scrapes.append((minute, series))

    def check(self, alert: str, directory: Path, *, silent_at: float, firing_at: float) -> None:
        """Fail unless the alert is silent at one minute, and fires at the other."""
        read = {*re.findall(r"raftsched_\w+|\bup\b", ALERTS[alert]["expr"])}
        names = sorted({name for _, series in self._scrapes for name in series if name.partition("{")[0] in read})
        assert names, f"nothing that {alert} reads was exported"
        fires = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
        tests = [
            {"expr": f"count({fires}) > bool 0", "eval_time": _time(firing_at), "exp_samples": [{"value": 1}]},
            {"expr": f"count({fires})", "eval_time": _time(silent_at), "exp_samples": []},
        ]
        steps = round(max(silent_at, firing_at) * 60 / self._step_seconds) + 1
        document = {
            "rule_files": [str(RULES / "alerts.yml")],
            "evaluation_interval": f"{self._step_seconds}s",
            "tests": [
                {
                    "interval": f"{self._step_seconds}s",
                    "input_series": [{"series": name, "values": self._values(name, steps)} for name in names],
                    "promql_expr_test": tests,
                }
            ],
        }
        path = directory / f"{alert}.yml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        promtool("test", "rules", str(path))

    def _values(self, name: str, steps: int) -> str:
        """Return the values of a series in promtool's notation; it is stale once a scrape does not have it."""
        points = [self._at(step * self._step_seconds / 60).get(name) for step in range(steps)]
        runs = [(value, len(list(run))) for value, run in groupby(points)]
        words = []
        for number, (value, count) in enumerate(runs):
            if value is not None:
                words.append(f"{value:f}+0x{count - 1}")
            else:
                words += ["stale"] * (number > 0) + [f"_x{count - (number > 0)}"] * (count > (number > 0))
        return " ".join(words)

    def _at(self, minute: float) -> _Series:
        """Return the scrape in force at a minute."""
        return next((series for at, series in reversed(self._scrapes) if at <= minute), {})


def _time(minute: float) -> str:
    return f"{round(minute * 60)}s"
