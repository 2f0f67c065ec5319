"""Turn the values of a run's parameters into texts, for placeholders and variables.

The value of a secret is `{"secret": NAME}`: its content is read by that name, for each run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


def secret_names(parameters: Mapping[str, Any]) -> Sequence[str]:
    """Return the names of the secrets that a run needs."""
    return [value["secret"] for value in parameters.values() if isinstance(value, dict)]


def parameter_texts(parameters: Mapping[str, Any], secrets: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values as texts, by the names of parameters: an empty text for null, and numbers as in JSON.

    `secrets` has the content of each secret that `secret_names` returns.
    """
    return {name: _text(value, secrets) for name, value in parameters.items()}


def _text(value: Any, secrets: Mapping[str, str]) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return secrets[value["secret"]]
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
