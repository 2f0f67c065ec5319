"""Read files that people write, YAML or JSON, strictly, and locate their fields.

YAML is read by the rules of its version 1.2 (the core schema), with PyYAML's safe loader: `no` is a text and not false,
`22:30` a text and not a number, a date stays as it was written. A duplicate key is refused, since one of its two values
would be lost silently. The cluster judges the content; `Document.line_of` finds the field at fault.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from raftsched.errors import Invalid, Malformed, RaftschedError, Rejected

_PARTS_MAX: Final = 1_000_000
"""Values in a file once its aliases are written out: some lines of aliases can mean more than any memory holds."""
_STDIN: Final = "-"
STDIN_NAME: Final = "standard input"
_TAG: Final = "tag:yaml.org,2002:"
_INDEX: Final = re.compile(r"\[(\d+)\]")


class Document(NamedTuple):
    """A file that was read."""

    name: str
    value: Any
    node: Node | None
    """Positions of its parts; None if they are not known."""

    def line_of(self, path: str) -> int | None:
        """Return the line of the field at `path`, as in `schedules[2].job.queue`, or of the nearest part around it."""
        node, line = self.node, None
        while node is not None:
            node, path, mark = _step(node, path)
            line = line if mark is None else mark.line + 1
        return line

    def fault(self, error: Invalid | Rejected, field: str, message: str) -> RaftschedError:
        """Return `error` with the place in this file in front of `message`; its code stays."""
        line = self.line_of(field)
        told = f"{self.name}:{line}: {message}" if line else f"{self.name}: {message}"
        if isinstance(error, Rejected):
            return Rejected(error.code, told, http_status=error.http_status, field=field, members=error.members)
        return type(error)(told, field=field)


def read_document(path: Path) -> Document:
    """Return the document in a file, `-` = standard input; raises `Malformed` naming the file and the line."""
    name, text = read_text(path)
    return _parse(name, text, is_stream=False)[0]


def parse_documents(name: str, text: str) -> list[Document]:
    """Return the documents of a text, one of JSON or any number of YAML; raises `Malformed` naming the line."""
    return _parse(name, text, is_stream=True)


def read_text(path: Path) -> tuple[str, str]:
    """Return the name of a file and its text, `-` = standard input; raises `Malformed` naming the file."""
    name = STDIN_NAME if str(path) == _STDIN else str(path)
    try:
        return name, sys.stdin.read() if str(path) == _STDIN else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Malformed(f"{name}: can't be read as UTF-8 text: {error}") from error


def _parse(name: str, text: str, *, is_stream: bool) -> list[Document]:
    try:
        documents = [_read_json(name, text)] if name.endswith(".json") else list(_read_yaml(name, text, is_stream))
    except RecursionError:
        raise Malformed(f"{name}: nested too deeply") from None
    for document in documents:
        _check_size(document)
    return documents


# -- JSON -------------------------------------------------------------------------------------------------------------


def _read_json(name: str, text: str) -> Document:
    try:
        value = json.loads(text, object_pairs_hook=_unique_pairs, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise Malformed(f"{name}:{error.lineno}: not JSON: {error.msg}") from error
    except ValueError as error:
        raise Malformed(f"{name}: {error}") from error
    try:
        node = yaml.compose(text, _Loader)
    except yaml.YAMLError:  # JSON allows tabs at places at which YAML does not
        node = None
    return Document(name, value, node)


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key}: duplicate key")
        found[key] = value
    return found


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


# -- YAML -------------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """The safe loader with the core schema of YAML 1.2; keys are texts, each once."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # as PyYAML has it; filled below

    def compose_mapping_node(self, anchor: Any) -> MappingNode:
        """Refuse a duplicate key, before merging brings in those of other mappings."""
        node: MappingNode = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, ScalarNode) or key.tag not in (f"{_TAG}str", f"{_TAG}merge"):
                told = "a key must be text; put it into quotes"
                raise yaml.composer.ComposerError(None, None, told, key.start_mark)
            if key.value in seen:
                told = f"{key.value}: duplicate key"
                raise yaml.composer.ComposerError(None, None, told, key.start_mark)
            seen.add(key.value)
        return node


def _construct_int(_: _Loader, node: ScalarNode) -> int:
    text = str(node.value)
    return int(text, 0) if text[:2].lower() in ("0x", "0o") else int(text)


CORE_SCHEMA: Final = tuple(
    (f"{_TAG}{kind}", re.compile(rf"(?:{pattern})\Z"), list(first))
    for kind, pattern, first in (
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
        ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+0123456789."),
        ("merge", r"<<", "<"),
    )
)
"""The plain values that are no texts: their tag, their form, and the characters with which they begin."""

for _resolver in CORE_SCHEMA:
    _Loader.add_implicit_resolver(*_resolver)
_Loader.add_constructor(f"{_TAG}int", _construct_int)


def _read_yaml(name: str, text: str, is_stream: bool) -> Iterator[Document]:
    loader = _Loader(text)
    try:
        for node in _nodes(loader) if is_stream else [loader.get_single_node()]:
            yield Document(name, None if node is None else loader.construct_document(node), node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise Malformed(f"{where}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise Malformed(f"{name}: {' '.join(str(error).split())}") from error
    finally:
        loader.dispose()


def _nodes(loader: _Loader) -> Iterator[Node]:
    while loader.check_node():
        node = loader.get_node()
        assert node is not None
        yield node


def _check_size(document: Document) -> None:
    """Refuse a document that is too large once aliases are written out, or that contains itself."""
    waiting = [document.value]
    count = 0
    while waiting:
        value = waiting.pop()
        count += 1
        if count > _PARTS_MAX:
            raise Malformed(f"{document.name}: means more than {_PARTS_MAX:,} values; mind its aliases")
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


# -- the position of a field ------------------------------------------------------------------------------------------


def _step(node: Node, path: str) -> tuple[Node | None, str, yaml.Mark | None]:
    """Return the next node along `path`, the rest of the path, and the position at which that node, or its key, begins."""
    if isinstance(node, SequenceNode):
        index = _INDEX.match(path)
        if index is None or int(index[1]) >= len(node.value):
            return None, "", None
        item = node.value[int(index[1])]
        return item, path[index.end() :], item.start_mark
    if not isinstance(node, MappingNode):
        return None, "", None
    path = path.removeprefix(".")
    fitting = [(key, value) for key, value in node.value if key.value and _begins(path, key.value)]
    if not fitting:
        return None, "", None
    key, value = max(fitting, key=lambda pair: len(pair[0].value))  # the names of tasks may have dots in them
    return value, path[len(key.value) :], key.start_mark


def _begins(path: str, key: str) -> bool:
    return path.startswith(key) and path[len(key) : len(key) + 1] in ("", ".", "[")
