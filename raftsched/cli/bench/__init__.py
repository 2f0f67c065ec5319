"""The benchmark: a cluster, workers and a client of this package on this machine, every CPU second counted.

Wall-clock figures of a shared machine say little; CPU per job is the figure that travels. It sums user and system time
of all node processes, all worker processes and the submitting client.
"""

from raftsched.client import JobSpec

QUEUE = "bench"
PAYLOAD = {"kind": "bench", "data": "x" * 165}
"""200 bytes of JSON."""
NOOP = JobSpec(name="noop", payload=PAYLOAD, queue=QUEUE)
