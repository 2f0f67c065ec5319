"""`python -m chaos drills`: choose faults and a backend, run, tell, and end with an exit code.

0: no violation. 1: a violation, or not all was judged. 2: nothing was judged, or what was asked for is not there.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from chaos.drills.backends import Backend, Need, Unfit
from chaos.drills.backends.containers.backend import Docker
from chaos.drills.backends.containers.engine import why_no_engine
from chaos.drills.backends.loop_disk import lacking
from chaos.drills.backends.namespaces import can_enter, enter
from chaos.drills.backends.namespaces_backend import Namespaces
from chaos.drills.backends.proxies import Proxies
from chaos.drills.backends.root_backend import Root, RootXfs
from chaos.drills.drill import Plan, Result, run
from chaos.drills.faults import FAULTS, Fault, chosen
from chaos.drills.nodes import NODE
from chaos.drills.observed_node import OBSERVED_NODE
from chaos.drills.planted import PLANTED, find, found_by
from chaos.drills.programme import SHORT, Group, again, as_asked, drawn, unbound
from chaos.drills.regions.command import main as regions
from chaos.drills.report.figures import Figures, NoReport, figures_of, read_figures, write_figures
from chaos.drills.report.table import closing_lines, report_text, times_table
from chaos.drills.report.timeline import timeline
from chaos.drills.shims import compiler

AnyBackend = Namespaces | Proxies | Docker
_KINDS: Final[tuple[type[AnyBackend], ...]] = (Namespaces, Proxies, Root, RootXfs, Docker)
_BACKENDS: Final = {kind.name: kind for kind in _KINDS}
_OUT: Final = Path("drills-report")
_FAILED, _NOTHING_RUN = 1, 2
REGIONS: Final = "regions"
"""In place of faults: `chaos.drills.regions.command`."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    others = {REGIONS: regions, "sum": _sum}
    if arguments and arguments[0] in others:
        return others[arguments[0]](arguments[1:])
    asked = _parser().parse_args(arguments)
    try:
        wanted, repeated = _wanted(asked)
    except (ValueError, NoReport) as error:
        print(error)
        return _NOTHING_RUN
    kind = _chosen_backend(asked.backend)
    offers = _offers(kind)
    if asked.list:
        print(_listed(kind, offers, asked.nodes))
        return 0
    skipped = {fault.name: why for fault in wanted if (why := _why_not(fault, offers, asked.nodes))}
    possible = [fault for fault in wanted if fault.name not in skipped]
    try:
        if possible:
            _prepare(kind, arguments)
    except Unfit as error:
        print(f"nothing was run: {error}")
        return _NOTHING_RUN
    print(f"backend {kind.name}: {kind.about}")
    # As Ctrl-C: whatever was started is ended, and what was mounted is taken away.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if asked.planted:
        return _find_planted(asked, kind, offers)
    for name, why in skipped.items():
        print(f"skipped, so not survived: {name}: {why}")
    if not possible:
        print("nothing was run: none of the faults can be made here")
        return _NOTHING_RUN
    if repeated and skipped:
        print("nothing was run: not all faults of the report can be made here")
        return _NOTHING_RUN
    return _run(asked, kind, _groups(asked, possible, repeated), skipped)


def _wanted(asked: argparse.Namespace) -> tuple[list[Fault], list[Group]]:
    """Return the faults that may strike, and the rounds of the report that is to be repeated, if one is.

    What the report says of nodes, backend and bounds goes before what was asked for.
    """
    if asked.repeat is None:
        return _asked_for(asked), []
    drills = read_figures([asked.repeat])
    groups = list(again(drills))
    kinds = {(drill.node_count, drill.backend, not drill.is_bound) for drill in drills}
    if len(kinds) > 1:
        raise ValueError(f"{asked.repeat}: its drills differ in nodes, backend or bounds; repeat one of them")
    [(asked.nodes, asked.backend, asked.no_bounds)] = kinds
    asked.out = asked.out or asked.repeat.with_name(f"{asked.repeat.resolve().name}-again")
    return list({each.name: each for group in groups for each in group.rounds}.values()), groups


def _asked_for(asked: argparse.Namespace) -> list[Fault]:
    if asked.faults:
        return chosen(asked.faults)
    return list(FAULTS.values()) if asked.all or asked.minutes else chosen(SHORT)


def _groups(asked: argparse.Namespace, possible: list[Fault], repeated: list[Group]) -> Iterable[Group]:
    if repeated:
        return repeated
    return drawn(possible, asked.seed, asked.minutes) if asked.minutes else as_asked(possible, asked.seed)


