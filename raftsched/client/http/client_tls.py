"""Choose how https addresses are verified, and which certificate is shown to them."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from raftsched.errors import Invalid
from raftsched.tls.renewal import renewed_client_context

ClientCertificate = tuple[str | Path, str | Path]
"""Files in PEM: a certificate, with intermediates, and its key."""
CA_FILE_VARIABLE: Final = "RAFTSCHED_CA_FILE"
CERTIFICATE_VARIABLE: Final = "RAFTSCHED_CLIENT_CERT"
KEY_VARIABLE: Final = "RAFTSCHED_CLIENT_KEY"


def client_tls(
    tls: ssl.SSLContext | None,
    *,
    ca_file: str | Path | None = None,
    client_certificate: ClientCertificate | None = None,
    environment: Mapping[str, str] = os.environ,
) -> ssl.SSLContext | None:
    """Return `tls`, or a context of the files, which are read again when they change; by default those of the environment.

    None is the context that trusts the system's authorities. Raises `Invalid` naming the parameter or variable and the
    file.
    """
    if tls is not None:
        if ca_file is not None or client_certificate is not None:
            raise Invalid("tls: give it, or ca_file and client_certificate, not both", field="tls")
        return tls
    ca_file = ca_file or environment.get(CA_FILE_VARIABLE) or None
    certificate, key = client_certificate or _certificate_of(environment)
    if ca_file is None and certificate is None:
        return None
    return renewed_client_context(*(None if path is None else Path(path) for path in (ca_file, certificate, key)))


def _certificate_of(environment: Mapping[str, str]) -> ClientCertificate | tuple[None, None]:
    certificate, key = environment.get(CERTIFICATE_VARIABLE), environment.get(KEY_VARIABLE)
    if certificate and key:
        return (certificate, key)
    if certificate or key:
        missing = KEY_VARIABLE if certificate else CERTIFICATE_VARIABLE
        raise Invalid(
            f"{missing}: not set; a client certificate needs {CERTIFICATE_VARIABLE} and {KEY_VARIABLE}", field=missing
        )
    return (None, None)
