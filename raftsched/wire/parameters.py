"""Define the documents of parameters: values that runs of a schedule get."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from raftsched import limits
from raftsched.wire.common import PARAMETER_NAME_PATTERN, PARAMETER_NAME_RULE, Request

ParameterName = Annotated[str, Meta(pattern=PARAMETER_NAME_PATTERN, description=PARAMETER_NAME_RULE)]
ParameterValue = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": ["string", "number", "boolean"]})]
PARAMETERS_SCHEMA: Final[dict[str, Any]] = {
    "type": ["object", "null"],
    "additionalProperties": {"type": ["string", "number", "boolean", "object", "null"]},
}
"""Schema of the values of a run."""


class ParameterBody(Request, frozen=True):
    """A value that a run of the schedule gets: by hand, or its default."""

    name: ParameterName
    type: Literal["text", "integer", "number", "boolean", "choice", "secret"] = "text"
    """`secret`: the value is the name of a secret, which the executor reads. Its content is stored nowhere."""
    choices: (
        Annotated[
            list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(max_length=limits.PARAMETER_CHOICES_MAX)
        ]
        | None
    ) = None
    """The allowed texts of a choice."""
    default: ParameterValue | UnsetType = UNSET
    required: bool = False
    """A run needs a value. Without a default, only runs by hand have one, so the schedule has no timing."""
    description: Annotated[str, Meta(max_length=limits.PARAMETER_DESCRIPTION_CHARS_MAX)] | None = None
