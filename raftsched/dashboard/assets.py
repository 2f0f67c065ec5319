"""Serve the files of `static/` under names that contain a hash of their content, so that browsers may keep them."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

FOLDER: Final = Path(__file__).parent / "static"
_FOR_A_YEAR: Final = "public, max-age=31536000, immutable"
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file, held in memory."""

    content: bytes
    type: str


class Assets:
    """All files, read once."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._names: dict[str, str] = {}
        self._assets: dict[str, Asset] = {}
        for path in sorted(folder.iterdir()):
            content = path.read_bytes()
            hashed = f"{path.stem}.{hashlib.sha256(content).hexdigest()[:12]}{path.suffix}"
            kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            self._names[path.name] = hashed
            self._assets[hashed] = Asset(content, kind)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Return the bytes of each file by its name in the folder."""
        return {name: len(self._assets[hashed].content) for name, hashed in self._names.items()}

    def name_of(self, name: str) -> str:
        """Return the name under which a file is served; raises `KeyError` if there is none."""
        return self._names[name]

    async def get(self, request: web.Request) -> web.Response:
        """Return a file; raises `HTTPNotFound` for a name that no file has now."""
        asset = self._assets.get(request.match_info["name"])
        if asset is None:
            raise web.HTTPNotFound
        charset = None if asset.type == "image/png" else "utf-8"
        return web.Response(
            body=asset.content, content_type=asset.type, charset=charset, headers={"Cache-Control": _FOR_A_YEAR}
        )
