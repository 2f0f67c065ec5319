"""Read the command lines of systemd (`ExecStart=`), see systemd.service(5): no shell, quotes, escapes, variables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from raftsched.errors import Invalid

_PREFIXES: Final = "-@:+!|"
_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "s": " ",
    "\\": "\\",
    '"': '"',
    "'": "'",
}
_NUMBER: Final = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})")
_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t\n]+)|\\(?P<escape>.)|(?P<quote>["'])|(?P<plain>[^ \t\n\\"']+)""", re.DOTALL
)
_REFERENCE: Final = re.compile(r"\$\$|\$\{(?P<name>\w+)\}", re.ASCII)
_WHOLE: Final = re.compile(r"\$(?P<name>[A-Za-z_]\w*)", re.ASCII)


class ExecLine(NamedTuple):
    """A command line: its special prefixes, and its words."""

    prefixes: str
    words: list[str]


def read_exec_line(text: str, environment: Mapping[str, str]) -> ExecLine:
    """Return the command that systemd would run; raises `Invalid` if that depends on more than the unit."""
    plain = text.lstrip(_PREFIXES)
    prefixes = text[: len(text) - len(plain)]
    if "@" in prefixes:
        raise Invalid("`@` gives the program another name, which a shell worker can't")
    words = list(split_words(plain))
    if ";" in words:
        raise Invalid("`;` joins several commands; write an ExecStart for each")
    if not words:
        raise Invalid("there is no command")
    if ":" not in prefixes:
        words = [words[0], *(each for word in words[1:] for each in _expanded(word, environment))]
    return ExecLine(prefixes, words)


def split_words(text: str) -> Iterator[str]:
    """Yield the words of a line, without their quotes and escapes; raises `Invalid` if a quote is not closed."""
    word: str | None = None
    at = 0
    while match := _TOKEN.match(text, at):
        at = match.end()
        if match["blank"] is not None:
            if word is not None:
                yield word
            word = None
        elif match["quote"] is not None:
            inner, at = _quoted(text, at, match["quote"])
            word = (word or "") + inner
        elif match["escape"] is not None:
            character, at = _unescaped(text, at - 1)
            word = (word or "") + character
        else:
            word = (word or "") + match["plain"]
    if at < len(text):
        raise Invalid("the command line ends with a backslash")
    if word is not None:
        yield word


def _quoted(text: str, at: int, quote: str) -> tuple[str, int]:
    """Return the text up to the closing quote, and the position behind it."""
    inner = ""
    while at < len(text) and text[at] != quote:
        if text[at] == "\\":
            character, at = _unescaped(text, at + 1)
            inner += character
        else:
            inner += text[at]
            at += 1
    if at >= len(text):
        raise Invalid(f"a quote {quote} is not closed")
    return inner, at + 1


def _unescaped(text: str, at: int) -> tuple[str, int]:
    """Return the character that the escape at this position means, and the position behind it."""
    if match := _NUMBER.match(text, at):
        code = next(int(digits, 8 if number == 3 else 16) for number, digits in enumerate(match.groups()) if digits)
        return chr(code), match.end()
    character = _ESCAPES.get(text[at : at + 1])
    if character is None:
        raise Invalid(f"the escape \\{text[at : at + 1]} is not known")
    return character, at + 1


def _expanded(word: str, environment: Mapping[str, str]) -> list[str]:
    r"""Return a word with its variables: `$NAME` alone becomes any number of words, `${NAME}` is a part of one."""
    if match := _WHOLE.fullmatch(word):
        return _value(match["name"], environment).split()

    def value(match: re.Match[str]) -> str:
        return "$" if match["name"] is None else _value(match["name"], environment)

    return [_REFERENCE.sub(value, word)]


def _value(name: str, environment: Mapping[str, str]) -> str:
    if name not in environment:
        raise Invalid(f"the command needs ${name}, whose value is not in the unit; set it with Environment=")
    return environment[name]
