"""Commands of shell jobs: what they are given, what their end means, and their log."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from raftsched import limits
from raftsched.errors import Invalid
from raftsched.executors.secrets import Secrets
from raftsched.executors.shell import errors
from raftsched.worker.handlers.verdicts import Verdict
from tests.executors.shell.scene import Attempt, executor_of, until
from tests.for_each import for_each

PYTHON = sys.executable
SH = ["sh", "-c"]


@for_each(
    ("argv", "fields", "payload", "printed"),
    [
        (["echo", "$HOME", "a b"], {}, None, "$HOME a b\n"),
        (["cat"], {}, None, ""),
        (["cat"], {}, "a text\n", "a text\n"),
        (["wc", "-c"], {}, "x" * limits.PAYLOAD_BYTES_MAX, f"{limits.PAYLOAD_BYTES_MAX}\n"),
        (["cat"], {}, {"to": ["é", 1]}, '{"to":["é",1]}'),
        (["pwd"], {"cwd": "/usr"}, None, "/usr\n"),
        ([*SH, "echo $A $RAFTSCHED_JOB_ID"], {"env": {"A": "b", "RAFTSCHED_JOB_ID": "mine"}}, None, "b j1\n"),
        ([*SH, "exit 4"], {"success_exit_codes": [0, 4]}, None, ""),
        ([*SH, "ulimit -c; ulimit -t; ulimit -v"], {"cpu_seconds": 9, "memory_mib": 256}, None, "0\n9\n262144\n"),
        (["nice"], {"nice": 5}, None, f"{min(os.nice(0) + 5, 19)}\n"),
        ([PYTHON, "-c", "import os; print(os.listdir(), os.getsid(0) == os.getpid())"], {}, None, "[] True\n"),
        ([PYTHON, "-c", "import os; print(sorted(os.listdir('/proc/self/fd')))"], {}, None, "['0', '1', '2', '3']\n"),
    ],
)
async def test_command_gets_what_its_job_says(
    argv: list[str], fields: dict[str, Any], payload: Any, printed: str
) -> None:
    result = await Attempt(argv, **fields).run(payload)
    assert (result.stdout_tail, result.stderr_tail, result.signal) == (printed, "", None)
    assert result.exit_code in fields.get("success_exit_codes", [0])
    assert result.output_bytes == len(printed.encode())


async def test_command_gets_no_variables_but_a_base_those_named_and_those_of_its_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGHOST", "db")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    executor = executor_of(env=["PGHOST"], urls=["http://a", "http://b"])
    attempt = Attempt([PYTHON, "-c", "import json, os; print(json.dumps(dict(os.environ)))"], env={"MODE": "full"})
    got = json.loads((await attempt.run(executor=executor)).stdout_tail)
    expected = {
        "PGHOST": "db",
        "MODE": "full",
        "RAFTSCHED_JOB_ID": "j1",
        "RAFTSCHED_RUN_ID": "j1.1",
        "RAFTSCHED_FENCING_TOKEN": "7",
        "RAFTSCHED_ATTEMPT": "2",
        "RAFTSCHED_SCHEDULED_AT": "2026-03-01T04:30:00.000Z",
        "RAFTSCHED_URL": "http://a http://b",
    }
    assert got.items() >= expected.items()
    base = {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"}
    assert set(got) - set(expected) <= base


async def test_command_gets_the_values_of_parameters_and_its_log_no_secret(tmp_path: Path) -> None:
    parameters = {"region": "e u", "rows": 10, "none": None, "token": {"secret": "shop-token"}}
    executor = executor_of(secrets=Secrets(environment={"RAFTSCHED_SECRET_SHOP_TOKEN": "canary"}))
    file = tmp_path / "got"
    printed = (
        "$RAFTSCHED_PARAMETER_REGION,$RAFTSCHED_PARAMETER_ROWS,$RAFTSCHED_PARAMETER_NONE,$RAFTSCHED_PARAMETER_TOKEN"
    )
    attempt = Attempt([*SH, f'(echo "{printed}"; cat) | tee {file}'], parameters=parameters)
    result = await attempt.run("{{parameters.token}} {{attempt}} {{{{x}}", executor=executor)
    assert file.read_text() == "e u,10,,canary\ncanary 2 {{x}}"
    assert result.stdout_tail == "e u,10,,[secret shop-token]\n[secret shop-token] 2 {{x}}"
    assert attempt.lines == [f"stdout: {line}" for line in result.stdout_tail.splitlines()]
    foreign = Attempt(["true"], parameters=parameters)
    foreign.context.tenant = "acme"
    with pytest.raises(errors.CommandRefused, match="the secret shop-token is missing: tenants"):
        await foreign.run(None, executor=executor)
    for argv, stdin, told in (
        ([*SH, "echo $RAFTSCHED_PARAMETER_TOKEN >&2; exit 1"], None, r"\[secret shop-token\]"),
        (["cat"], "{{parameters.no}}", "stdin: no run has the fact 'parameters.no'"),
    ):
        with pytest.raises(Verdict, match=told) as caught:
            await Attempt(argv, parameters=parameters).run(stdin, executor=executor)
        assert "canary" not in str(caught.value)
    for environment, told in (
        ({}, "the secret shop-token is missing"),
        ({"RAFTSCHED_SECRET_SHOP_TOKEN": "a\0"}, "parameters.token: has a NUL"),
    ):
        with pytest.raises(errors.CommandRefused, match=told):
            await Attempt(["true"], parameters=parameters).run(
                executor=executor_of(secrets=Secrets(environment=environment))
            )


async def test_command_runs_beside_many_descriptors_and_with_variables_that_are_not_utf_8(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environ, "RAW", os.fsdecode(b"a\xffb"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_000), hard))
        for _ in range(1_100):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        result = await Attempt(["sh", "-c", "printf %s $RAW | od -An -tx1"]).run(executor=executor_of(env=["RAW"]))
    assert result.stdout_tail == " 61 ff 62\n"


async def test_own_directory_of_a_command_is_removed_with_what_is_in_it() -> None:
    result = await Attempt([*SH, "mkdir -p a/b && touch a/b/c && pwd"]).run()
    assert not Path(result.stdout_tail.strip()).exists()


@for_each(
    ("argv", "fields", "kind", "text"),
    [
        ([*SH, "echo lost >&2; exit 3"], {}, errors.RetriedExitCode, "exit code 3; the end of stderr:\nlost"),
        ([*SH, "echo half; exit 3"], {"retry_exit_codes": [3]}, errors.RetriedExitCode, "the end of stdout:\nhalf"),
        ([*SH, "exit 3"], {"retry_exit_codes": [4, 5]}, errors.FinalExitCode, "exit code 3"),
        ([*SH, "exit 0"], {"success_exit_codes": [9], "retry_exit_codes": []}, errors.FinalExitCode, "exit code 0"),
        ([*SH, "ulimit -c 0; kill -SEGV $$"], {}, errors.KilledBySignal, "SIGSEGV"),
        ([*SH, "kill -40 $$"], {}, errors.KilledBySignal, "signal 40"),
        ([PYTHON, "-c", "while True: pass"], {"cpu_seconds": 1}, errors.KilledBySignal, "SIGXCPU"),
        ([PYTHON, "-c", "bytes(1 << 30)"], {"memory_mib": 200}, errors.RetriedExitCode, "MemoryError"),
        (["no-such-program"], {}, errors.CommandRefused, "no program 'no-such-program'"),
        (["/usr/bin/no-such-program"], {}, errors.CommandRefused, "no program"),
        (["/etc/passwd"], {}, errors.CommandRefused, "no program"),
        (["bin/sh"], {}, errors.CommandRefused, "relative path"),
        (["./sh"], {}, errors.CommandRefused, "relative path"),
        ([""], {}, errors.CommandRefused, "no program ''"),
        (["pwd"], {"cwd": "/no/such/directory"}, errors.CommandRefused, "/no/such/directory"),
        (["pwd"], {"cwd": "usr"}, errors.CommandRefused, "'usr' is not an absolute path"),
        (["echo", "a\0b"], {}, errors.CommandRefused, "null byte"),
        (["pwd"], {"user": "root"}, errors.CommandRefused, "does not understand"),
    ],
)
async def test_end_of_a_command_is_tried_again_or_final(
    argv: list[str], fields: dict[str, Any], kind: type[Verdict], text: str
) -> None:
    with pytest.raises(kind) as caught:
        await Attempt(argv, **fields).run()
    assert text in str(caught.value)


async def test_list_of_programs_is_kept_to(tmp_path: Path) -> None:
    other = tmp_path / "true"
    other.symlink_to("/usr/bin/true")
    executor = executor_of(allow=["/usr/bin/true"])
    for argv in (["true"], ["/usr/bin/true"], ["/usr/lib/../bin/true"]):
        await Attempt(argv).run(executor=executor)
    refused: list[tuple[list[str], dict[str, Any]]] = [
        (["false"], {}),
        ([str(other)], {}),
        (["true"], {"env": {"LD_PRELOAD": "/tmp/x.so"}}),
        (["true"], {"env": {"PATH": "/tmp"}}),
    ]
    for argv, fields in refused:
        with pytest.raises(errors.CommandRefused, match="--allow"):
            await Attempt(argv, **fields).run(executor=executor)


@for_each(
    ("options", "field"),
    [
        ({"allow": []}, "allow"),
        ({"allow": ["true"]}, "allow"),
        ({"allow": ["/no/such/program"]}, "allow"),
        ({"allow": None, "env": ["NO_SUCH_VARIABLE"]}, "env"),
    ],
)
def test_executor_that_could_run_nothing_right_is_refused(options: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        executor_of(**options)
    assert caught.value.field == field


async def test_output_is_logged_while_the_command_runs_with_the_names_of_its_streams(tmp_path: Path) -> None:
    attempt = Attempt(
        [*SH, "echo one; printf 'b\\377d\\n' >&2; until [ -e go ]; do sleep 0.01; done; printf end"], cwd=str(tmp_path)
    )
    running = asyncio.create_task(attempt.run())
    await until(lambda: len(attempt.lines) == 2)
    assert sorted(attempt.lines) == ["stderr: b\N{REPLACEMENT CHARACTER}d", "stdout: one"]
    assert not running.done()
    (tmp_path / "go").touch()
    await running
    assert attempt.lines[2:] == ["stdout: end"]
    assert attempt.beat_count >= 3


async def test_flood_of_output_fills_the_log_and_is_counted_but_not_kept() -> None:
    result = await Attempt([*SH, "yes | head -c 20000000; echo end"]).run()
    assert result.output_bytes == 20_000_004
    assert result.truncated
    assert result.stdout_tail.endswith("y\nend\n")
