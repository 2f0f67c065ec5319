"""A value that is accepted as a payload is accepted as a result, and what is refused is refused alike everywhere."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftsched import limits
from raftsched.errors import Malformed, TooLarge
from raftsched.values import check_value, nests_deeper
from raftsched.worker.handlers.result import COMPLETED, completed
from tests.api.node import Api

_DEEPEST: Final = limits.VALUE_DEPTH_MAX
_LONGEST: Final = limits.PAYLOAD_BYTES_MAX


def _nested(levels: int, opening: bytes = b"[", closing: bytes = b"]", inner: bytes = b"") -> bytes:
    return opening * levels + inner + closing * levels


def _filled(item: bytes, size: int = _LONGEST) -> bytes:
    """An array of as many of `item` as `size` bytes hold."""
    return b"[" + b",".join([item] * ((size - 1) // (len(item) + 1))) + b"]"


_ACCEPTED: Final = {
    "deepest arrays": _nested(_DEEPEST),
    "deepest objects": _nested(_DEEPEST - 1, b'{"a":', b"}", b"{}"),
    "deepest, with brackets in strings": _nested(_DEEPEST, inner=rb'"[[\"[[{\\"'),
    "longest text": b'"%b"' % (b"x" * (_LONGEST - 2)),
    "longest text of three bytes a character": b'"%b"' % ("字".encode() * ((_LONGEST - 2) // 3)),
    "longest text of escapes": b'"%b"' % (rb"\u0001" * ((_LONGEST - 2) // 6)),
    "most values": _filled(b"1"),
    "most arrays": _filled(b"[]"),
    "most objects": _filled(b"{}"),
    "most numbers with exponents": _filled(b"1e15", _LONGEST // 4),
    "padded": b"[" + b" " * (_LONGEST - 2) + b"]",
    "largest integer of a double and beyond": b"[9007199254740993,18446744073709551616,-9223372036854775809]",
    "integer of the most digits": b"9" * 4_300,
    "largest and least floats": b"[1.7976931348623157e308,-1.7976931348623157e308,5e-324,1e-400,-0.0,-0,1E5,1e-5]",
    "unicode": rb'{"":"\u2028\ud83d\ude00\u007f\b\/","\u00e9 ":"' + "\u00e9\U0001f600".encode() + b'"}',
    "longest key": b'{"%b":1}' % (b"k" * (_LONGEST - 6)),
    "scalars": b'[true,false,null,"",0]',
    "false": b"false",
    "null": b"null",
}
_REFUSED: Final = {
    "too deep by one": _nested(_DEEPEST + 1),
    "too deep by one, objects": _nested(_DEEPEST, b'{"a":', b"}", b"{}"),
    "too deep for any document": _nested(500),
    "too long by one": b'"%b"' % (b"x" * (_LONGEST - 1)),
    "too long when written anew": _filled(b"1e15"),
    "NaN": b"[NaN]",
    "infinity": b"[-Infinity]",
    "float too large": b"[1e400]",
    "too many digits": b"[%b]" % (b"9" * 4_301),
    "doubled key": b'{"a":1,"a":2}',
    "lone surrogate": rb'["\ud800"]',
    "NUL": rb'{"\u0000":1}',
    "no UTF-8": b'"\xff"',
}


async def _runs(api: Api, count: int) -> list[bytes]:
    """Lease that many jobs; return what names each in a report."""
    for _ in range(count):
        await api.submit()
    leases = await api.lease(capacity=count)
    return [b'"run_id":"%b","fencing_token":%d' % (run["run_id"].encode(), run["fencing_token"]) for run in leases]


async def _answers(api: Api, value: bytes, number: int) -> dict[str, tuple[bool, str]]:
    """Return of each way to send a value whether it was accepted, and the words of the refusal."""
    first, second, third = await _runs(api, 3)
    outcome = b'{%b,"status":"completed","result":%b}'
    name = b"v%d" % number
    job = b'{"name":"n","paused":true,"payload":%b}' % value
    task = b'{"name":"n","payload":%b}' % value
    schedule = b'{"name":"%b","every":"1h","job":{"name":"n","payload":%b}}'
    replies = {
        "single": await api.post("jobs", job),
        "batch": await api.post("jobs/batch", b'{"jobs":[%b]}' % job),
        "workflow": await api.post("workflows", b'{"name":"w","jobs":{"a":%b}}' % task),
        "schedule": await api.post("schedules", schedule % (name, value)),
        "file": await api.ask(
            "PUT",
            "schedules",
            data=b'{"schedules":[%b]}' % (schedule % (name + b"f", value)),
            headers={"Content-Type": "application/json"},
        ),
        "result": await api.post("leases/outcomes", b'{"worker":"w1","outcomes":[%b]}' % (outcome % (first, value))),
        "results": await api.post(
            "leases/outcomes",
            b'{"worker":"w1","outcomes":[%b,%b]}' % (outcome % (second, b"1"), outcome % (third, value)),
        ),
    }
    if len(value) <= limits.PROGRESS_BYTES_MAX:
        [run] = await _runs(api, 1)
        url = f"runs/{json.loads(b'{%b}' % run)['run_id']}/progress"
        body = b'{"fencing_token":%d,"progress":%b}' % (json.loads(b"{%b}" % run)["fencing_token"], value)
        replies["progress"] = await api.post(url, body)
    if _told(replies["result"].json)[0]:
        job_id = json.loads(b"{%b}" % first)["run_id"].partition(".")[0]
        assert value in (await api.get(f"jobs/{job_id}/result")).body, "it reads back as it was sent"
    return {way: _told(reply.json) for way, reply in replies.items()}


def _told(answer: Any) -> tuple[bool, str]:
    """Whether a reply accepts the value, and the words of the refusal without the place."""
    problem = answer
    if "results" in answer:
        problem = answer["results"][-1].get("problem") or {}
    elif "outcomes" in answer:
        problem = {} if answer["outcomes"][-1]["accepted"] else answer["outcomes"][-1]
    detail = str(problem.get("detail", ""))
    words = re.sub(r"byte \d+", "a byte", detail.removeprefix("the body ").rpartition(": ")[2])
    return not detail, words


async def test_value_is_accepted_or_refused_alike_wherever_it_is_sent(api: Api) -> None:
    wrong = []
    for number, (name, value) in enumerate({**_ACCEPTED, **_REFUSED}.items()):
        answers = await _answers(api, value, number)
        if len(set(answers.values())) != 1 or answers["single"][0] is not (name in _ACCEPTED):
            wrong.append((name, answers))
    assert wrong == [], "\n".join(map(repr, wrong))


def test_payload_is_a_result_where_a_handler_returns_it() -> None:
    wrong = []
    for name, value in _ACCEPTED.items():
        once = completed(msgspec.json.decode(value))
        if once.status != COMPLETED or completed(json.loads(value)).status != COMPLETED:
            wrong.append((name, once.error))
    assert wrong == [], "\n".join(map(repr, wrong))


def test_handler_hears_of_a_result_what_a_submitter_hears_of_a_payload() -> None:
    told = {"too deep by one": Malformed, "too long by one": TooLarge}
    for name, error in told.items():
        ending = completed(msgspec.json.decode(_REFUSED[name]))
        assert ending.error is not None
        with pytest.raises(error) as refused:
            check_value(_REFUSED[name], bytes_max=_LONGEST, field="result")
        assert (ending.error.message, ending.retryable) == (str(refused.value), False)


_NUMBERS = st.integers(-(2**70), 2**70).map(str) | st.builds(
    "{}{}e{}".format, st.integers(0, 9999), st.sampled_from(["", ".5", ".0"]), st.integers(-30, 300)
)


@given(st.lists(_NUMBERS, max_size=12), st.integers(1, 160))
def test_value_that_passes_passes_when_it_is_written_anew(numbers: list[str], bytes_max: int) -> None:
    text = f"[{', '.join(numbers)}]".encode()
    try:
        check_value(text, bytes_max=bytes_max, field="payload")
    except TooLarge:
        return
    check_value(msgspec.json.encode(msgspec.json.decode(text)), bytes_max=bytes_max, field="result")


_VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[]{}"\\a', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[]{}"\\', max_size=3), inner, max_size=3),
)


def _depth(value: Any) -> int:
    if isinstance(value, dict | list):
        return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)
    return 0


@given(_VALUES, st.integers(0, 6))
def test_nesting_is_counted_by_structure_alone(value: Any, levels: int) -> None:
    assert nests_deeper(msgspec.json.encode(value), levels) is (_depth(value) > levels)
