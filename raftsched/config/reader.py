"""Read the settings of a node from a TOML file and from variables, and name each fault with its line or its variable."""

from __future__ import annotations

import os
import re
import socket
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from raftsched.config import toml_lines
from raftsched.config.conversion import Fault, convert
from raftsched.config.settings import PATTERN_RULES, NodeConfig
from raftsched.environment import setting_of, settings_in, unknown_in
from raftsched.errors import Invalid
from raftsched.own_node import nodes_here

_LINE: Final = re.compile(r" ?\(at line (?P<line>\d+), column \d+\)$")
_NEEDED: Final = {
    "auth": 'not set; say auth = "token", or auth = "none" if all who reach the API are trusted',
    "node_id": f"not set, and not exactly one of the nodes has this machine's host name, {socket.gethostname()}, in its raft "
    "address; set RAFTSCHED_NODE_ID",
}
"""Messages about required settings that are not set."""
_STAND_INS: Final = {
    "node_id": "n1",
    "data_dir": "/",
    "nodes": [{"id": "n1", "raft": "localhost:1", "api": "localhost:2"}],
    "auth": "none",
}
_SETTING: Final = re.compile(r"[a-z][\w.\[\]-]*(?=: )")
"""A setting at the beginning of a message about it."""


class ConfigInvalid(Invalid):
    """Settings that can't be used; `faults` has all of them, each with its place."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(self.faults))


@dataclass(frozen=True, slots=True)
class Places:
    """The place from which each setting was read."""

    file: str = ""
    """Path of the file; "" if there is none."""
    lines: Mapping[toml_lines.Path, int] = field(default_factory=dict)
    """Lines of the file, by the path of keys."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that override the file, by setting."""
    names: Mapping[str, toml_lines.Path] = field(default_factory=dict)
    """Paths by the names of settings in messages, as `nodes.n1.raft`."""

    def at(self, path: toml_lines.Path) -> str:
        """Return the variable or the file and the line of a setting; the line of the table that lacks it."""
        if path and (variable := self.variables.get(str(path[0]))):
            return variable
        line = self.line(path)
        return f"{self.file}:{line}" if line else self.file

    def line(self, path: toml_lines.Path) -> int:
        """Return the line of a setting, or of the table that lacks it; 0 if there is none."""
        return next((self.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.lines), 0)

    def of(self, message: str) -> str:
        """Return a message about a setting, which begins with its name, after its place; another one as it is."""
        path = self.path_in(message)
        return _joined(self.at(path), message) if path else message

    def path_in(self, message: str) -> toml_lines.Path:
        """Return the path of the setting whose name begins a message; () if none does."""
        name = _SETTING.match(message)
        path = self.names.get(name[0], tuple(name[0].split("."))) if name else ()
        return path if path and path[0] in NodeConfig.__struct_fields__ else ()


@dataclass(frozen=True, slots=True)
class ReadConfig:
    """Settings, and where they were read."""

    config: NodeConfig
    places: Places


def load(path: Path | None, environment: Mapping[str, str] = os.environ) -> NodeConfig:
    """Return the settings; raises `ConfigInvalid` with every fault."""
    return read(path, environment).config


def read(path: Path | None, environment: Mapping[str, str] = os.environ) -> ReadConfig:
    """Return the settings with their places; raises `ConfigInvalid` with every fault."""
    text = "" if path is None else _text_of(path)
    values = _parsed(text, path)
    faults = list(unknown_in(environment, _setting_names()).values())
    variables = {}
    for variable, given in settings_in(environment, _setting_names()).items():
        variables[setting_of(variable)] = variable
        try:
            values[setting_of(variable)] = _value(variable, given)
        except Invalid as error:
            faults.append(str(error))
            values.pop(setting_of(variable), None)
    if "node_id" not in values:
        values |= _own_id(values.get("nodes"))
    lines = toml_lines.lines_of(text)
    places = Places("" if path is None else str(path), lines, variables, _names(values))
    config, found = convert(values, NodeConfig, rules=PATTERN_RULES, stand_ins=_STAND_INS)
    broken = {setting_of(fault.partition(":")[0]) for fault in faults}
    faults += [
        _told(fault, places)
        for fault in sorted(found, key=lambda fault: places.line(fault.path or places.path_in(fault.text)))
        if not fault.path or fault.path[0] not in broken
    ]
    if faults or config is None:
        raise ConfigInvalid(faults)
    return ReadConfig(config, places)


def _own_id(nodes: Any) -> dict[str, Any]:
    """Return the setting `node_id` of the one node that has this machine's host name; {} if that is none or several."""
    tables = [node for node in (nodes if isinstance(nodes, list) else ()) if isinstance(node, dict)]
    here = nodes_here((node.get("id", ""), str(node.get("raft"))) for node in tables)
    return {"node_id": here[0]} if len(here) == 1 else {}


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigInvalid([f"{path}: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise ConfigInvalid([f"{path}:{line}: not UTF-8"]) from error


def _parsed(text: str, path: Path | None) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        told = str(error)
        place = _LINE.search(told)
        line = f":{place['line']}" if place else f":{text.count(chr(10)) + 1}"
        raise ConfigInvalid([f"{path}{line}: {_LINE.sub('', told)}"]) from error


def _names(values: Mapping[str, Any]) -> dict[str, toml_lines.Path]:
    """Return the paths of what messages name otherwise: nodes by their ids."""
    nodes = values.get("nodes")
    found: dict[str, toml_lines.Path] = {}
    for number, node in enumerate(nodes if isinstance(nodes, list) else ()):
        if isinstance(node, dict):
            found |= {f"nodes.{node.get('id')}.{key}": ("nodes", number, key) for key in ("raft", "api")}
    return found


def _told(fault: Fault, places: Places) -> str:
    if not fault.path or fault.text.startswith(f"{fault.path[0]}."):
        return places.of(fault.text)
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault.path).removeprefix(".")
    text = _NEEDED.get(name, fault.text) if fault.text.startswith("not set") else fault.text
    place = places.at(fault.path)
    variable = places.variables.get(str(fault.path[0]))
    return f"{variable}: {text}" if variable and len(fault.path) == 1 else _joined(place, f"{name}: {text}")


def _joined(place: str, message: str) -> str:
    return f"{place}: {message}" if place else message


def _setting_names() -> list[str]:
    return [each.name for each in msgspec.structs.fields(NodeConfig)]


def _value(variable: str, text: str) -> Any:
    if not text.startswith(("[", "{")) or variable.endswith(("_LISTEN",)):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise Invalid(f"{variable}: {error}", field=variable) from error
