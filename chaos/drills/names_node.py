"""An observed node whose names are tracked (`names.py`): `python -m chaos.drills.names_node node ...`.

With `no-directory-syncs` in front of that none is kept: a planted bug.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from chaos.drills.names import track
from chaos.drills.observed_node import main

NAMES_NODE: Final = ("chaos.drills.names_node", "node")
NO_DIRECTORY_SYNCS: Final = ("chaos.drills.names_node", "no-directory-syncs", "node")

if __name__ == "__main__":
    drops_all = sys.argv[1] == NO_DIRECTORY_SYNCS[1]
    if drops_all:
        del sys.argv[1]
    track(Path(os.environ["RAFTSCHED_DATA_DIR"]).parent, drops_all=drops_all)
    main()
