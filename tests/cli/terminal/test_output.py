from __future__ import annotations

import msgspec
import pytest
from rich.console import Console
from rich.text import Text

from raftsched.cli.terminal import output
from raftsched.cli.terminal.output import (
    TextConsole,
    console,
    error_line,
    print_fields,
    print_json,
    print_json_line,
    print_table,
    say,
    status_text,
    tell,
)
from raftsched.errors import Invalid, NotFound, OutcomeUnknown, Rejected


def test_table_shows_texts_as_they_are_and_aligns_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "count"), [("[bold]a[/bold]", 1_234), ("b", 5)])
    lines = capsys.readouterr().out.splitlines()
    assert any("[bold]a[/bold]   1,234" in line for line in lines)
    assert any(line.rstrip().endswith("    5") for line in lines)


def test_long_texts_are_whole_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name",), [("x" * 900,)])
    print_fields({"text": "y" * 3_000, "nothing": None})
    say("z" * 3_000)
    out = capsys.readouterr().out
    assert "x" * 900 in out
    assert "y" * 3_000 in out
    assert "z" * 3_000 in out
    assert "nothing" not in out


def test_narrow_terminal_leaves_out_what_is_optional_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for width, columns in ((80, "id name queue"), (50, "id name"), (45, "id")):
        narrow = Console(width=width, force_terminal=True, color_system=None, highlight=False)
        monkeypatch.setattr(output, "console", narrow)
        with narrow.capture() as captured:
            print_table(("id", "name", "queue"), [("7" * 36, "send", "mail")], optional=("queue", "name"))
        heading, *_ = [line for line in captured.get().splitlines() if line.strip()]
        assert heading.split() == columns.split()
        assert ("no room for queue" in captured.get()) == (width < 80)


def on_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> Console:
    narrow = Console(width=width, force_terminal=True, color_system=None, highlight=False)
    monkeypatch.setattr(output, "console", narrow)
    return narrow


@pytest.mark.parametrize("prefix", ["", "job:"])
def test_ids_are_never_cut_off_whatever_their_column_is_called(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    job_id = prefix + "01980000-0000-7000-8000-00000000abcd"
    narrow = on_terminal(monkeypatch, 80)
    with narrow.capture() as captured:
        print_table(("task", "job", "status", "text"), [("t" * 40, job_id, "queued", "x" * 40)])
    assert job_id in captured.get()


def test_folded_texts_are_whole_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = on_terminal(monkeypatch, 60)
    detail = " ".join(f"word{number}" for number in range(30))
    with narrow.capture() as captured:
        print_table(("id", "detail"), [("7" * 36, detail)], folded=("detail",))
    words = captured.get().split()
    assert [word for word in words if word.startswith("word")] == detail.split()


def test_table_of_nothing_says_so_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "count"), [], if_none="see --help")
    print_table(("name",), [], title="what there is")
    assert capsys.readouterr().out == "none: see --help\nwhat there is\nnone\n"


def test_status_has_its_colour_on_a_terminal_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_text("dead_letter").style == "red"
    assert not console.is_terminal
    say(status_text("dead_letter"))
    assert capsys.readouterr().out == "dead_letter\n"


def test_error_is_one_line_with_its_code_and_what_to_do() -> None:
    assert error_line(Invalid("queue: is\nbad", field="queue")) == "raftsched: queue: is bad [invalid]"
    assert error_line(NotFound("there is no such job")).startswith("raftsched: there is no such job [not_found] See ")
    assert "It may have happened" in error_line(OutcomeUnknown("no reply"))
    assert error_line(Rejected("running", "it runs")).endswith("or cancel the job.")
    assert error_line(Rejected("of_a_version_to_come", "no")) == "raftsched: no [of_a_version_to_come]"


def test_controls_of_texts_are_shown_and_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("na\x1bme", "text"), [("\x1b[31mred", "a\rb\x9bc\x7f")], title="\x1b]0;title\x07")
    print_fields({"reason": "\x1b[2J", "status": "\x1b[5m"})
    say("\x1b[1A\x08")
    say(Text("\x1b[31m"))
    console.print("\x1b[32m")
    tell("\x1b[33m")
    captured = capsys.readouterr()
    shown = captured.out + captured.err
    assert [char for char in shown if not char.isprintable() and char != "\n"] == []
    for text in (r"\x1b[31mred", r"a\x0db\x9bc\x7f", r"\x1b]0;title\x07", r"\x1b[2J", r"\x1b[5m", r"\x1b[1A\x08"):
        assert text in shown
    assert r"\x1b" in error_line(Invalid("name: \x1b[31m is bad", field="name"))


def test_lines_and_tabs_of_texts_stay(capsys: pytest.CaptureFixture[str]) -> None:
    say("one\n\ttwo")
    assert capsys.readouterr().out.expandtabs(8) == "one\n        two\n"


def test_table_with_controls_stays_in_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "queue"), [("\x1b[31ma", "mail"), ("b", "mail")])
    *_, first, second = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert first.index("mail") == second.index("mail")


def test_own_styles_reach_the_terminal_beside_controls_that_do_not() -> None:
    terminal = TextConsole(force_terminal=True, color_system="standard", width=80)
    with terminal.capture() as captured:
        terminal.print(Text.assemble(("failed", "red"), " \x1b[32m"))
    assert captured.get() == "\x1b[31mfailed\x1b[0m \\x1b[32m\n"


def test_json_holds_no_controls(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"name": "\x1b\x9b31m\x7f é"}
    print_json(document)
    print_json_line(document)
    lines = capsys.readouterr().out.splitlines()
    assert [msgspec.json.decode(line) for line in lines] == [document, document]
    assert all(line.isprintable() for line in lines)
