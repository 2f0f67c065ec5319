"""Define the settings of a node, and what must hold between them.

The file lists all nodes, so that one file and one image serve the whole cluster. `node_id` names the one that this
process is: from RAFTSCHED_NODE_ID, or else it is the node whose `raft` address has this machine's host name. Every
setting `x` is read from RAFTSCHED_X; lists and tables are written there as JSON.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from raftsched import limits
from raftsched.config.conversion import Conflicts
from raftsched.consensus.net.address import Address
from raftsched.errors import Invalid

_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z"
_TENANT: Final = r"^(\*|[A-Za-z0-9][A-Za-z0-9_.-]{0,63})\Z"
_NAME_RULE: Final = "1 to 64 letters, digits, dots, dashes and underscores, the first a letter or a digit"
PATTERN_RULES: Final[Mapping[str, str]] = {_NAME: _NAME_RULE, _TENANT: f"{_NAME_RULE}; or * for all tenants"}
"""Each pattern of a setting, in words."""
REREAD: Final[Mapping[str, str]] = {
    "log_level": "all of it",
    "retention_seconds": "all of it",
    "cancel_grace_seconds": "all of it",
    "disk_reserve_mib": "all of it",
    "api_tls": "`clients`; files by themselves",
    "peer_tls": "files by themselves",
    "cluster_secret_file": "the file, for new connections",
    "admin_token_file": "the file by itself",
    "encryption": "keys that were added to the file, and which one is first",
    "secrets": "files by themselves",
}
"""Setting -> what of it a running node adopts after SIGHUP, or without it (`by themselves`); others need a restart."""
_Name = Annotated[str, msgspec.Meta(pattern=_NAME)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=366 * 86_400)]


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node of the cluster as the others reach it."""

    id: _Name
    raft: str
    """host:port of its Raft port."""
    api: str
    """host:port of its API."""


class PeerTls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Mutual TLS between nodes: files in PEM; the certificate's DNS name must be the node's id."""

    certificate: str
    key: str
    ca: str


class ApiClient(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A client that the name in its certificate identifies, in place of a token."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    """A DNS name or the common name of the certificate, exactly."""
    role: Literal["viewer", "submitter", "worker", "operator", "admin"]
    tenant: Annotated[str, msgspec.Meta(pattern=_TENANT)]
    """`*` is all tenants."""


class ApiTls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """TLS of the API: files in PEM; the certificate must be valid for the host of each node's `api`."""

    certificate: str
    key: str
    ca: str = ""
    """Authorities by which nodes verify each other's APIs; default: those of the system."""
    client_ca: str = ""
    """Authorities of clients' certificates; without it no client is asked for one."""
    clients: tuple[ApiClient, ...] = ()

    def __post_init__(self) -> None:
        if self.clients and not self.client_ca:
            raise Conflicts("api_tls.clients: needs api_tls.client_ca, which verifies the certificates of clients")
        names = [client.name for client in self.clients]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise Conflicts(f"api_tls.clients: {twice} is named twice")


class Executors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Executors that a node runs as child processes, for jobs without a handler."""

    http: bool = False
    """Send the requests of HTTP jobs."""
    http_queues: tuple[str, ...] = ("http",)
    """Queues from which it takes jobs; `mail*` is all whose names begin so."""
    http_concurrency: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100
    """Requests under way at the same time, per node."""
    email: bool = False
    """Send the mail of the jobs `email`; needs `[smtp]`."""
    email_queues: tuple[str, ...] = ("email",)
    """Queues from which it takes jobs."""


class HttpTargets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Targets of the node's HTTP executor beside the public ones."""

    allow: tuple[str, ...] = ()
    """Networks as `10.1.0.0/16` and names as `hooks.internal` that may be reached although they are inner ones."""
    deny: tuple[str, ...] = ()
    """Networks and names that may not be reached; they win."""
    proxy: str = ""
    """URL of a proxy for all requests; without it there is none."""


class Smtp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Mail server of the node's e-mail executor; the options of `raftsched worker --email` say more."""

    url: str = ""
    """`smtp://host:587` or `smtps://host:465`."""
    sender: str = msgspec.field(default="", name="from")
    """Address of the sender."""
    allow_from: tuple[str, ...] = ()
    """Other senders that jobs may name, as `shop@example.org` or `*@example.org`."""
    tls: Literal["", "require", "opportunistic", "none"] = ""
    """STARTTLS; by default `require` with a user, else `opportunistic`."""
    user: str = ""
    password_secret: str = ""
    """Name of the secret with the user's password."""


