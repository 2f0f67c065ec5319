"""Define the options of jobs that need no handler, an HTTP request or a command, and show such jobs.

The words after `--` are the command: they are passed on as they are, options among them.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

import click
import msgspec

from raftsched.cli.terminal.options import FILE, options, pairs, payload_field
from raftsched.cli.terminal.times import SPAN
from raftsched.errors import Invalid
from raftsched.wire.calls import HttpCall

_END_OF_OPTIONS: Final = "--"
_METHODS: Final = get_args(get_type_hints(HttpCall)["method"])


class _SectionOption(click.Option):
    """An option that the help text lists in a section of its own."""

    def __init__(self, *names: Any, section: str, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.section = section


class HandlerlessCommand(click.Command):
    """A command whose arguments after `--` are its parameter `argv`, if it is given --shell."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        argv: list[str] = []
        if _END_OF_OPTIONS in args and "--shell" in args[: args.index(_END_OF_OPTIONS)]:
            position = args.index(_END_OF_OPTIONS)
            args, argv = args[:position], args[position + 1 :]
        ctx.params["argv"] = tuple(argv)
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            section = parameter.section if isinstance(parameter, _SectionOption) else "Options"
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                sections.setdefault(section, []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)


def _http_option(*names: str, **settings: Any) -> Any:
    return click.option(*names, cls=_SectionOption, section="HTTP requests", **settings)


def _shell_option(*names: str, **settings: Any) -> Any:
    return click.option(*names, cls=_SectionOption, section="Commands", **settings)


_HTTP: Final = "http"
_SHELL: Final = "shell"
http_options = options(
    _http_option("--http", _HTTP, metavar="URL", help="Send a request to URL, in place of a handler of a worker."),
    _http_option("--method", "http_method", type=click.Choice(_METHODS), metavar="METHOD", help="Default: POST."),
    _http_option("--header", "http_headers", multiple=True, metavar="'NAME: VALUE'", help="Repeatable."),
    _http_option("--body", "http_body", metavar="TEXT", help="JSON is sent as JSON, other text as it is."),
    _http_option("--body-file", "http_body_file", type=FILE, help="The same from a file; - = standard input."),
    _http_option(
        "--sign", "http_signing_secret", metavar="SECRET", help="Sign it with the secret of this name, as webhooks are."
    ),
    _http_option(
        "--bearer", "http_bearer", metavar="SECRET", help="Send the secret of this name as Authorization: Bearer."
    ),
    _http_option(
        "--success-status",
        "http_success_statuses",
        multiple=True,
        metavar="STATUS",
        help="As 204 or 3xx; default: 2xx. Repeatable.",
    ),
    _http_option(
        "--retry-status",
        "http_retry_statuses",
        multiple=True,
        metavar="STATUS",
        help="Statuses to try again; default: 408, 425, 429, 5xx. Others are final. Repeatable.",
    ),
    _http_option("--max-redirects", "http_max_redirects", type=int, help="Redirects to follow; default: 0."),
    _http_option(
        "--http-timeout",
        "http_timeout_seconds",
        type=SPAN,
        help="Longest time for the exchange; default: 30s. --timeout limits the attempt.",
    ),
    _http_option(
        "--callback",
        "http_completion",
        flag_value="callback",
        help="After a 202 the run lasts until its target reports the outcome. Needs --timeout.",
    ),
)
shell_options = options(
    _shell_option("--shell", _SHELL, is_flag=True, help="Run the command after --, in place of a handler of a worker."),
    _shell_option(
        "--env", "shell_env", multiple=True, metavar="NAME=VALUE", help="Variable of its environment. Repeatable."
    ),
    _shell_option("--cwd", "shell_cwd", metavar="DIR", help="Default: an empty directory of its own."),
    _shell_option("--stdin-file", "shell_stdin", type=FILE, help="Text for its standard input; - = that of this."),
    _shell_option(
        "--success-exit-code", "shell_success_exit_codes", type=int, multiple=True, help="Default: 0. Repeatable."
    ),
    _shell_option(
        "--retry-exit-code",
        "shell_retry_exit_codes",
        type=int,
        multiple=True,
        help="Exit codes to try again; default: all others. Repeatable.",
    ),
    _shell_option("--nice", "shell_nice", type=int, help="0 to 19; higher yields to other processes."),
    _shell_option("--memory-mib", "shell_memory_mib", type=int, help="Longest address space of each process."),
    _shell_option("--cpu-seconds", "shell_cpu_seconds", type=int, help="Longest CPU time of each process."),
)
handlerless_options = options(http_options, shell_options)
_OPTIONS: Final[Mapping[str, click.Option]] = {
    str(option.name): option for option in handlerless_options(lambda: None).__click_params__
}


