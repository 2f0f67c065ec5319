"""Know whether this is the single-file program, which holds an interpreter and all packages: `make binary`.

It unpacks itself into a temporary directory when it starts. Processes of itself use the same directory if they are given
the variables that tell them where it is; with other environments each would unpack all of it again.
"""

from __future__ import annotations

import os
import sys
from typing import Final

IS_SINGLE_FILE: Final = bool(getattr(sys, "frozen", False))
_PREFIX: Final = "_PYI_"
"""Of the variables of PyInstaller, which builds the program."""
_LIBRARIES: Final = "LD_LIBRARY_PATH"
_LIBRARIES_BEFORE: Final = f"{_LIBRARIES}_ORIG"
"""The variable as it was before the program was started."""


def own_variables() -> dict[str, str]:
    """Return the variables for processes of this program that get no others; none if it is not the single-file program."""
    return {name: text for name, text in os.environ.items() if _is_own(name)}


def others_variables() -> dict[str, str]:
    """Return the environment for other programs: they must not load the libraries that were unpacked."""
    environment = {name: text for name, text in os.environ.items() if not _is_own(name)}
    before = environment.pop(_LIBRARIES_BEFORE, None) if IS_SINGLE_FILE else None
    return environment if before is None else environment | {_LIBRARIES: before}


def _is_own(name: str) -> bool:
    return IS_SINGLE_FILE and (name.startswith(_PREFIX) or name == _LIBRARIES)
