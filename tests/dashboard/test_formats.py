"""Texts of ours are formatted, and what is inserted into them is escaped."""

from __future__ import annotations

from raftsched.dashboard.formats import prose


def test_commands_in_a_text_are_code_and_all_of_it_is_escaped() -> None:
    assert prose("run `raftsched <b>`, <i>then `wait`") == (
        "run <code>raftsched &lt;b&gt;</code>, &lt;i&gt;then <code>wait</code>"
    )
