"""Many seeds on all cores, and one seed again with its story.

    python -m chaos.sim --seeds 200 --start 1 --nodes 3      a campaign
    python -m chaos.sim --seed 17 --nodes 3 --trace          one run, line by line
    python -m chaos.sim repeat --seeds 100 --start 1         each seed in two processes: are they the same run?
    python -m chaos.sim planted                              the planted bugs, and how soon each is found
    python -m chaos.sim engine --seeds 50 --nodes 5          bare engines, without the rest of a node

Each seed runs in a worker process whose PYTHONHASHSEED is fixed, because pysyncobj iterates over sets; `repeat` takes
two others, to show that nothing depends on it.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing import get_context

import structlog

from chaos.sim.engine.seed import campaign
from chaos.sim.hosts.storage import CUT
from chaos.sim.rates import FAULTS
from chaos.sim.record.trace import Trace
from chaos.sim.run.seed import run_seed
from chaos.sim.run.verdict import Outcome
from chaos.sim.world.faults import ALONE, POINTS

HASH_SEED = "0"
_HASH_SEEDS = ("1", "2")
_PROGRESS_SECONDS = 15.0


def main(arguments: Sequence[str]) -> int:
    """Run what the command line asks for; 1 where a violation was found, 0 otherwise."""
    _fix_hash_seed()
    options = _options(arguments)
    if options.what == "planted":
        from chaos.sim.campaign.scoring import score

        return score(options, be_quiet=be_quiet)
    if options.what == "engine":
        be_quiet()
        return campaign(range(options.start, options.start + options.seeds), count=options.nodes)
    if options.what == "repeat":
        return _repeat(options)
    if options.seed is not None:
        return _replay(options.seed, options.nodes, tells=options.trace)
    return _campaign(options)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos.sim", description="The deterministic simulator.")
    parser.add_argument("what", nargs="?", choices=("campaign", "repeat", "planted", "engine"), default="campaign")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--start", type=int, default=1, help="the first one")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes")
    parser.add_argument("--seed", type=int, help="run only this one")
    parser.add_argument("--trace", action="store_true", help="print the story of --seed")
    parser.add_argument("--only", default="", help="planted: only bugs of these names, with commas between")
    return parser.parse_args(arguments)


def _fix_hash_seed() -> None:
    """Start this program again if its hash seed is not fixed: it is read at the very start only."""
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "chaos.sim", *sys.argv[1:]])


def be_quiet() -> None:
    """Production's log lines go nowhere; no collection of garbage in the middle of a run."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    gc.disable()
    gc.freeze()  # what is imported lives as long as the process: no need to look at it after each seed


def _tell_all(trace: Trace) -> None:
    structlog.configure(
        processors=[trace.log],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=False,
    )


# -- one seed ---------------------------------------------------------------------------------------------------------


def _replay(seed: int, nodes: int, *, tells: bool) -> int:
    trace = Trace(is_on=tells)
    gc.disable()
    if tells:
        _tell_all(trace)
    else:
        be_quiet()
    outcome = run_seed(seed, node_count=nodes, trace=trace)
    for line in outcome.trace:
        print(line)
    print(f"seed {seed}, {nodes} nodes, fingerprint {outcome.fingerprint}")
    for violation in outcome.violations:
        print(f"  VIOLATION {violation}")
    return 1 if outcome.violations else 0


# -- each seed twice --------------------------------------------------------------------------------------------------


