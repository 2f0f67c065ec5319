"""`python -m chaos.sim`: see `chaos.sim.campaign.runner`."""

import sys

from chaos.sim.campaign.runner import main

if __name__ == "__main__":  # and not in the processes that `repeat` starts
    sys.exit(main(sys.argv[1:]))
