"""Make all parts of one node and wire them together.

A node replicates the state (`consensus`), serves the API, and, while it leads, runs the leader's duties (`leader`).
It stops as a whole: when one part cannot continue safely, `run` raises, and the process ends with a clear last line.

Order of a stop: leadership is transferred, so that no client waits for an election; workers that wait for jobs get
`not_leader` and go elsewhere; the API ends; the state is checkpointed.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import structlog
from aiohttp import web

from raftsched import limits, logs, tracing
from raftsched.api.access.admin_file import AdminFile
from raftsched.api.access.door import EXECUTOR, CertifiedClient, Door, OpenDoor, TokenDoor
from raftsched.api.access.origin import origin_headers
from raftsched.api.app import create_app, create_runner
from raftsched.api.event_log import EventLog
from raftsched.config import NodeConfig, ReadConfig
from raftsched.consensus.disk_space import ClusterSpace
from raftsched.consensus.journal.journal import Journal
from raftsched.consensus.journal.recovery import require_state
from raftsched.consensus.journal.register import SegmentRegister, VolatileRegister
from raftsched.consensus.machine import Change, ReplicatedState
from raftsched.consensus.net.address import Address
from raftsched.consensus.net.transport import Transport
from raftsched.consensus.ports import Timing
from raftsched.consensus.proposer import Proposer
from raftsched.consensus.raft.clocks.cluster_clock import ClusterClock
from raftsched.consensus.raft.membership.members import Member, Membership
from raftsched.consensus.replica import Replica, ReplicaSettings
from raftsched.core.operations.base import Operation
from raftsched.core.operations.codec import CODEC_VERSION
from raftsched.core.records.api_token import TOKEN_PREFIX, Role
from raftsched.core.records.ids import JobId, JobIdFactory, TimeMs
from raftsched.core.records.origin import Origin
from raftsched.core.state.results import Result
from raftsched.core.state.writes import PutClusterKey, Write
from raftsched.dashboard.app import add_dashboard
from raftsched.disk import SystemDisk, make_directory
from raftsched.encryption.cipher import NO_KEYS, Cipher
from raftsched.errors import InvariantBroken, RaftschedError
from raftsched.free_space import FreeSpace, free_bytes
from raftsched.leader.settings import LeaderSettings
from raftsched.node.backend import NodeBackend
from raftsched.node.backups import Backups
from raftsched.node.bound_ports import bind_ports
from raftsched.node.certificates import Certificates
from raftsched.node.cluster_key import require_cluster_key
from raftsched.node.executor_process import ExecutorProcess, commands_of
from raftsched.node.facts import Expiry
from raftsched.node.identity import DirectoryClaim
from raftsched.node.key_ring import KeyRing
from raftsched.node.live_settings import LiveSettings
from raftsched.node.metrics import NodeMetrics
from raftsched.node.preflight import cluster_secrets, keys_of, require_protected_peers
from raftsched.node.reencryption import Reencryption
from raftsched.node.service_manager import READY, STOPPING, notify
from raftsched.node.shutdown import Shutdown
from raftsched.node.spans import JobSpans
from raftsched.node.state_watch import watch_state
from raftsched.node.status import StatusReader
from raftsched.node.terms import Terms
from raftsched.ports import Clock, Randomness, Wake
from raftsched.storage.directory import holds_state

log = structlog.get_logger()

_API_STOP_SECONDS = 1.0
_WATCH_SECONDS = 1.0
"""Interval at which a node looks for problems of the cluster, so that it can say since when there are any."""


class Node:
    """One node of the cluster; `run` is its whole life."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        clock: Clock,
        randomness: Randomness,
        shutdown: Shutdown | None = None,
        read_settings: Callable[[], ReadConfig] | None = None,
    ) -> None:
        """`read_settings` reads the settings again after SIGHUP."""
        self.config = config
        self._read_settings = read_settings
        self._shutdown = shutdown or Shutdown()
        self.node_id = config.node_id
        self.operations_read = CODEC_VERSION
        """The latest version of log entries that this node reads."""
        self._cipher = NO_KEYS
        self._incarnation = ""
        """Random name of its data directory; "" before it was claimed."""
        self._register: SegmentRegister = VolatileRegister()
        """Record of the journal's newest segment: the claim, once there is one."""
        self._clock = clock
        self._randomness = randomness
        self._ids = JobIdFactory(randomness.randbytes)
        self._free_space = FreeSpace(self._free_bytes, clock, reserve_bytes=config.disk_reserve_mib << 20)
        self._space = ClusterSpace(self.node_id, clock, self._free_space.look)
        self._spans = JobSpans(time.time_ns) if tracing.is_set_up() else None
        self._executor_token: Callable[[], str] = str
        """Returns the token of this node's executors; "" = they need none."""
        self._expiries: Callable[[], Sequence[Expiry]] = tuple
        """Returns when the certificates of this node expire."""

    # -- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until asked to stop, then stop in order; raises the error that made it impossible to continue safely.

        The disk is touched once certificates and secret are read and both ports are bound: errors in them leave no trace.
        """
        for warning in self.config.warnings():
            log.warning("config_warning", warning=warning)
        require_protected_peers(self.config)
        self._certificates = Certificates(self.config)
        self._expiries = self._certificates.expiries
        self._secrets = cluster_secrets(self.config)
        self._admin = self._read_admin()
        self._cipher = self._make_cipher()
        self._ports = await bind_ports(self.config)
        try:
            await self._run_on_its_disk()
        finally:
            self._ports.close()

    def _read_admin(self) -> AdminFile | None:
        """Return the admin's tokens, None if nobody needs a token; raises `Invalid` for a file that can't be used."""
        if self.config.auth == "none":
            return None
        admin = AdminFile(Path(self.config.admin_token_file))
        admin.load()
        self._executor_token = lambda: f"{TOKEN_PREFIX}_{EXECUTOR}_{admin.executor_secret}"
        return admin

    async def _run_on_its_disk(self) -> None:
        directory = self.config.directory
        cipher = self._cipher
        claim = DirectoryClaim(directory, node_id=self.node_id, cluster=self.config.cluster, keys=cipher.keys)
        self._incarnation, self._register = claim.incarnation, claim
        try:
            if cipher:
                claim.need_key(cipher.checks[0])
            self._claim = claim
            self._build(directory)
            self._key_ring = KeyRing(cipher, claim, self._journal, self._terms.on_settings)
            await self._live(self._make_door())
            self._machine.close()
            log.info("node_stopped")
        finally:
            claim.release()

    def _make_door(self) -> Door:
        """Return who lets callers of the API in."""
        if self._admin is None:
            return OpenDoor()
        return TokenDoor(self.backend, self._admin, _certified_clients(self.config))

    def _make_cipher(self) -> Cipher:
        """Return the cipher of this node's files; raises `Invalid` naming the setting and the line at fault."""
        keys_file = Path(self.config.encryption.keys_file).absolute()
        keys = keys_of(self.config)
        return Cipher(keys, self._randomness.randbytes, source=keys_file) if keys else NO_KEYS

    def _build(self, directory: Path) -> None:
        """Open the node's data; the journal first, because nothing may be created if it is lost.

        Raises what makes a start unsafe; the state is closed then.
        """
        self._fault: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._journal = journal = self._open_journal(directory)
        self._machine = self._open_machine(directory, journal)
        with ExitStack() as refused:
            refused.callback(self._drop_state)
            require_cluster_key(self._machine.state.cluster_key, self._cipher.keys)
            self._build_replica(directory)
            self._build_services(directory)
            refused.pop_all()

    def _drop_state(self) -> None:
        """Close the state as it is on disk, without a checkpoint; the one of now, since a snapshot may have replaced it."""
        self._machine.state.close()

    def _build_replica(self, directory: Path) -> None:
        """Make what replicates the state; raises `StateLost` if journal and state do not fit."""
        self._events = EventLog(self._machine.state)
        self._machine.on_changes = self._on_changes
        self._machine.on_records = self._on_records
        self._cluster_clock = ClusterClock(
            self._clock,
            skew_ms=self.config.max_clock_skew_ms,
            floor_ms=lambda: self._machine.state.cluster_time_ms,
        )
        self._replica = Replica(
            settings=self._replica_settings(directory),
            machine=self._machine,
            journal=self._journal,
            make_transport=self._make_transport,
            clock=self._clock,
            randomness=self._randomness,
            on_leadership=self._on_leadership,
            cluster_clock=self._cluster_clock,
            space=self._space,
        )
        self._proposer = Proposer(
            propose_entry=self._replica.propose,
            now_ms=self._stamp_ms,
            version=lambda: self._replica.operation_version,
        )

    def _build_services(self, directory: Path) -> None:
        """Make what uses the replicated state: the leader's duties, and what the API shows."""
        self._status = StatusReader(
            config=lambda: self.config,
            machine=self._machine,
            replica=self._replica,
            cluster_clock=self._cluster_clock,
            space=self._space,
            cipher=self._cipher,
            clock=self._clock,
            expiries=self._expiries,
        )
        self._metrics = NodeMetrics(
            directory=directory,
            machine=self._machine,
            replica=self._replica,
            proposer=self._proposer,
            cluster_clock=self._cluster_clock,
            expiries=self._expiries,
        )
        self._terms = Terms(
            machine=self._machine,
            replica=self._replica,
            proposer=self._proposer,
            clock=self._cluster_clock,
            randomness=self._randomness,
            metrics=self._metrics,
            new_job_id=self._new_job_id,
            propose=self._propose_for_leadership,
            settings=self._leader_settings,
            on_fault=self._fail,
        )
        self._reencryption = self._make_reencryption()
        self.backend = NodeBackend(
            config=lambda: self.config,
            events=self._events,
            clock=self._clock,
            cluster_clock=self._cluster_clock,
            randomness=self._randomness,
            machine=self._machine,
            replica=self._replica,
            terms=self._terms,
            space=self._space,
            status=self._status,
            metrics=self._metrics,
            reencryption=self._reencryption,
            backups=self._make_backups(directory),
            new_job_id=self._new_job_id,
            propose=self._propose,
            on_fault=self._fail,
        )

    def _leader_settings(self) -> LeaderSettings:
        config = self.config
        return LeaderSettings(
            lease_ttl_ms=round(config.lease_seconds * 1000),
            cancel_grace_ms=round(config.cancel_grace_seconds * 1000),
            retention_ms=round(config.retention_seconds * 1000),
            ageing_ms=max(1, round(config.ageing_seconds * 1000)),
            key=self._cipher.checks[0] if self._cipher else None,
        )

    def _make_reencryption(self) -> Reencryption:
        return Reencryption(self.node_id, self._cipher, self._claim, self._machine, self._journal)

    def _make_backups(self, directory: Path) -> Backups:
        return Backups(
            self._machine,
            cluster=self.config.cluster,
            node_id=self.node_id,
            directory=directory / "snapshots",
            cipher=self._cipher,
            reserve_bytes=self.config.disk_reserve_mib << 20,
            now_ms=self._cluster_clock.wall_ms,
            free_bytes=self._free_bytes,
        )

    def _free_bytes(self) -> int:
        return free_bytes(self.config.directory)

    def _open_journal(self, directory: Path) -> Journal:
        register = self._register
        disk = SystemDisk(directory / "journal", create=register.newest is None)
        segment_bytes = self.config.journal_segment_bytes
        return Journal(disk, segment_bytes=segment_bytes, register=register, cipher=self._cipher)

    def _open_machine(self, directory: Path, journal: Journal) -> ReplicatedState:
        state = directory / "state"
        require_state(journal, is_there=holds_state(state))
        for part in (state, directory / "snapshots"):
            make_directory(part)
        return ReplicatedState(
            state,
            map_bytes=self.config.state_map_bytes,
            operations_read=self.operations_read,
            cipher=self._cipher,
        )

    def _replica_settings(self, directory: Path) -> ReplicaSettings:
        config = self.config
        return ReplicaSettings(
            node_id=self.node_id,
            peers=tuple(member.id for member in config.nodes if member.id != self.node_id),
            snapshot_directory=directory / "snapshots",
            timing=Timing(
                heartbeat_seconds=config.heartbeat_seconds,
                election_min_seconds=config.election_seconds_min,
                election_max_seconds=config.election_seconds_max,
            ),
            tail_bytes=config.journal_tail_bytes,
            members=Membership.of(Member(member.id, member.raft, member.api) for member in config.nodes),
            incarnation=self._incarnation,
        )

    def _make_transport(self, wake: Wake) -> Transport:
        config, tls = self.config, self._certificates.peers
        self._transport = Transport(
            self.node_id,
            config.raft_address[1],
            {member.id: Address.parse(member.raft) for member in config.nodes if member.id != self.node_id},
            cluster=config.cluster,
            wake=wake,
            ssl_server=tls.server if tls else None,
            ssl_client=tls.client if tls else None,
            secrets=self._secrets,
            randomness=self._randomness,
            sockets=self._ports.raft,
        )
        return self._transport

    async def _live(self, door: Door) -> None:
        """Serve until the process is asked to stop, or until a part fails, whose error is raised."""
        await self._replica.start()
        replica = asyncio.create_task(self._replica.run(), name="replica")
        asked = asyncio.create_task(self._shutdown.asked(), name="asked to stop")
        background = [
            asyncio.create_task(self._watch_state(), name="verification"),
            asyncio.create_task(self._reencrypt_whenever_asked(), name="re-encryption"),
            asyncio.create_task(self._certificates.keep(), name="certificates"),
            asyncio.create_task(self._keep_settings(door), name="settings"),
            asyncio.create_task(self._watch_cluster(), name="watch of the cluster"),
            asyncio.create_task(self._metrics.watch_loop(), name="stalls"),
        ]
        executors = [ExecutorProcess(command, token=self._executor_token) for command in commands_of(self.config)]
        executing: list[asyncio.Task[None]] = []
        app = create_app(self.backend, door, tls=self._certificates.api_client)
        channel = add_dashboard(app, door, self.node_id, partial(origin_headers, door))
        channel.runner = runner = create_runner(app, stop_seconds=_API_STOP_SECONDS)
        try:
            await self._listen(runner)
            executing += [asyncio.create_task(executor.run(), name="executor") for executor in executors]
            await asyncio.wait({replica, asked, self._fault}, return_when=asyncio.FIRST_COMPLETED)
            for part in (replica, self._fault):
                if part.done():
                    part.result()
            for executor in executors:
                executor.ask()
            await self._retire()
        except Exception as error:
            # Now, since the clean-up may hang; the stack only if the error is none that we know.
            unknown = None if isinstance(error, RaftschedError | OSError) else error
            log.critical("node_failing", error=str(error), exc_info=unknown)
            raise
        finally:
            for task in (asked, *background, *executing):
                task.cancel()
            if executing:
                stopped = asyncio.gather(*(executor.stop() for executor in executors))
                await self._shutdown.step("executors", stopped, seconds=limits.EXECUTOR_STOP_SECONDS_MAX)
            await self._stop_parts(runner)
        if replica.done():
            replica.result()
        self._shutdown.check()

    async def _stop_parts(self, runner: web.AppRunner) -> None:
        """Stop all parts, each in a bounded time; one that fails or hangs is logged and left."""
        self._status.is_stopping = True
        shutdown = self._shutdown
        shutdown.begin("a part failed")
        await shutdown.step("API", runner.cleanup(), seconds=limits.API_STOP_SECONDS_MAX)
        await shutdown.step("replica", self._replica.stop(), seconds=limits.REPLICA_STOP_SECONDS_MAX)
        await shutdown.step("leader's duties", self._terms.wait(), seconds=limits.DUTIES_STOP_SECONDS_MAX)

    async def _listen(self, runner: web.AppRunner) -> None:
        await runner.setup()
        for bound in self._ports.api:
            tls = self._certificates.api_server
            await web.SockSite(runner, bound, backlog=limits.ACCEPT_BACKLOG, ssl_context=tls).start()
        log.info(
            "node_started",
            api=self.config.url_of(str(self.config.api_address[1])),
            applied=self._machine.applied_index,
            cluster=self.config.cluster,
        )
        notify(READY)

    async def _keep_settings(self, door: Door) -> None:
        if self._read_settings is None:
            return
        adopt = partial(self._adopt, door)
        live = LiveSettings(self.config, self._read_settings, self._key_ring, self._secrets, adopt)

        def ask() -> None:
            live.ask()
            self._certificates.ask()

        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, ask)
        await live.keep()

    def _adopt(self, door: Door, config: NodeConfig, secrets: tuple[bytes, ...]) -> None:
        """Use new settings, which differ only in what may change, and the cluster's secrets of now."""
        self._transport.replace_secrets(secrets)
        self.config = config
        logs.set_level(config.log_level)
        self._free_space.set_reserve(config.disk_reserve_mib << 20)
        self._terms.on_settings()
        if isinstance(door, TokenDoor):
            door.set_clients(_certified_clients(config))

    async def _watch_cluster(self) -> None:
        while True:
            self._status.cluster()  # it notes since when there are problems
            await asyncio.sleep(_WATCH_SECONDS)

    async def _watch_state(self) -> None:
        try:
            await watch_state(self.config.directory / "state", self._cipher)
        except InvariantBroken as error:
            self._fail(error)
        except OSError as error:
            log.warning("state_not_verified", error=str(error))

    async def _reencrypt_whenever_asked(self) -> None:
        try:
            await self._reencryption.run(self._replica.wake)
        except InvariantBroken as error:
            self._fail(error)
        except Exception as error:
            log.exception("reencryption_failed")
            self._fail(InvariantBroken(f"re-encryption failed: {error}"))

    async def _retire(self) -> None:
        """Let another node lead before this one stops."""
        log.info("node_stopping")
        notify(STOPPING)
        self._status.is_stopping = True
        self._replica.retire()
        if self._replica.is_leading and len(self._replica.members) > 1:
            await self._shutdown.step(
                "transfer of leadership", self._transfer_leadership(), seconds=limits.TRANSFER_SECONDS_MAX
            )

    async def _transfer_leadership(self) -> None:
        log.info("leadership_transferred", done=await self._replica.transfer_leadership())

    # -- what the parts tell each other -------------------------------------------------------------------------------

    def _on_leadership(self, leads: bool) -> None:
        self._terms.on_leadership(leads)

    def _on_changes(self, changes: Sequence[Change]) -> None:
        self._events.feed(self._machine.state, changes=changes)
        self._terms.on_changes(changes)

    def _on_records(self, records: Sequence[Write]) -> None:
        self._events.feed(self._machine.state, records=records)
        if any(isinstance(record, PutClusterKey) for record in records) and (
            warning := self._status.encryption_warning()
        ):
            log.error("encryption_keys_differ", reason=warning)
        self._terms.on_records(records)

    def _stamp_ms(self) -> TimeMs:
        """The stamp of a log entry; raises `Unavailable` if nothing is accepted, or the cluster's time is not known."""
        if not self._replica.is_leading:
            raise self._replica.refusal()
        return self._cluster_clock.stamp_ms()

    def _new_job_id(self) -> JobId:
        return self._ids.next(self._cluster_clock.wall_ms())

    def _propose_for_leadership(self, operation: Operation) -> asyncio.Future[Result]:
        """Propose grants for workers and the leader's own operations: never refused because the disks are nearly full."""
        return self._propose(operation)

    def _propose(self, operation: Operation, origin: Origin | None = None) -> asyncio.Future[Result]:
        proposal = self._proposer.propose(operation, origin)
        return proposal if self._spans is None else self._spans.follow(operation, proposal)

    def _fail(self, error: BaseException) -> None:
        """Stop this node because of an error, the first one if there are several."""
        if not self._fault.done():
            self._fault.set_exception(error)


def _certified_clients(config: NodeConfig) -> list[CertifiedClient]:
    certified = config.api_tls.clients if config.api_tls is not None else ()
    return [CertifiedClient(each.name, Role[each.role.upper()], each.tenant) for each in certified]