# -- the fields of a request -------------------------------------------------------------------------------------------


def work_fields(name: str | None, payload: str | None, fields: dict[str, Any]) -> dict[str, Any]:
    """Return `name`, and one of `payload`, `http` and `shell` of a job; {} if nothing says what it does.

    It takes the options of `handlerless_options` and `argv` out of `fields`. Raises `click.UsageError` naming the option
    if they do not go together, and `Invalid` for a file that can't be read.
    """
    argv = fields.pop("argv")
    wanted = {option: value for option in _OPTIONS if _is_given(value := fields.pop(option))}
    _check(wanted, argv, payload, has_timeout=fields["timeout_seconds"] is not None)
    document = {"name": name} if name else {}
    if _HTTP in wanted:
        return document | {"http": {"url": wanted.pop(_HTTP)} | dict(_http_fields(wanted))}
    if _SHELL in wanted:
        return document | {"shell": {"argv": list(argv)} | dict(_shell_fields(wanted))}
    return document | payload_field(payload)


def _is_given(value: Any) -> bool:
    return value is not None and value is not False and value != ()


def _check(wanted: Mapping[str, Any], argv: Sequence[str], payload: str | None, *, has_timeout: bool) -> None:
    """Raise `click.UsageError` if the options do not go together."""
    fault = ""
    kinds = wanted.keys() & {_HTTP, _SHELL}
    strays = [option for option in wanted if option.partition("_")[0] not in kinds]
    if len(kinds) > 1:
        fault = "--shell: give either --http or --shell"
    elif strays:
        needed = "--http URL" if strays[0].startswith(_HTTP) else "--shell"
        fault = f"{_OPTIONS[strays[0]].opts[0]}: is an option of {needed}"
    elif kinds and payload is not None:
        fault = f"PAYLOAD: goes to handlers; give {'--body' if _HTTP in kinds else '--stdin-file'}"
    elif _SHELL in kinds and not argv:
        fault = "--shell: give the command after --, as in: --shell -- pg_dump -Fc shop"
    elif wanted.keys() >= {"http_body", "http_body_file"}:
        fault = "--body-file: give either --body or --body-file"
    elif "http_completion" in wanted and not has_timeout:
        fault = "--callback: give --timeout, too; the run ends by then"
    if fault:
        raise click.UsageError(fault)


def _http_fields(wanted: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for option, value in wanted.items():
        field = option.removeprefix("http_")
        if field == "headers":
            yield field, pairs(value, ":", "--header", "'Name: value'")
        elif field == "body":
            yield field, _json_or_text(value)
        elif field == "body_file":
            yield "body", _json_or_text(_read(value, "--body-file"))
        else:
            yield field, {"secret": value} if field == "bearer" else value


def _shell_fields(wanted: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for option, value in wanted.items():
        field = option.removeprefix("shell_")
        if field == "env":
            yield field, pairs(value, "=", "--env", "NAME=VALUE")
        elif field == "stdin":
            yield field, _read(value, "--stdin-file")
        elif option != _SHELL:
            yield field, value


def _json_or_text(text: str) -> msgspec.Raw | str:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return msgspec.Raw(text.encode())


def _read(path: Path, option: str) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{option}: {path} can't be read as UTF-8 text: {error}", field=option) from None


# -- shown to people ---------------------------------------------------------------------------------------------------


def shown_work(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a job or queue with its request, command and hooks in the form in which people write them."""
    texts = {"http": _http_text, "shell": _shell_text, "on_failure": hook_text, "on_success": hook_text}
    shown = {field: text(document[field]) for field, text in texts.items() if document.get(field)}
    return {**document, **shown}


def hook_text(hook: Mapping[str, Any]) -> str:
    """Return what the job of a hook does."""
    if hook.get("http"):
        return _http_text(hook["http"])
    if hook.get("shell"):
        return _shell_text(hook["shell"])
    return f"submit {hook['name']}"


def _http_text(call: Mapping[str, Any]) -> str:
    return _with_others(f"{call.get('method', 'POST')} {call['url']}", call, {"method", "url"})


def _shell_text(command: Mapping[str, Any]) -> str:
    return _with_others(shlex.join(command["argv"]), command, {"argv"})


def _with_others(text: str, document: Mapping[str, Any], shown: set[str]) -> str:
    others = {field: value for field, value in document.items() if field not in shown}
    return f"{text}  {msgspec.json.encode(others).decode()}" if others else text
