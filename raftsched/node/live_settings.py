"""Reread the settings of a node after SIGHUP, and adopt those that may change while it runs.

All or nothing: settings that a start would refuse change nothing, and are named in the log with their lines. Of valid ones
those in `config.REREAD` are adopted at once, and the log names the others that differ and wait for a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from msgspec.structs import replace

from raftsched.config import REREAD, ConfigInvalid, NodeConfig, Places, ReadConfig
from raftsched.encryption.keys import Key
from raftsched.errors import RaftschedError
from raftsched.node.key_ring import KeyRing
from raftsched.node.preflight import cluster_secrets, keys_of

_log = structlog.get_logger()
Secrets = tuple[bytes, ...]
"""Secrets of the cluster, the one that this node proves itself with first (`consensus.net.link_secret`)."""


class LiveSettings:
    """The settings of a running node, and the cluster's `secrets`.

    `adopt` is called with new ones, after their keys were given to `key_ring`.
    """

    def __init__(
        self,
        config: NodeConfig,
        read: Callable[[], ReadConfig],
        key_ring: KeyRing,
        secrets: Secrets,
        adopt: Callable[[NodeConfig, Secrets], None],
    ) -> None:
        self._config = config
        self._secrets = secrets
        self._read = read
        self._key_ring = key_ring
        self._adopt = adopt
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Reread the settings soon."""
        self._asked.set()

    async def keep(self) -> None:
        """Reread the settings whenever it is asked, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            self.reread()

    def reread(self) -> None:
        """Read all, and adopt what may change; nothing changes if anything is at fault, which is logged."""
        places = Places()
        try:
            given = self._read()
            places = given.places
            # The file at another path waits for a restart, like the setting.
            now = self._config
            keys = keys_of(given.config) if given.config.encryption == now.encryption else ()
            same_file = given.config.cluster_secret_file == now.cluster_secret_file
            secrets = cluster_secrets(given.config) if same_file else self._secrets
            if keys:
                self._key_ring.check(keys)
        except ConfigInvalid as error:
            self._refuse(error.faults)
            return
        except RaftschedError as error:
            self._refuse([places.of(str(error))])
            return
        self._take(given.config, keys, secrets)

    def _refuse(self, faults: object) -> None:
        _log.error("config_refused", faults=faults, used="the settings of before")

    def _take(self, given: NodeConfig, keys: tuple[Key, ...], secrets: Secrets) -> None:
        before = self._config
        wanted = _live_part(before, given)
        names = [name for name in NodeConfig.__struct_fields__ if getattr(given, name) != getattr(before, name)]
        live = [name for name in names if getattr(wanted, name) == getattr(given, name)]
        added = self._key_ring.take(keys) if keys else []
        if secrets != self._secrets:
            live.append("cluster_secret_file")
        self._config, self._secrets = wanted, secrets
        self._adopt(wanted, secrets)
        waiting = [name for name in names if name not in live]
        _log.info("config_reread", changed=live, keys_added=added, needs_restart=waiting)


def _live_part(before: NodeConfig, given: NodeConfig) -> NodeConfig:
    """Return `before` with those settings of `given` that may change while a node runs."""
    changes = {name: getattr(given, name) for name, part in REREAD.items() if part == "all of it"}
    if before.api_tls is not None and given.api_tls is not None:
        changes["api_tls"] = replace(before.api_tls, clients=given.api_tls.clients)
    return replace(before, **changes)
