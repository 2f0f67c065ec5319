"""Read the settings of nodes as their hosts would, and say what a deployment lacks for them."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import click
import msgspec
import pytest
import yaml

from raftsched import config
from raftsched.cli.main import main
from raftsched.config import NodeConfig
from raftsched.environment import unknown_in

ROOT: Final = Path(__file__).parents[2]
CONFIGS: Final = ROOT / "configs"
USER: Final = "10001"


def yaml_documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def read_on_host(path: Path, host: str, environment: Mapping[str, str]) -> NodeConfig:
    """Return the settings that a node on a host of this name reads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: host)
        return config.load(path, environment)


def files_named_by(settings: object) -> Iterator[str]:
    """Yield the files that settings name, those of tables included."""
    for name, value in msgspec.structs.asdict(settings).items():  # type: ignore[arg-type]
        if isinstance(value, msgspec.Struct):
            yield from files_named_by(value)
        elif isinstance(value, str) and value.startswith("/") and name != "data_dir":
            yield value


def unmounted(loaded: NodeConfig, mounted: Collection[str]) -> list[str]:
    """Return the paths that the node's settings name, but that lie in nothing that is mounted."""
    paths = [*files_named_by(loaded), loaded.data_dir]
    return [path for path in paths if not any(PurePosixPath(path).is_relative_to(place) for place in mounted)]


def unknown_words(command: Sequence[str], variables: Collection[str]) -> list[str]:
    """Return the options and the variables that a command of raftsched does not have."""
    name, *arguments = command
    found = main.get_command(click.Context(main), name)
    known = {option for parameter in (found.params if found else ()) for option in parameter.opts}
    options = [word for word in arguments if word.startswith("-") and word not in known]
    return options + list(unknown_in(dict.fromkeys(variables, ""), NodeConfig.__struct_fields__).values())
