"""Record the run of a shell job: `python -m raftsched.cli.demo.record LEDGER < TEXT`.

The text is that of its standard input; if there is none, the time for which the job was scheduled.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from raftsched.cli.demo.ledger import Ledger


def main() -> None:
    text = sys.stdin.read() or os.environ["RAFTSCHED_SCHEDULED_AT"]
    ledger = Ledger(Path(sys.argv[1]))
    recorded = ledger.record(os.environ["RAFTSCHED_RUN_ID"], int(os.environ["RAFTSCHED_FENCING_TOKEN"]), text)
    sys.stdout.write(f"recorded {recorded}\n")
    ledger.close()


if __name__ == "__main__":
    main()
