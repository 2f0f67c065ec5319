"""The machine is judged by what it tells: limits, control groups, mounts, times of syncs."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

from raftsched.node.doctor.disk import SyncTimes, file_system_finding, judged_speed, sync_times
from raftsched.node.doctor.finding import Finding
from raftsched.node.doctor.listeners import listener_on
from raftsched.node.doctor.machine import _address_space, _memory, _open_files, container_findings, machine_findings

NO_LIMIT = resource.RLIM_INFINITY
MIB = 1 << 20


def levels(findings: dict[str, Finding]) -> dict[str, str]:
    assert [
        name for name, finding in findings.items() if bool(finding.cure) != (finding.level in ("warn", "fail"))
    ] == []
    return {name: finding.level for name, finding in findings.items()}


def test_limits_of_the_process_and_its_memory_are_judged(tmp_path: Path) -> None:
    def memory(available_mib: int) -> Finding:
        path = tmp_path / "meminfo"
        path.write_text(f"MemTotal: {4_000 * 1024} kB\nMemAvailable: {available_mib * 1024} kB\n")
        return _memory(path)

    assert levels(
        {
            "files": _open_files((20_000, 20_000)),
            "files without limit": _open_files((NO_LIMIT, NO_LIMIT)),
            "files few": _open_files((1_024, 1 << 20)),
            "files too few": _open_files((256, 256)),
            "address space": _address_space(NO_LIMIT, MIB),
            "address space small": _address_space(MIB, MIB),
            "memory": memory(600),
            "memory little": memory(300),
            "memory too little": memory(100),
            "memory unknown": _memory(tmp_path / "absent"),
        }
    ) == {
        "files": "ok",
        "files without limit": "ok",
        "files few": "warn",
        "files too few": "fail",
        "address space": "ok",
        "address space small": "fail",
        "memory": "ok",
        "memory little": "warn",
        "memory too little": "fail",
        "memory unknown": "skip",
    }


def test_limits_of_the_container_are_read_in_both_versions(tmp_path: Path) -> None:
    def judged(name: str, files: dict[str, str]) -> list[tuple[str, str]]:
        for file, text in files.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return [(finding.level, finding.text) for finding in container_findings(tmp_path / name)]

    assert judged("none", {}) == [("ok", "no limit"), ("ok", "no limit")]
    assert judged("open", {"memory.max": "max\n", "cpu.max": "max 100000\n"}) == [
        ("ok", "no limit"),
        ("ok", "no limit"),
    ]
    assert judged("v2", {"memory.max": f"{300 * MIB}\n", "cpu.max": "50000 100000\n"}) == [
        ("warn", "limit 300 MiB"),
        ("warn", "limit 0.5 CPUs"),
    ]
    v1 = {
        "memory/memory.limit_in_bytes": f"{128 * MIB}\n",
        "cpu/cpu.cfs_quota_us": "200000\n",
        "cpu/cpu.cfs_period_us": "100000\n",
    }
    assert judged("v1", v1) == [("fail", "limit 128 MiB"), ("ok", "limit 2 CPUs")]


def test_the_kind_of_the_file_system_is_that_of_the_deepest_mount(tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    deep.mkdir()
    mounts = tmp_path / "mounts"

    def judged(kind: str) -> str:
        mounts.write_text(f"a / ext4 rw 0 0\nb {tmp_path} {kind} rw 0 0\nc /elsewhere nfs4 rw 0 0\n")
        return file_system_finding(deep, mounts).level

    kinds = ("xfs", "nfs4", "fuse.sshfs", "tmpfs", "overlay")
    assert [judged(kind) for kind in kinds] == ["ok", "warn", "warn", "warn", "warn"]
    mounts.unlink()
    assert file_system_finding(deep, mounts).level == "skip"


def test_syncs_are_measured_without_a_trace_and_judged(tmp_path: Path) -> None:
    times = sync_times(tmp_path, count=3)
    assert times.sync_count == 3
    assert 0 < times.p50_ms <= times.p99_ms
    assert list(tmp_path.iterdir()) == []
    assert levels(
        {
            "fast": judged_speed(SyncTimes(1.0, 9.0, 100), tmp_path, 500.0),
            "slow": judged_speed(SyncTimes(9.0, 90.0, 100), tmp_path, 500.0),
            "slower than an election": judged_speed(SyncTimes(90.0, 600.0, 5), tmp_path, 500.0),
            "no disk": judged_speed(SyncTimes(0.002, 0.02, 100), tmp_path, 500.0),
        }
    ) == {"fast": "ok", "slow": "warn", "slower than an election": "fail", "no disk": "warn"}


def test_the_process_that_has_a_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        listener = listener_on(port)
        assert listener is not None
        assert "python" in listener.command
    assert listener_on(port) is None


def test_this_machine_can_be_examined() -> None:
    checks = [finding.check for finding in machine_findings(MIB)]
    assert checks == [
        *("versions", "open files", "address space", "memory", "container memory", "container CPU", "time sync"),
    ]
