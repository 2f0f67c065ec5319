from __future__ import annotations

import subprocess
import sys

import pytest

import raftsched


def test_every_public_name_is_there() -> None:
    assert all(getattr(raftsched, name) is not None for name in raftsched.__all__)
    with pytest.raises(AttributeError):
        _ = raftsched.Cleint  # type: ignore[attr-defined]  # it is the test that there is none


def test_import_loads_neither_client_nor_worker() -> None:
    code = (
        "import raftsched, sys; sys.exit(int(any(name in sys.modules for name in ('aiohttp', 'asyncio', 'msgspec'))))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
