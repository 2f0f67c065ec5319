"""Define the base class of all operations.

To add one, write its struct as a subclass in a module of this package, with the next tag, and its handler, under
`@handles`. The codec and the check of versions find it by its base class.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec


class Operation(msgspec.Struct, frozen=True, array_like=True):
    """Describe a change of the state, as the log stores it."""

    since: ClassVar[int] = 1
    """The version of log entries in which it appeared."""
