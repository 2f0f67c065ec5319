"""Settings of a node: a TOML file, the same on every node, and RAFTSCHED_… variables that override it.

`settings` defines them, `reader` reads them. Invalid settings are refused with file and line, or with the variable,
before anything is written or bound.
"""

from raftsched.config.reader import ConfigInvalid, Places, ReadConfig, load, read
from raftsched.config.settings import (
    REREAD,
    ApiClient,
    ApiTls,
    Encryption,
    Executors,
    HttpTargets,
    Member,
    NodeConfig,
    PeerTls,
    SecretFiles,
    Smtp,
)

__all__ = [
    "REREAD",
    "ApiClient",
    "ApiTls",
    "ConfigInvalid",
    "Encryption",
    "Executors",
    "HttpTargets",
    "Member",
    "NodeConfig",
    "PeerTls",
    "Places",
    "ReadConfig",
    "SecretFiles",
    "Smtp",
    "load",
    "read",
]