def _sum(arguments: Sequence[str]) -> int:
    """Add reports up, and print what they show together; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m chaos drills sum", description="Add reports of drills up.")
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT", help="a folder that a drill has written")
    try:
        drills = read_figures(parser.parse_args(arguments).reports)
    except NoReport as error:
        print(error)
        return _NOTHING_RUN
    print(times_table(drills), closing_lines(drills), sep="\n\n")
    return _FAILED if any(each.violations for each in drills) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m chaos drills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("faults", nargs="*", metavar="FAULT[+FAULT][:ROUNDS]", help="default: one or two of each kind")
    parser.add_argument("--all", action="store_true", help="each fault once, in about 15 minutes")
    parser.add_argument("--list", action="store_true", help="list all faults, and which can be made here")
    parser.add_argument("--planted", action="store_true", help="run nodes with planted bugs: each must be found")
    parser.add_argument("--nodes", type=int, choices=(3, 5), default=3)
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn; default: 1")
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="draw faults, one or two at a time, for this long instead"
    )
    parser.add_argument("--repeat", type=Path, metavar="REPORT", help="run the rounds of a report again")
    parser.add_argument("--no-bounds", action="store_true", help="judge safety only, and no times")
    parser.add_argument("--backend", choices=sorted(_BACKENDS), help="default: the one with the most faults here")
    parser.add_argument("--out", type=Path, help="replaced; default: drills-report/, or REPORT-again/")
    return parser


# -- what can be run --------------------------------------------------------------------------------------------------


def _chosen_backend(name: str | None) -> type[AnyBackend]:
    if name is not None:
        return _BACKENDS[name]
    if can_enter():
        return Proxies
    return Namespaces if lacking() else Root


def _prepare(kind: type[AnyBackend], arguments: Sequence[str]) -> None:
    """Enter namespaces, or see that an engine can be reached, if the backend needs it; raises `Unfit`."""
    if issubclass(kind, Namespaces):
        enter("chaos", ["drills", *arguments])
    if issubclass(kind, Docker) and (reason := why_no_engine()):
        raise Unfit(reason)


def _offers(kind: type[AnyBackend]) -> frozenset[Need]:
    can_preload = compiler() is not None and sys.platform == "linux" and not issubclass(kind, Docker)
    shims = {Need.SHIMS} if can_preload else set()
    disks = {Need.DISKS, Need.READ_ONLY} if issubclass(kind, Root) and lacking() else set()
    return (kind.offers | shims) - disks


def _why_not(fault: Fault, offers: frozenset[Need], node_count: int) -> str:
    """Return why a fault can't be made here, "" if it can."""
    if missing := fault.needs - offers:
        return "it needs " + " and ".join(sorted(need.value for need in missing))
    return f"it needs {fault.nodes_min} nodes" if node_count < fault.nodes_min else ""


def _listed(kind: type[AnyBackend], offers: frozenset[Need], node_count: int) -> str:
    lines = [f"backend {kind.name}: {kind.about}"]
    for fault in FAULTS.values():
        why = _why_not(fault, offers, node_count)
        lines.append(f"{fault.name:24} {'no: ' + why if why else 'yes'}\n{'':24} {fault.about}")
    return "\n".join(lines)


# -- the run ----------------------------------------------------------------------------------------------------------


def _run(asked: argparse.Namespace, kind: type[AnyBackend], groups: Iterable[Group], skipped: dict[str, str]) -> int:
    out = (asked.out or _OUT).resolve()
    shutil.rmtree(out, ignore_errors=True)
    began = time.monotonic()
    drills: list[Figures] = []
    is_whole = True
    try:
        with ExitStack() as ending:
            backend = kind(range(1, asked.nodes + 2))  # one more for a node that joins
            ending.callback(backend.end)
            for number, group in enumerate(groups, start=1):
                directory = out if isinstance(groups, list) and len(groups) == 1 else out / f"{number}"
                directory.mkdir(parents=True)
                rounds = unbound(group) if asked.no_bounds else group
                entry = NODE if kind is Docker else OBSERVED_NODE  # an image is run as it is
                plan = Plan(rounds.rounds, asked.nodes, group.seed, directory, entry, begins=group.begins)
                try:
                    result = asyncio.run(run(plan, backend, _say))
                except TimeoutError as error:  # the rest of a night is worth having all the same
                    print(f"{directory}: not run to its verdict: {error}", flush=True)
                    is_whole = False
                    continue
                drills.append(figures_of(result, plan, backend.name, skipped, is_bound=not asked.no_bounds))
                _write_report(result, plan, backend, drills[-1])
    except Unfit as error:
        print(f"not all was run: {error}")
        is_whole = False
    except KeyboardInterrupt:
        print(f"ended by a signal: the rounds of this cluster are not judged; what they left is in {out}")
        is_whole = False
    made = [each for drill in drills for each in drill.rounds if each.faults]
    if not made:
        return _NOTHING_RUN
    print(times_table(drills), closing_lines(drills), sep="\n")
    planned = sum(len(drill.rounds) for drill in drills)
    print(f"{len(made)} of {planned} rounds in {time.monotonic() - began:.0f} s; report: {out}")
    return _FAILED if not is_whole or any(drill.violations for drill in drills) else 0


def _find_planted(asked: argparse.Namespace, kind: type[AnyBackend], offers: frozenset[Need]) -> int:
    out = (asked.out or _OUT).resolve()
    shutil.rmtree(out, ignore_errors=True)
    missed = run_count = 0
    with ExitStack() as ending:
        backend = kind(range(1, 5))
        ending.callback(backend.end)
        for planted in PLANTED:
            if why := _why_not(planted.fault, offers, 3):
                print(f"skipped, so not found: {planted.name}: {why}")
                continue
            run_count += 1
            result = asyncio.run(find(planted, asked.seed, out / planted.name, backend, _say))
            missed += not result.violations
            print(f"{planted.name} ({planted.about}): {found_by(result)}")
    if not run_count:
        return _NOTHING_RUN
    return _FAILED if missed else 0


def _write_report(result: Result, plan: Plan, backend: Backend, figures: Figures) -> None:
    names = [f"n{number}" for number in range(1, plan.node_count + 1)]
    (plan.out / "timeline.svg").write_text(timeline(result, names))
    (plan.out / "report.md").write_text(report_text(result, plan, backend, figures))
    write_figures(figures, plan.out)


def _say(line: str) -> None:
    print(line, flush=True)
