"""Key the digests of unique keys, if the cluster's data is encrypted.

A unique key may be a digest of a payload, and it is a key of an index, which is never encrypted. So whoever has a data
directory could try payloads until a digest fits. Digests are keyed with random bytes of the state, which is encrypted and
which no rotation changes.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Protocol

from msgspec.structs import replace

from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import SubmitJob
from raftsched.core.records.encryption import ClusterKey
from raftsched.core.records.ids import JobId
from raftsched.core.records.spec import with_options


class UniqueKeysView(Protocol):
    """The part of the state that is read here."""

    @property
    def cluster_key(self) -> ClusterKey | None: ...
    def job_id_for_unique(self, tenant: str, unique_key: bytes) -> JobId | None: ...


def keyed(operation: Operation, state: UniqueKeysView) -> Operation:
    """Return the operation with its unique key as a keyed digest; unchanged if it has none, or nothing is encrypted.

    A key that a job holds as it was given, from the time before the encryption, is left as it is, so that it conflicts.
    """
    if not isinstance(operation, SubmitJob) or operation.spec.options is None:
        return operation
    given, cluster_key = operation.spec.options.unique_key, state.cluster_key
    if not given or cluster_key is None or state.job_id_for_unique(operation.tenant, given) is not None:
        return operation
    digest = hmac.digest(cluster_key.secret, given, hashlib.sha256)[: len(given)]
    return replace(operation, spec=with_options(operation.spec, unique_key=digest))
