"""`python -m chaos drills`: see `chaos.drills.command`. The simulator is `python -m chaos.sim`."""

import sys

from chaos.drills.command import main

if __name__ == "__main__":
    if sys.argv[1:2] != ["drills"]:
        sys.exit("usage: python -m chaos drills [--help]; the simulator is python -m chaos.sim")
    sys.exit(main(sys.argv[2:]))
