from __future__ import annotations

import pytest

from raftsched import limits
from raftsched.core.operations.access import CreateToken, NoteTokenUses, RevokeToken, RotateToken
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import RejectCode
from raftsched.core.records.api_token import ApiToken, Role, digest_of
from raftsched.core.records.ids import TimeMs
from raftsched.core.state.results import Counted, Refused, TokenSaved
from raftsched.core.state.writes import PutAudit
from tests.core.plain_state import PlainState

NOW = TimeMs(1_700_000_000_000)
CREATE = CreateToken("k1", digest_of("first"), "ci", Role.SUBMITTER, "acme", ("mail*",), TimeMs(NOW + 10_000), "root")


def applied(state: PlainState, operation: Operation, now_ms: int = NOW) -> object:
    return state.step(operation, now_ms).result


def saved(result: object) -> ApiToken:
    assert isinstance(result, TokenSaved), result
    return result.token


def test_secret_is_accepted_until_it_is_rotated_expired_or_revoked() -> None:
    state = PlainState()
    token = saved(applied(state, CREATE))
    assert state.api_token("k1") == token
    cases = {
        "right": token.accepts("first", NOW),
        "wrong": not token.accepts("firsT", NOW),
        "empty": not token.accepts("", NOW),
        "at its end": not token.accepts("first", NOW + 10_000),
    }
    rotated = saved(applied(state, RotateToken("k1", digest_of("second"), TimeMs(NOW + 500), "root"), NOW + 100))
    cases |= {
        "new": rotated.accepts("second", NOW + 9_999),
        "former": rotated.accepts("first", NOW + 499),
        "former, late": not rotated.accepts("first", NOW + 500),
        "new, at the end": not rotated.accepts("second", NOW + 10_000),
        "no former one": not token.accepts("", NOW),
    }
    assert [name for name, holds in cases.items() if not holds] == []
    repeated = saved(applied(state, RotateToken("k1", digest_of("second"), TimeMs(NOW + 500), "root"), NOW + 200))
    assert repeated == rotated, "a repetition keeps the former secret"
    saved(applied(state, RevokeToken("k1", "root")))
    assert state.api_token("k1") is None


def test_each_change_is_audited_without_its_digest() -> None:
    state = PlainState()
    lines = [
        write.entry
        for operation in (CREATE, RotateToken("k1", digest_of("second")), RevokeToken("k1", "root"))
        for write in state.step(operation, NOW).writes
        if isinstance(write, PutAudit)
    ]
    assert [(line.action, line.subject, line.tenant) for line in lines] == [
        (action, "token:k1", "acme") for action in ("token.create", "token.rotate", "token.revoke")
    ]
    assert "first" not in repr(lines)
    assert digest_of("first").hex() not in repr(lines)


def test_uses_are_noted_by_the_latest_time_and_are_no_changes_of_the_token() -> None:
    state = PlainState()
    token = saved(applied(state, CREATE))
    hour = TimeMs(NOW - NOW % 3_600_000)
    cases: list[tuple[list[tuple[str, int]], int, int]] = [  # what is noted, how many tokens change, what is known then
        ([("k1", hour - 5), ("nobody", hour)], 1, hour - 5),
        ([("k1", hour - 5)], 0, hour - 5),
        ([("k1", hour), ("k1", hour - 9)], 1, hour),
        ([("k1", hour - 9)], 0, hour),
        ([("k1", NOW + 9_999)], 1, NOW),
    ]
    for uses, changed, known in cases:
        step = state.step(NoteTokenUses(tuple((name, TimeMs(at)) for name, at in uses)), NOW)
        found = state.api_token("k1")
        assert (step.result, found and found.used_at_ms) == (Counted(changed), known), uses
        assert not [write for write in step.writes if isinstance(write, PutAudit)]
    assert found is not None
    assert found.revision == token.revision


def test_refusals_write_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    state = PlainState()
    saved(applied(state, CREATE))
    bad = {
        "id": CreateToken("", digest_of("x"), "n", Role.VIEWER, "t"),
        "digest": CreateToken("k2", b"short", "n", Role.VIEWER, "t"),
        "name": CreateToken("k2", digest_of("x"), "a\0b", Role.VIEWER, "t"),
        "tenant": CreateToken("k2", digest_of("x"), "n", Role.VIEWER, ""),
        "queues": CreateToken("k2", digest_of("x"), "n", Role.VIEWER, "t", ("",)),
        "expires_at_ms": CreateToken("k2", digest_of("x"), "n", Role.VIEWER, "t", (), TimeMs(-1)),
        "former_until_ms": RotateToken("k1", digest_of("x"), TimeMs(-1)),
        "used_at_ms": NoteTokenUses((("k1", TimeMs(-1)),)),
        "uses": NoteTokenUses((("k1", NOW),) * (limits.TOKEN_USES_MAX + 1)),
        "actor": RevokeToken("k1", "x" * 1_000),
    }
    for field, operation in bad.items():
        step = state.step(operation, NOW)
        assert isinstance(step.result, Refused), field
        assert (step.result.code, step.result.message.split(":")[0].split()[0]) == (RejectCode.INVALID, field)
        assert not step.writes
    monkeypatch.setattr(limits, "TOKENS_MAX", 1)
    refusals = {
        RejectCode.EXISTS: CREATE,
        RejectCode.LIMIT_REACHED: CreateToken("k2", digest_of("x"), "n", Role.VIEWER, "t"),
        RejectCode.NOT_FOUND: RotateToken("nobody", digest_of("x")),
    }
    for code, operation in refusals.items():
        step = state.step(operation, NOW)
        assert isinstance(step.result, Refused), code
        assert (step.result.code, step.writes) == (code, ())
