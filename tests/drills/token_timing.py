"""Measure whether the time of a refused sign-in tells how near a guess is to a token.

Wrong secrets of each kind are tried in random order: one that begins as the right one, one that has nothing of it, and
one of an id that nobody has. Welch's t of the first two must stay within 4.5 (the limit of ISO/IEC 17825 for leakage
tests); the slowest tenth of the samples is left out, since other processes make it. An id is no secret, and to find one
takes less than a microsecond longer; replies don't show even that, since each refusal is sent at a fixed time after its
request.

    python -m tests.drills.token_timing --samples 30000
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import combinations
from math import sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import Final

from multidict import CIMultiDict, CIMultiDictProxy

from raftsched.api.access.admin_file import AdminFile
from raftsched.api.access.door import Headers, TokenDoor
from raftsched.core.records.api_token import Role
from raftsched.errors import Unauthorized
from tests.api.access.scene import ADMIN_TEXT, Caller, make_token
from tests.api.node import SimulatedNode

T_MAX: Final = 4.5
_KEPT: Final = 0.9


def headers_of(token: str) -> Headers:
    return CIMultiDictProxy(CIMultiDict({"Authorization": f"Bearer {token}"}))


def guesses() -> tuple[TokenDoor, dict[str, Headers]]:
    """Return a door, and a wrong guess of each kind; all have the same length."""
    node = SimulatedNode()
    token = make_token(node, "victim", Caller(Role.ADMIN))
    admin = Path(tempfile.mkdtemp()) / "admin.token"
    admin.write_text(ADMIN_TEXT)
    head, secret = token[: -len("secret-of-victim")], "secret-of-victim"
    near = secret[:-1] + "x"
    return TokenDoor(node, AdminFile(admin)), {
        "right prefix": headers_of(head + near),
        "wrong prefix": headers_of(head + near[::-1]),
        "unknown id": headers_of(head.replace("victim", "nobody") + near),
    }


def seconds_of(call: Callable[[], object]) -> float:
    began = time.perf_counter_ns()
    try:
        call()
    except Unauthorized:
        return (time.perf_counter_ns() - began) / 1e9
    raise AssertionError("a wrong token was let in")


def samples(count: int) -> dict[str, list[float]]:
    """Return the times of `count` refusals of each kind, in random order."""
    door, kinds = guesses()
    order = [kind for kind in kinds for _ in range(count)]
    random.Random(1).shuffle(order)
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    gc.disable()
    for kind in order:
        found[kind].append(seconds_of(lambda kind=kind: door.principal(kinds[kind])))  # type: ignore[misc]
    gc.enable()
    return found


def t_of(left: list[float], right: list[float]) -> float:
    """Return Welch's t of two samples without their slowest tenth."""
    left, right = (sorted(times)[: int(len(times) * _KEPT)] for times in (left, right))
    return (fmean(left) - fmean(right)) / sqrt(variance(left) / len(left) + variance(right) / len(right))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=30_000, help="of each kind")
    times = samples(parser.parse_args().samples)
    for kind, each in times.items():
        print(f"{kind}: {fmean(each) * 1e6:.2f} us, {len(each):,} samples")
    for left, right in combinations(times, 2):
        print(f"{left} / {right}: t = {t_of(times[left], times[right]):+.2f}")
    is_within = abs(t_of(times["right prefix"], times["wrong prefix"])) < T_MAX
    print("secrets are within" if is_within else "secrets are BEYOND", f"the limit of {T_MAX}")
    return int(not is_within)


if __name__ == "__main__":
    sys.exit(main())
