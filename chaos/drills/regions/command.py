"""`python -m chaos drills regions`: five nodes in five regions, judged and measured.

Rounds: one of calm with a leader in each region asked for, one with as much load as can be, then regions are cut off.
0: no violation. 1: a violation, or an election that nobody needed. 2: nothing could be run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import shutil
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chaos.drills.backends import Unfit
from chaos.drills.backends.bad_links import can_be_bad
from chaos.drills.backends.namespaces import enter
from chaos.drills.backends.namespaces_backend import Namespaces
from chaos.drills.drill import Plan, run
from chaos.drills.regions import faults
from chaos.drills.regions.table import found_faults, summary
from chaos.drills.regions.world import NODES, REGIONS, USERS, usual_links
from chaos.drills.report.figures import figures_of, write_figures
from chaos.drills.report.table import closing_lines, report_text
from chaos.drills.report.timeline import timeline

CONFIGURATION: Final = Path(__file__).parents[3] / "configs" / "five-regions.toml"
_TIMING: Final = ("heartbeat_seconds", "election_seconds_min", "election_seconds_max")
_FAILED, _NOTHING_RUN = 1, 2


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    asked = _parser().parse_args(arguments)
    if not can_be_bad():
        print("nothing was run: it needs /dev/net/tun")
        return _NOTHING_RUN
    try:
        enter("chaos", ["drills", "regions", *arguments])
        return _run(asked)
    except (Unfit, TimeoutError) as error:
        print(f"not all was run: {error}")
        return _NOTHING_RUN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m chaos drills regions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="of calm for each leader; default: 2")
    parser.add_argument("--cuts", type=int, default=2, help="of a follower's region, and of the leader's; default: 2")
    parser.add_argument(
        "--leaders", type=_regions, default="Virginia", help="regions that lead in calm, with commas between"
    )
    parser.add_argument(
        "--timing",
        type=_timing,
        default=",".join(_configured()),
        help="HEARTBEAT,ELECTION_MIN,ELECTION_MAX in seconds; default: those of configs/five-regions.toml",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("regions-report"), help="replaced; default: regions-report/")
    return parser


def _configured() -> list[str]:
    settings = tomllib.loads(CONFIGURATION.read_text(encoding="utf-8"))
    return [str(settings[name]) for name in _TIMING]


def _timing(text: str) -> str:
    """Return the lines of a configuration."""
    values = [float(each) for each in text.split(",")]
    return "".join(f"{name} = {value}\n" for name, value in zip(_TIMING, values, strict=True))


def _regions(text: str) -> list[int]:
    return [REGIONS.index(name) for name in text.split(",")]


def _run(asked: argparse.Namespace) -> int:
    out = asked.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    backend, notes = Namespaces(NODES, USERS, usual_links()), faults.Notes()
    plan = Plan(
        faults=[
            *(faults.calm(asked.minutes * 60, leader, notes) for leader in asked.leaders),
            faults.flat_out(notes),
            *[faults.cut_region()] * asked.cuts,
            *[faults.cut_leader_region()] * asked.cuts,
        ],
        node_count=len(NODES),
        seed=asked.seed,
        out=out,
        configuration=asked.timing,
        hosts=[backend.host(user) for user in USERS],
    )
    print(f"{_machine()}\n{asked.timing}", flush=True)
    began = time.monotonic()
    result = asyncio.run(run(plan, backend, lambda line: print(line, flush=True)))
    result.faults += found_faults(result, notes)
    table = f"Measured on {_machine()}.\n\n{summary(result)}"
    (out / "timeline.svg").write_text(timeline(result, [f"n{number}" for number in NODES]))
    figures = figures_of(result, plan, backend.name, {}, is_bound=False)
    write_figures(figures, out)
    (out / "report.md").write_text(f"{report_text(result, plan, backend, figures)}\n## Regions\n\n{table}\n")
    print(f"{table}\n{closing_lines([figures])}\nin {time.monotonic() - began:.0f} s; report: {out}")
    return _FAILED if result.violations else 0


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return (
        f"one machine for all nodes, users and links: {os.cpu_count()} cores ({platform.machine()}), {memory} GiB, "
        f"Linux {platform.release()}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )
