"""`python -m chaos drills`: choose faults and a backend, run, tell, and end with an exit code.

0: no violation. 1: a violation. 2: nothing could be run, or what was asked for is not there.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

from chaos.drills.backends import Backend, Need, Unfit
from chaos.drills.backends.loop_disk import lacking
from chaos.drills.backends.namespaces import can_enter, enter
from chaos.drills.backends.namespaces_backend import Namespaces
from chaos.drills.backends.proxies import Proxies
from chaos.drills.backends.root_backend import Root, RootXfs
from chaos.drills.drill import Plan, Result, run
from chaos.drills.faults import FAULTS, Fault, chosen, drawn
from chaos.drills.planted import PLANTED, find
from chaos.drills.regions.command import main as regions
from chaos.drills.report.table import closing_table, report_text
from chaos.drills.report.timeline import timeline
from chaos.drills.shims import compiler

AnyBackend = Namespaces | Proxies
_BACKENDS: Final[dict[str, type[AnyBackend]]] = {kind.name: kind for kind in (Namespaces, Proxies, Root, RootXfs)}
_ROUND_SECONDS: Final = 15.0
_ROUNDS_MAX: Final = 20
"""Rounds of one cluster: then the next ones begin with a new one, since the log must be whole when it is read back."""
_FAILED, _NOTHING_RUN = 1, 2
REGIONS: Final = "regions"
"""In place of faults: `chaos.drills.regions.command`."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    if arguments[:1] == [REGIONS]:
        return regions(arguments[1:])
    asked = _parser().parse_args(arguments)
    kind = _chosen_backend(asked.backend)
    offers = _offers(kind)
    if asked.list:
        print(_listed(kind, offers, asked.nodes))
        return 0
    try:
        wanted = chosen(asked.faults) if asked.faults else list(FAULTS.values())
    except ValueError as error:
        print(error)
        return _NOTHING_RUN
    skipped = {fault.name: why for fault in wanted if (why := _why_not(fault, offers, asked.nodes))}
    possible = [fault for fault in wanted if fault.name not in skipped]
    try:
        if issubclass(kind, Namespaces) and possible:
            enter("chaos", ["drills", *arguments])
    except Unfit as error:
        print(f"nothing was run: {error}")
        return _NOTHING_RUN
    print(f"backend {kind.name}: {kind.about}")
    for name, why in skipped.items():
        print(f"skipped, so not survived: {name}: {why}")
    if not possible:
        print("nothing was run: none of the faults can be made here")
        return _NOTHING_RUN
    if asked.planted:
        return _find_planted(asked, kind, offers)
    return _run(asked, kind, possible, skipped)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m chaos drills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("faults", nargs="*", metavar="FAULT[+FAULT][:ROUNDS]", help="default: each fault once")
    parser.add_argument("--list", action="store_true", help="list all faults, and which can be made here")
    parser.add_argument("--planted", action="store_true", help="run nodes with planted bugs: each must be found")
    parser.add_argument("--nodes", type=int, choices=(3, 5), default=3)
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn; default: 1")
    parser.add_argument("--minutes", type=float, default=0.0, help="draw from the faults for this long instead")
    parser.add_argument("--no-bounds", action="store_true", help="judge safety only, and no times")
    parser.add_argument("--backend", choices=sorted(_BACKENDS), help="default: the one with the most faults here")
    parser.add_argument("--out", type=Path, default=Path("drills-report"), help="replaced; default: drills-report/")
    return parser


# -- what can be run --------------------------------------------------------------------------------------------------


def _chosen_backend(name: str | None) -> type[Namespaces | Proxies]:
    if name is not None:
        return _BACKENDS[name]
    if can_enter():
        return Proxies
    return Namespaces if lacking() else Root


def _offers(kind: type[Namespaces | Proxies]) -> frozenset[Need]:
    shims = {Need.SHIMS} if compiler() is not None and sys.platform == "linux" else set()
    disks = {Need.DISKS, Need.READ_ONLY} if issubclass(kind, Root) and lacking() else set()
    return (kind.offers | shims) - disks


def _why_not(fault: Fault, offers: frozenset[Need], node_count: int) -> str:
    """Return why a fault can't be made here, "" if it can."""
    if missing := fault.needs - offers:
        return "it needs " + " and ".join(sorted(need.value for need in missing))
    return f"it needs {fault.nodes_min} nodes" if node_count < fault.nodes_min else ""


def _listed(kind: type[Namespaces | Proxies], offers: frozenset[Need], node_count: int) -> str:
    lines = [f"backend {kind.name}: {kind.about}"]
    for fault in FAULTS.values():
        why = _why_not(fault, offers, node_count)
        lines.append(f"{fault.name:24} {'no: ' + why if why else 'yes'}\n{'':24} {fault.about}")
    return "\n".join(lines)


# -- the run ----------------------------------------------------------------------------------------------------------


def _run(asked: argparse.Namespace, kind: type[AnyBackend], possible: list[Fault], skipped: Mapping[str, str]) -> int:
    out = asked.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    if asked.minutes:
        random = Random(asked.seed)
        possible = [drawn(possible, random) for _ in range(max(1, round(asked.minutes * 60 / _ROUND_SECONDS)))]
    if asked.no_bounds:
        possible = [replace(fault, is_single=False) for fault in possible]
    groups = _groups(possible)
    began = time.monotonic()
    results: list[Result] = []
    try:
        backend = kind(range(1, asked.nodes + 2))  # one more for a node that joins
        for number, faults in enumerate(groups, start=1):
            directory = out / f"{number}" if len(groups) > 1 else out
            directory.mkdir(parents=True)
            plan = Plan(faults, asked.nodes, asked.seed + number - 1, directory)
            results.append(asyncio.run(run(plan, backend, _say)))
            _write_report(results[-1], plan, backend, skipped)
    except (Unfit, TimeoutError) as error:
        print(f"not all was run: {error}")
    if not results:
        return _NOTHING_RUN
    rounds = sum(len(result.rounds) for result in results)
    print(closing_table(results))
    print(f"{rounds} of {len(possible)} rounds in {time.monotonic() - began:.0f} s; report: {out}")
    return _FAILED if rounds < len(possible) or any(result.violations for result in results) else 0


def _find_planted(asked: argparse.Namespace, kind: type[AnyBackend], offers: frozenset[Need]) -> int:
    out = asked.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    backend = kind(range(1, 5))
    missed = 0
    for planted in PLANTED:
        if why := _why_not(planted.fault, offers, 3):
            print(f"skipped, so not found: {planted.name}: {why}")
            continue
        result = asyncio.run(find(planted, asked.seed, out / planted.name, backend, _say))
        missed += not result.violations
        verdict = f"found: {result.violations[-1]}" if result.violations else "MISSED"
        print(f"{planted.name} ({planted.about}): {verdict}")
    return _FAILED if missed else 0


def _groups(faults: list[Fault]) -> list[list[Fault]]:
    """Return the faults of each cluster: those that need another configuration have clusters of their own."""
    alike = [[fault for fault in faults if fault.short_logs == are_short] for are_short in (False, True)]
    return [part[first : first + _ROUNDS_MAX] for part in alike for first in range(0, len(part), _ROUNDS_MAX)]


def _write_report(result: Result, plan: Plan, backend: Backend, skipped: Mapping[str, str]) -> None:
    names = [f"n{number}" for number in range(1, plan.node_count + 1)]
    (plan.out / "timeline.svg").write_text(timeline(result, names))
    (plan.out / "report.md").write_text(report_text(result, plan, backend, skipped))


def _say(line: str) -> None:
    print(line, flush=True)