class Encryption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Encryption at rest of what a node writes to its disk."""

    keys_file: str = ""
    """File of keys, the same on every node: lines `ID BASE64` of 32 bytes each; the first encrypts, all decrypt."""


class SecretFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Secrets that jobs or settings name."""

    dir: str = ""
    """Directory with a file for each secret; variables RAFTSCHED_SECRET_<NAME> are read as well."""


class NodeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of a node."""

    node_id: _Name
    """Id of this process among `nodes`; default: that of the node whose `raft` address has this machine's host name."""
    data_dir: str
    """Directory of this node's journal and state; no other process may use it."""
    nodes: tuple[Member, ...]
    """1 to 9 nodes, each with its `id`, and its `raft` and `api` addresses as host:port."""
    auth: Literal["token", "none"]
    """`token`: callers of the API need a token. `none`: everybody who reaches the API may do everything."""
    admin_token_file: str = ""
    """File whose lines are admin tokens of all tenants, the same on every node; needed with `auth = "token"`."""
    cluster: _Name = "raftsched"
    """Name of the cluster; nodes of another name are refused."""
    api_listen: str = ""
    """host:port to listen on for the API; default: the node's own `api`."""
    raft_listen: str = ""
    """host:port to listen on for other nodes; default: the node's own `raft`."""
    api_tls: ApiTls | None = None
    """Files for TLS of the API; with them it answers by https only, and all nodes must have them."""
    peer_tls: PeerTls | None = None
    """Files for mutual TLS between nodes; without them traffic between nodes is not encrypted."""
    cluster_secret_file: str = ""
    """File with a secret of at least 32 characters that all nodes share: nodes without it are refused. It encrypts nothing.
    A second line is the secret that it replaces, or that replaces it."""
    insecure_peers: bool = False
    """Start without `peer_tls` and `cluster_secret_file` although other machines can reach the Raft port."""
    lease_seconds: _Seconds = 15.0
    """A worker that is silent for this long loses its jobs."""
    cancel_grace_seconds: _Seconds = 30.0
    """A cancelled attempt whose worker does not report for this long ends without its report."""
    retention_seconds: _Seconds = 7 * 86_400.0
    """Finished jobs are kept this long, unless the job or its queue says otherwise."""
    ageing_seconds: _Seconds = 300.0
    """A waiting job gains one priority for each of these, unless its queue says otherwise."""
    election_seconds_min: _Seconds = 0.5
    """A follower without a leader's heartbeat for a random time between this and the maximum starts an election."""
    election_seconds_max: _Seconds = 1.0
    """The longest such time; must be larger than the minimum."""
    heartbeat_seconds: _Seconds = 0.1
    """Interval of the leader's heartbeats; must be under a third of `election_seconds_min`."""
    max_clock_skew_ms: Annotated[int, msgspec.Meta(ge=50, le=60_000)] = limits.CLOCK_SKEW_MS
    """A node whose wall clock is further from the median of all nodes hands the lead over; must exceed round trips."""
    state_map_bytes: Annotated[int, msgspec.Meta(ge=16 << 20)] = limits.MAP_BYTES
    """Address space reserved for the state at first; it grows by itself, and the file only with what is stored."""
    journal_tail_bytes: Annotated[int, msgspec.Meta(ge=0)] = 64 << 20
    """Log kept for slow followers; one that falls behind it gets a snapshot."""
    journal_segment_bytes: Annotated[int, msgspec.Meta(ge=64 << 10)] = 64 << 20
    """Size at which the journal begins a new file."""
    disk_reserve_mib: Annotated[int, msgspec.Meta(ge=0, le=1 << 30)] = limits.DISK_RESERVE_MIB
    """A node with less free space on its disk gives the lead away, and new work is refused while a majority has less.
    0 switches that off on this node."""
    executors: Executors = Executors()
    """Executors to run beside the node: `http = true` for HTTP jobs, `email = true` for e-mail jobs."""
    http_targets: HttpTargets = HttpTargets()
    """Targets of HTTP jobs: `allow` and `deny`, networks and names, and a `proxy`."""
    smtp: Smtp = Smtp()
    """Mail server of e-mail jobs: `url`, `from`, `allow_from`, `tls`, `user` and `password_secret`."""
    secrets: SecretFiles = SecretFiles()
    """`dir`: the directory of secrets that HTTP jobs and `smtp.password_secret` name."""
    encryption: Encryption = Encryption()
    """`keys_file`: the file of keys under which journal, state and snapshots are encrypted; without it they are not."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least level that is logged: `debug`, `info`, `warning` or `error`."""
    log_format: Literal["json", "console"] = "json"
    """`json` for programs, `console` for people."""

    def __post_init__(self) -> None:
        if conflicts := list(self._conflicts()):
            raise Conflicts(*conflicts)

    def _conflicts(self) -> Iterator[str]:
        """Return what can't hold together, each beginning with the name of a setting."""
        ids = [member.id for member in self.nodes]
        if not 1 <= len(ids) <= 9 or len(set(ids)) != len(ids):
            yield "nodes: expected 1 to 9 nodes with distinct ids (3 or 5 in production)"
        elif self.node_id not in ids:
            yield f"node_id: {self.node_id!r} is not one of the nodes {', '.join(ids)}"
        else:
            yield from self._address_conflicts()
        if (self.auth == "token") != bool(self.admin_token_file):
            yield f'admin_token_file: {"needed" if self.auth == "token" else "unused"} with auth = "{self.auth}"'
        if self.auth == "none" and self.api_tls is not None and self.api_tls.clients:
            yield 'api_tls.clients: unused with auth = "none"'
        if self.election_seconds_min >= self.election_seconds_max:
            yield "election_seconds_max: must be larger than election_seconds_min"
        if self.heartbeat_seconds * 3 >= self.election_seconds_min:
            yield "heartbeat_seconds: must be under a third of election_seconds_min"
        if self.executors.email and not (self.smtp.url and self.smtp.sender):
            yield "smtp: executors.email needs smtp.url and smtp.from"

    def _address_conflicts(self) -> Iterator[str]:
        """Return addresses that cannot be meant."""
        owners: dict[Address, str] = {}
        for member in self.nodes:
            for name, text in (("raft", member.raft), ("api", member.api)):
                field = f"nodes.{member.id}.{name}"
                try:
                    address = _advertised(text, field)
                except Invalid as error:
                    yield str(error)
                    continue
                if address in owners:
                    yield f"{field}: {text} is {owners[address]} as well; each needs an address of its own"
                owners[address] = field
        try:
            (api_field, api), (raft_field, raft) = self.api_address, self.raft_address
        except Invalid as error:
            if "_listen" in error.field:
                yield str(error)
            return
        hosts = {api.host.lower(), raft.host.lower()}
        if api.port == raft.port != 0 and (len(hosts) == 1 or any(map(_is_unspecified, hosts))):
            yield f"{raft_field}: port {raft.port} is the port of {api_field} as well; choose another"

    @property
    def api_address(self) -> tuple[str, Address]:
        """Return (setting, address on which the API listens)."""
        return self._listening("api", self.api_listen, self.member.api)

    @property
    def raft_address(self) -> tuple[str, Address]:
        """Return (setting, address on which this node listens for other nodes)."""
        return self._listening("raft", self.raft_listen, self.member.raft)

    def _listening(self, name: str, listen: str, own: str) -> tuple[str, Address]:
        field = f"{name}_listen" if listen else f"nodes.{self.node_id}.{name}"
        return field, Address.parse(listen or own, field=field)

    def warnings(self) -> list[str]:
        """Return warnings about legal settings that are seldom meant."""
        found = []
        if self.auth == "none" and not self.api_address[1].is_loopback:
            found.append(
                'auth: "none" lets everybody who reaches the API do everything; auth = "token" asks for tokens'
            )
        count = len(self.nodes)
        if count % 2 == 0:
            lost = count // 2 - 1
            more = f"with {count + 1}, {lost + 1} may be lost"
            found.append(f"nodes: {count} nodes tolerate the loss of {lost}, no more than {count - 1} would; {more}")
        if self.encryption.keys_file and count > 1 and not self.peer_tls and not self.raft_address[1].is_loopback:
            found.append("encryption: disks are encrypted, traffic between the nodes is not; set [peer_tls]")
        return found

    @property
    def member(self) -> Member:
        """Return this node's own entry."""
        return next(member for member in self.nodes if member.id == self.node_id)

    def url_of(self, api: str) -> str:
        """Return the URL of a node's API at `api`; all nodes use TLS there, or none does."""
        return f"{'https' if self.api_tls else 'http'}://{api}"

    @property
    def directory(self) -> Path:
        return Path(self.data_dir)


def _advertised(text: str, field: str) -> Address:
    """Return an address at which a node can be reached; equal addresses compare equal in every notation."""
    address = Address.parse(text, field=field)
    if _is_unspecified(address.host):
        name = field.rpartition(".")[2]
        raise Invalid(
            f"{field}: {address.host} can't be dialed; name the host as others reach it, and set {name}_listen = {text!r}",
            field=field,
        )
    if address.port == 0:
        raise Invalid(f"{field}: port 0 can't be dialed; name the port", field=field)
    return Address(address.host.lower(), address.port)


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
