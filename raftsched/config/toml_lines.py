"""Find the line of each key of a TOML document, which `tomllib` does not tell.

The document must be valid: `tomllib` has read it before. So this follows its structure only, and checks nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Final

Path = tuple[str | int, ...]
"""Keys of tables and positions in arrays, from the root."""
_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_KEY: Final = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_STRING: Final = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}(?!")|\'\'\'.*?'{3,5}(?!')|"(?:[^"\\\n]|\\.)*"|'[^'\n]*\'''', re.DOTALL
)
_BARE: Final = re.compile(r"[^,\]}\n#]+")


def lines_of(document: str) -> Mapping[Path, int]:
    """Return the line of each table, key and item of a valid document; lines count from 1."""
    return _Walk(document).lines


class _Walk:
    """One pass over a document; `at` is the position in it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line, self._counted_to = 1, 0
        self._lengths: dict[Path, int] = {}
        """Tables so far in each array of tables."""
        self.lines: dict[Path, int] = {}
        table: Path = ()
        while self._skip(_BLANK) < len(text):
            table = self._statement(table)

    def _statement(self, table: Path) -> Path:
        """Read a header or a key with its value; return the table that the next ones belong to."""
        if not self._text.startswith("[", self._at):
            self._key_and_value(table)
            return table
        is_array = self._text.startswith("[[", self._at)
        self._at += 1 + is_array
        path = self._key(())
        if is_array:
            length = self._lengths[path] = self._lengths.get(path, 0) + 1
            path = (*path, length - 1)
            self._note(path)
        self._at += 1 + is_array
        return path

    def _key_and_value(self, table: Path) -> None:
        path = self._key(table)
        self._at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(path)

    def _key(self, path: Path) -> Path:
        """Read a key with dots below `path`, and the space around it; return its whole path."""
        while True:
            self._skip(_SPACE)
            path = (*path, self._key_part())
            self._note(path)
            self._skip(_SPACE)
            if not self._text.startswith(".", self._at):
                return path
            if path in self._lengths:
                path = (*path, self._lengths[path] - 1)
            self._at += 1

    def _key_part(self) -> str:
        text = self._take(_KEY)
        return str(tomllib.loads(f"key = {text}")["key"]) if text[0] in "\"'" else text

    def _value(self, path: Path) -> None:
        first = self._text[self._at]
        if first in "\"'":
            self._take(_STRING)
        elif first == "[":
            self._items(path)
        elif first == "{":
            self._fields(path)
        else:
            self._take(_BARE)

    def _items(self, path: Path) -> None:
        position = 0
        while self._next("]"):
            self._note((*path, position))
            self._value((*path, position))
            position += 1
        self._at += 1

    def _fields(self, path: Path) -> None:
        while self._next("}"):
            self._key_and_value(path)
        self._at += 1

    def _next(self, end: str) -> bool:
        """Move over the opening or the comma to the next item; return whether there is one before `end`."""
        if self._text[self._skip(_BLANK)] != end:
            self._at += 1
            self._skip(_BLANK)
        return self._text[self._at] != end

    def _note(self, path: Path) -> None:
        if path not in self.lines:
            self._line += self._text.count("\n", self._counted_to, self._at)
            self._counted_to = self._at
            self.lines[path] = self._line

    def _skip(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self._text, self._at)
        assert found is not None, "it matches nothing as well"
        self._at = found.end()
        return self._at

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        assert found is not None, f"not TOML at {self._at}"
        self._at = found.end()
        return found[0]
