"""Run all checks of a machine, in the order in which an operator would solve what they find."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from raftsched import limits
from raftsched.config import ConfigInvalid, ReadConfig, read
from raftsched.environment import PREFIX
from raftsched.node.doctor.disk import disk_findings
from raftsched.node.doctor.files import file_findings
from raftsched.node.doctor.finding import Finding, fail, ok, skip, warn
from raftsched.node.doctor.machine import machine_findings
from raftsched.node.doctor.network import network_findings


async def examine(path: Path | None, environment: Mapping[str, str]) -> list[Finding]:
    """Return the findings; without settings, only what concerns the machine.

    A few seconds at most. Nothing is changed: the speed of the disk is measured in a file without a name.
    """
    if path is None and f"{PREFIX}NODES" not in environment:
        found = [skip("settings", "none: give the file of a node as --config")]
        return [*found, *machine_findings(limits.MAP_BYTES)]
    try:
        given = read(path, environment)
    except ConfigInvalid as error:
        cure = "Correct the settings; the checks that need them come after that."
        return [*(fail("settings", each, cure) for each in error.faults), *machine_findings(limits.MAP_BYTES)]
    return [
        *_settings(given),
        *file_findings(given.config, given.places),
        *disk_findings(given.config),
        *[finding async for finding in network_findings(given.config)],
        *machine_findings(given.config.state_map_bytes),
    ]


def _settings(given: ReadConfig) -> list[Finding]:
    config = given.config
    found = f"node {config.node_id} of cluster {config.cluster}, {len(config.nodes)} nodes"
    warnings = [warn("settings", given.places.of(each), "Change it, unless it is meant.") for each in config.warnings()]
    return [ok("settings", found), *warnings]
