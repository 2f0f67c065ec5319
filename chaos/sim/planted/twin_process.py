"""A twin: the process that `chaos.sim.run.twins` asks to apply a log under another hash seed."""

from __future__ import annotations

import sys

import msgspec

from chaos.sim.planted import BUGS, planted
from chaos.sim.run.twins import Request, digests, read, write


def main() -> None:
    """Answer requests until the input ends."""
    bugs = {bug.name: bug for bug in BUGS}
    while True:
        try:
            request = msgspec.msgpack.decode(read(sys.stdin.buffer), type=Request)
        except EOFError:
            return
        if request.bug:
            with planted(bugs[request.bug]):
                answer = list(digests(request.log))
        else:
            answer = list(digests(request.log))
        write(sys.stdout.buffer, answer)


if __name__ == "__main__":
    main()
