"""Replies that say a quota is used up need not be late here."""

from __future__ import annotations

import pytest

from raftsched import limits


@pytest.fixture(autouse=True)
def _prompt_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUOTA_REPLY_SECONDS", 0.0)
