"""`python -m chaos.sim`: see `chaos.sim.runner`."""

import sys

from chaos.sim.runner import main

sys.exit(main(sys.argv[1:]))
