"""Define the settings of an e-mail executor: its server, its senders and its secret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from email.headerregistry import Address
from typing import Final, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from raftsched.errors import Invalid
from raftsched.executors.email.addresses import address_of
from raftsched.executors.secrets import MissingSecret, Secrets

StartTls = Literal["require", "opportunistic", "none"]
START_TLS: Final[tuple[StartTls, ...]] = get_args(StartTls)
_PORTS: Final = {"smtp": 587, "smtps": 465}
_ANY_USER: Final = "*@"


class Server(NamedTuple):
    """Address of an SMTP server."""

    host: str
    port: int
    is_tls: bool
    """The connection begins with TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailSettings:
    """Name the server, and bound what a job may do."""

    url: str
    """`smtp://host:587` or `smtps://host:465`."""
    sender: str
    """The address in From, and the one that bounces go to."""
    tls: StartTls | None = None
    """STARTTLS of an `smtp://` server: required, used if it is offered, or not used. By default it is required with a
    `user`, and otherwise used if it is offered. Certificates are always verified."""
    user: str | None = None
    password_secret: str | None = None
    """Name of the secret; it is read for each message, so that a new value needs no restart."""
    secrets: Secrets = field(default_factory=Secrets)
    allowed_senders: Sequence[str] = ()
    """Addresses, and `*@example.org`, that jobs may have in `from`."""
    timeout_seconds: float = 60.0
    """Longest time for one message, from the connection to the server's last answer."""

    def __post_init__(self) -> None:
        """Raise `Invalid` naming the setting at fault; a secret that can't be read is one."""
        server = server_of(self.url)
        address_of(self.sender, "smtp-from")
        for pattern in self.allowed_senders:
            address_of(pattern.replace(_ANY_USER, "any@", 1), "smtp-allow-from")
        if server.is_tls and self.tls is not None:
            raise Invalid("smtp-tls: smtps:// is encrypted from its start; leave it out", field="smtp-tls")
        if (self.user is None) != (self.password_secret is None):
            raise Invalid("smtp-user: needs smtp-password-secret, and the other way round", field="smtp-user")
        if self.user is not None and self.tls == "opportunistic":
            fault = "a password would be sent in the clear if the server offers no TLS; give require, or none"
            raise Invalid(f"smtp-tls: {fault}", field="smtp-tls")
        try:
            self.password()
        except MissingSecret as error:
            raise Invalid(f"smtp-password-secret: {error}", field="smtp-password-secret") from None

    @property
    def server(self) -> Server:
        return server_of(self.url)

    @property
    def start_tls(self) -> bool | None:
        """Return whether to use STARTTLS; None if it is used when it is offered."""
        if self.server.is_tls or self.tls == "none":
            return False
        return True if self.tls == "require" or self.user is not None else None

    def password(self) -> str | None:
        """Return the content of the secret, None without one; raises `MissingSecret`."""
        return None if self.password_secret is None else self.secrets.read(self.password_secret)

    def sender_of(self, asked: Address | None) -> Address:
        """Return the sender of a message; raises `Invalid` if a job may not have the one that it asks for."""
        own = address_of(self.sender, "smtp-from")
        if asked is None or asked.addr_spec == own.addr_spec:
            return asked or own
        allowed = {pattern.lower() for pattern in self.allowed_senders}
        if not allowed.isdisjoint((asked.addr_spec.lower(), f"{_ANY_USER}{asked.domain}".lower())):
            return asked
        advice = f"leave it out, or start the executor with --smtp-allow-from {asked.addr_spec}"
        raise Invalid(f"from: this executor may not send as {asked.addr_spec}; {advice}", field="from")


def server_of(url: str) -> Server:
    """Return the server that a URL names; raises `Invalid`, whose text never has the URL: it may hold a password."""
    if "@" in url:
        advice = "give --smtp-user NAME and --smtp-password-secret SECRET"
        raise Invalid(f"smtp: user and password do not belong in the URL; {advice}", field="smtp")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Invalid("smtp: the port or host of the URL is not valid", field="smtp") from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
        raise Invalid("smtp: not a URL as smtp://mail.internal:587 or smtps://mail.internal:465", field="smtp")
    return Server(parts.hostname, port or _PORTS[parts.scheme], parts.scheme == "smtps")
