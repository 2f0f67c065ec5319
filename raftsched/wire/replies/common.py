"""What replies have in common."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Json = Annotated[msgspec.Raw, Meta(description="JSON of any kind; null where there is none.")]


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply body, or a part of one."""
