"""Plant bugs into production code, one patch each: a simulator that misses them proves nothing.

    bug.py         a planted bug, and how it gets in and out again
    catalog.py     all of them, each with its source: a claim, a defect or a fix of RELIABILITY.md or PYSYNCOBJ.md
    patches/       the bugs themselves, by layer
    altered.py     worlds in which some of them show sooner than elsewhere
    scripts/       directed schedules: a script in place of random faults, judged by the same checkers

Those of `patches/engine.py` are planted into clusters of bare engines too, by their own tests. Most are met by
random faults within a few seeds; what needs a certain order of rare events, or five nodes, has a directed schedule.
`python -m chaos.sim planted` looks for all of them.
"""

from chaos.sim.planted.bug import Bug, Patch, Plant, planted
from chaos.sim.planted.catalog import BUGS
from chaos.sim.planted.scripts.stage import NOT_REACHED, Schedule, run_schedule

__all__ = ["BUGS", "NOT_REACHED", "Bug", "Patch", "Plant", "Schedule", "planted", "run_schedule"]
