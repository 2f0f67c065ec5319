"""`python -m chaos.sim`: see `chaos.sim.runner`."""

import sys

from chaos.sim.runner import main

if __name__ == "__main__":  # and not in the processes that `repeat` starts
    sys.exit(main(sys.argv[1:]))
