"""Lines, tails and counts of a command's output."""

from __future__ import annotations

import pytest

from raftsched import limits
from raftsched.executors.secrets import Redaction
from raftsched.executors.shell.output import TAIL_BYTES, Output
from tests.for_each import for_each


def logged(*chunks: bytes) -> list[str]:
    lines: list[str] = []
    output = Output(lambda text: lines.extend(text.split("\n")), Redaction({}))
    for chunk in chunks:
        output.stdout.take(chunk)
    output.close()
    return [line.removeprefix("stdout: ") for line in lines]


@for_each(
    ("chunks", "lines"),
    [
        ([b""], []),
        ([b"a\n\nb"], ["a", "", "b"]),
        ([b"a", b"b\nc", b"\n"], ["ab", "c"]),
        ([b"a\r", b"\nb\r\n"], ["a", "b"]),
        ([b"10 %\r20 %\rdone\n"], ["10 %", "20 %", "done"]),
        (["é".encode()[:1], "é".encode()[1:] + b"\n"], ["é"]),
        ([b"\xff\xfe\n"], ["\N{REPLACEMENT CHARACTER}" * 2]),
        ([b"a\0b\n"], ["a\\0b"]),
        (["x\u2028y\n".encode()], ["x", "y"]),
        ([b"x" * 4_500 + b"\n"], ["x" * 2_000, "x" * 2_000, "x" * 500]),
        ([b"x" * 4_500, b"y" * 600], ["x" * 2_000, "x" * 2_000, "x" * 500 + "y" * 600]),
    ],
)
def test_output_becomes_lines(chunks: list[bytes], lines: list[str]) -> None:
    assert logged(*chunks) == lines


@pytest.mark.parametrize("chunk", [b"y\n" * 8_192, b"\0" * 16_384, b"\xff" * 16_384, "é\n".encode() * 4_096])
def test_full_log_ends_with_the_size_of_the_rest(chunk: bytes) -> None:
    logs: list[str] = []
    output = Output(logs.append, Redaction({}))
    for _ in range(200):
        output.stderr.take(chunk)
    output.close()
    assert sum(len(text.encode()) + 1 for text in logs) <= limits.LOG_BYTES_MAX
    assert all(len(line.encode()) <= 8_192 for text in logs for line in text.split("\n")), "the log would cut them"
    assert logs[-1].startswith("… ")
    assert logs[-1].endswith(f" bytes more were not logged: the log of an attempt holds {limits.LOG_BYTES_MAX:,} bytes")
    assert output.byte_count == 200 * len(chunk)


def test_dropped_bytes_are_those_that_the_log_does_not_have() -> None:
    logs: list[str] = []
    output = Output(logs.append, Redaction({}))
    for _ in range(3_000):
        output.stdout.take(b"123456789\n" * 100)
    output.close()
    kept = sum(text.count("\n") + 1 for text in logs[:-1])
    assert output.dropped_byte_count == 3_000_000 - 10 * kept


def test_tail_is_the_end_of_a_stream() -> None:
    output = Output(lambda _text: None, Redaction({}))
    for number in range(3_000):
        output.stdout.take(b"%d\n" % number)
    assert len(output.stdout.tail) == TAIL_BYTES
    assert output.stdout.tail.endswith("2998\n2999\n")
    assert output.stderr.tail == ""


def test_a_secret_is_in_neither_lines_nor_tails_however_the_output_is_cut() -> None:
    secret = "canary\nof two lines"
    text = f"a {secret} b\nca{secret}canary\n" + "x" * 1_995 + secret + " canar"
    for size in (1, 2, 7, 1_000, len(text)):
        logs: list[str] = []
        output = Output(logs.append, Redaction({"pem": secret}))
        for start in range(0, len(text), size):
            output.stdout.take(text[start : start + size].encode())
        output.close()
        assert output.byte_count == len(text)
        assert output.stdout.tail == text.replace(secret, "[secret pem]")
        joined = "".join(line.removeprefix("stdout: ") for each in logs for line in each.split("\n"))
        assert joined == text.replace(secret, "[secret pem]").replace("\n", "")