def _repeat(options: argparse.Namespace) -> int:
    """Compare the fingerprints of two processes with hash seeds of their own; 1 where a seed's differ."""
    seeds = range(options.start, options.start + options.seeds)
    with ExitStack() as stack:
        runs = [
            stack.enter_context(_pool(max(1, options.jobs // 2), hash_seed)).map(
                _fingerprint, seeds, [options.nodes] * len(seeds)
            )
            for hash_seed in _HASH_SEEDS
        ]
        different = []
        for seed, one, other in zip(seeds, *runs, strict=True):
            if one != other:
                different.append(seed)
                print(f"seed {seed}: {one} and {other}", flush=True)
    agree = len(seeds) - len(different)
    print(f"{agree} of {len(seeds)} seeds have the same fingerprint in two processes, {options.nodes} nodes")
    return 1 if different else 0


def _pool(jobs: int, hash_seed: str) -> ProcessPoolExecutor:
    """Processes that are spawned, so that they take the hash seed."""
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=be_quiet)
    before, os.environ["PYTHONHASHSEED"] = os.environ["PYTHONHASHSEED"], hash_seed
    try:
        for _ in range(jobs):
            pool.submit(os.getpid)
    finally:
        os.environ["PYTHONHASHSEED"] = before
    return pool


def _fingerprint(seed: int, nodes: int) -> str:
    return run_seed(seed, node_count=nodes).fingerprint


# -- a campaign -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """The sums of a campaign."""

    seeds: int = 0
    simulated_seconds: float = 0.0
    cpu_seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    evidence: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def add(self, outcome: Outcome, cpu_seconds: float) -> None:
        self.seeds += 1
        self.cpu_seconds += cpu_seconds
        self.simulated_seconds += outcome.simulated_seconds
        self.counts += outcome.counts
        self.operations += outcome.operations
        self.evidence += outcome.evidence
        if outcome.violations:
            self.failed.append(outcome.seed)

    def line(self) -> str:
        return (
            f"{self.seeds} seeds, {self.simulated_seconds / 3600:.2f} simulated hours, "
            f"{self.operations.total():,} operations, {len(self.failed)} seeds with violations; "
            f"1 simulated second costs {1000 * self.cpu_seconds / max(1e-9, self.simulated_seconds):.1f} ms of a core"
        )


def _run(seed: int, nodes: int) -> tuple[Outcome, float]:
    began = time.process_time()
    outcome = run_seed(seed, node_count=nodes)
    return outcome, time.process_time() - began


def _runs(options: argparse.Namespace) -> Iterator[tuple[Outcome, float]]:
    seeds = range(options.start, options.start + options.seeds)
    if options.jobs == 1:
        be_quiet()
        yield from (_run(seed, options.nodes) for seed in seeds)
        return
    with ProcessPoolExecutor(options.jobs, initializer=be_quiet) as pool:
        yield from pool.map(_run, seeds, [options.nodes] * len(seeds), chunksize=1)


def _campaign(options: argparse.Namespace) -> int:
    tally = Tally()
    began = shown_at = time.monotonic()
    for outcome, cpu_seconds in _runs(options):
        tally.add(outcome, cpu_seconds)
        if outcome.violations:
            _show_failure(outcome)
        if time.monotonic() - shown_at > _PROGRESS_SECONDS:
            shown_at = time.monotonic()
            print(f"… {_progress(tally.seeds / options.seeds, shown_at - began)}: {tally.line()}", flush=True)
    _show(tally, options)
    return 1 if tally.failed else 0


def _progress(share: float, seconds: float) -> str:
    left = timedelta(seconds=round(seconds * (1 - share) / share))
    return f"{share:.0%} done, {left} left"


def _show_failure(outcome: Outcome) -> None:
    print(f"seed {outcome.seed}: {len(outcome.violations)} violations", flush=True)
    for violation in outcome.violations[:6]:
        print(f"  {violation}")
    print(f"  replay: python -m chaos.sim --seed {outcome.seed} --nodes {outcome.node_count} --trace", flush=True)


def _show(tally: Tally, options: argparse.Namespace) -> None:
    print(f"seeds {options.start} to {options.start + options.seeds - 1}, {options.nodes} nodes: {tally.line()}")
    show_faults(tally.counts, ALONE if options.nodes == 1 else FAULTS)
    rest = {key: count for key, count in sorted(tally.counts.items()) if not key.startswith(("fault: ", "point: "))}
    print("  seen: " + ", ".join(f"{key} {count}" for key, count in rest.items()))
    print("  operations: " + ", ".join(f"{key} {count}" for key, count in sorted(tally.operations.items())))
    print("  checked: " + ", ".join(f"{key} {count}" for key, count in sorted(tally.evidence.items())))
    print(f"  never exercised: {_named(key for key, count in sorted(tally.evidence.items()) if not count)}")
    print(f"  failed seeds: {_named(map(str, tally.failed))}")


def show_faults(counts: Counter[str], kinds: Collection[str]) -> None:
    """Print how often each kind struck, how often each fault point was passed, and how often the power went there."""
    struck = {kind: counts[f"fault: {kind}"] for kind in sorted(kinds)}
    print("  faults: " + ", ".join(f"{kind} {count}" for kind, count in struck.items()))
    print(f"  fault kinds never struck: {_named(kind for kind, count in struck.items() if not count)}")
    cuts = {point: counts[f"point: {point}{CUT}"] for point in sorted(POINTS)}
    told = (f"{point} {counts[f'point: {point}']}, {count} cuts" for point, count in cuts.items())
    print("  fault points, passed: " + "; ".join(told))
    print(f"  fault points never struck: {_named(point for point, count in cuts.items() if not count)}")


def _named(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
