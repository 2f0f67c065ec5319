"""Table of the RAFTSCHED_… variables, with suggestions for unknown ones.

A node refuses a variable that nothing reads: most likely it is a setting with a typing error in its name, which would
silently keep its default. This is the one table of those that are no settings of a node; settings come from
`config.NodeConfig`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

PREFIX: Final = "RAFTSCHED_"
READ_ELSEWHERE: Final[Mapping[str, str]] = {
    "RAFTSCHED_URL": "client, worker and commands: addresses of the cluster",
    "RAFTSCHED_TOKEN": "client, worker and commands: the token of the API",
    "RAFTSCHED_TOKEN_FILE": "client, worker and commands: the file that holds the token of the API",
    "RAFTSCHED_TENANT": "client, worker and commands: the tenant to act for, with a token of all tenants",
    "RAFTSCHED_CA_FILE": "client, worker and commands: the authorities that certify https addresses",
    "RAFTSCHED_CLIENT_CERT": "client, worker and commands: the certificate that they show to the cluster",
    "RAFTSCHED_CLIENT_KEY": "client, worker and commands: the key of that certificate",
    "RAFTSCHED_ACTOR": "commands: who is named in the audit trail",
    "RAFTSCHED_REGION": "worker: its region",
    "RAFTSCHED_FOLLOW_LEADER": "worker: 0 keeps it on the addresses that it was given",
    "RAFTSCHED_HTTP_ALLOW": "worker --http: inner addresses that requests may go to",
    "RAFTSCHED_HTTP_DENY": "worker --http: addresses that requests may not go to",
    "RAFTSCHED_HTTP_PROXY": "worker --http: the proxy for all requests",
    "RAFTSCHED_SMTP_URL": "worker --email: the mail server",
    "RAFTSCHED_SMTP_FROM": "worker --email: the sender",
    "RAFTSCHED_SECRETS_DIR": "worker --http, --shell or --email: the directory of secrets",
    "RAFTSCHED_KEYS_FILE": "check and compact: the keys file of the nodes",
    "RAFTSCHED_DEMO_LEDGER": "the handlers of `raftsched demo`",
    "RAFTSCHED_BENCH_CONCURRENCY": "the handlers of `raftsched bench`",
}
"""Variable -> its reader, and its purpose."""
_PATTERNS: Final = (
    re.compile(r"RAFTSCHED_SECRET_\w+"),  # secrets that jobs name
    re.compile(
        r"RAFTSCHED_(JOB_ID|RUN_ID|FENCING_TOKEN|ATTEMPT|SCHEDULED_AT|PARAMETER_\w+)"
    ),  # variables of the commands of shell jobs
    # What Kubernetes sets in every pod for a service named raftsched or raftsched-…, and Docker for a link.
    re.compile(r"RAFTSCHED_(\w+_)?SERVICE_(HOST|PORT(_\w+)?)"),
    re.compile(r"RAFTSCHED_(\w+_)?PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?"),
)
_SERVICE_PORT: Final = re.compile(r"(tcp|udp|sctp)://")
"""The value of RAFTSCHED_PORT and RAFTSCHED_…_PORT, which Kubernetes sets as well."""


def settings_in(environment: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """Return variable -> value of those that give one of the `known` settings."""
    return {variable: text for variable, text in _ours(environment).items() if setting_of(variable) in known}


def unknown_in(environment: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """Return variable -> fault of those that nothing reads, with the nearest known name."""
    names = [*(PREFIX + name.upper() for name in known), *READ_ELSEWHERE]
    return {
        variable: f"{variable}: no setting of that name{nearest(variable, names)}"
        for variable, text in _ours(environment).items()
        if setting_of(variable) not in known and not _is_read_elsewhere(variable, text)
    }


def _ours(environment: Mapping[str, str]) -> dict[str, str]:
    return {variable: text for variable, text in environment.items() if variable.startswith(PREFIX)}


def setting_of(variable: str) -> str:
    """Return the name of the setting that a variable gives."""
    return variable.removeprefix(PREFIX).lower()


def nearest(name: str, known: Collection[str]) -> str:
    """Return the words that suggest the nearest name; "" if none is near."""
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def _is_read_elsewhere(variable: str, text: str) -> bool:
    if variable in READ_ELSEWHERE or any(pattern.fullmatch(variable) for pattern in _PATTERNS):
        return True
    return variable.endswith("_PORT") and _SERVICE_PORT.match(text) is not None
