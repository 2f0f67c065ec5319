"""Change the members of the cluster: one change at a time, asked for at whoever leads, as the API's routes do.

    add_member      a spare host joins as a learner; it becomes a voter by itself
    remove_member   a voter leaves, the leader too; its process is stopped some time later
    replace_member  a disk is lost: a host with a new id joins, and the old id is removed, in either order
    wipe_member     the same, but the host first starts again, empty and under its old id: it must take no part
    forget_member   the same, but only a part of its data is gone, and node.json is not: it must refuse to start

A change is asked for again until it is committed, whatever answers came, and continues after the heal. Never is a majority
of the voters' disks lost, in any configuration that may be in effect: more is outside of the fault model.

What is committed is what some node has applied (`World.membership`).
"""

from __future__ import annotations

from asyncio import Task, sleep
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from math import inf
from typing import Any

from chaos.sim.hosts.host import Host, Reset, Unreachable
from chaos.sim.hosts.node import SimulatedNode
from chaos.sim.world.world import World
from raftsched.consensus.raft.membership.members import Membership
from raftsched.errors import InvariantBroken, RaftschedError

_VOTERS_MIN = 3
_MORE_MEMBERS_MAX = 2
"""The cluster grows by no more than that."""
_PATIENCE_SECONDS = 2.0


class Operator:
    """Does one change after the other; each method begins one and returns whom it is about, or "" where none can be."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._members_max = len(world.ids) + _MORE_MEMBERS_MAX
        self._leaving = ""
        """Whom the change that is under way removes."""

    # -- what can be asked for ----------------------------------------------------------------------------------------

    def add_member(self) -> str:
        if self._world.is_changing or len(self._world.membership.members) >= self._members_max:
            return ""
        host = self._new_host()
        self._begin(self._join(host, patience=self._random.choice((inf, inf, 3.0))))
        return host.id

    def remove_member(self) -> str:
        voters = self._world.membership.voters
        if self._world.is_changing or len(voters) <= _VOTERS_MIN:
            return ""
        host = self._choose([node_id for node_id in sorted(voters) if self._can_spare(node_id)])
        if host is None:
            return ""
        self._begin(self._remove(host))
        return host.id

    def replace_member(self) -> str:
        host = self._lose_disk()
        if host is None:
            return ""
        host.retire()
        self._begin(self._replace(host))
        return host.id

    def wipe_member(self) -> str:
        return self._start_again(self._lose_disk())

    def forget_member(self) -> str:
        return self._start_again(self._lose_disk(keeps_name=True))

    def _start_again(self, host: Host | None) -> str:
        """Start a host without its data under its old id, and replace it a moment later."""
        if host is None:
            return ""
        self._world.outcast = host
        self._world.timeline.after(self._random.random(), host.start)
        self._begin(self._replace(host, pause=0.3 + 2.0 * self._random.random()))
        return host.id

    def may_lose(self, node_id: str) -> bool:
        """Whether the disk of a host may be lost now; not of one that joins, whose change could never end then."""
        if any(each.id == node_id for known in self._configurations("") for each in known.joining):
            return False
        return all(self._has_majority(each, without=node_id) for each in self._configurations(self._leaving))

    # -- what may befall disks ----------------------------------------------------------------------------------------

    def _configurations(self, leaving: str) -> Iterator[Membership]:
        """All that is in effect anywhere, and what comes of it once a member has left."""
        running = (host.node for host in self._world.hosts.values())
        known = [node.membership for node in running if node is not None and node.is_built]
        for membership in (self._world.membership, *known):
            yield membership
            if membership.member(leaving) is not None and membership.voters != {leaving}:
                yield membership.without(leaving)

    def _has_majority(self, membership: Membership, *, without: str = "") -> bool:
        whole = [each for each in membership.voters if each != without and not self._world.hosts[each].is_bad]
        return membership.is_majority(whole)

    def _can_spare(self, node_id: str) -> bool:
        return all(self._has_majority(each) for each in self._configurations(node_id))

    def _lose_disk(self, *, keeps_name: bool = False) -> Host | None:
        """Empty the disk of a voter, but for its node.json where it `keeps_name`; one that is damaged already comes
        first.
        """
        if self._world.is_changing:
            return None
        world = self._world
        voters = sorted(world.membership.voters)
        lost = [node_id for node_id in voters if world.hosts[node_id].is_lost and self._can_spare(node_id)]
        host = self._choose(lost or [node_id for node_id in voters if self._may_wipe(node_id)])
        if host is not None:
            (host.lose_part if keeps_name and not host.is_lost else host.wipe)()
        return host

    def _may_wipe(self, node_id: str) -> bool:
        """Whether the cluster knows a member by its disk, and can do without."""
        known = all(
            (member := each.member(node_id)) is None or member.incarnation == self._world.hosts[node_id].incarnation
            for each in self._configurations("")
        )
        return known and all(self._has_majority(each, without=node_id) for each in self._configurations(node_id))

    def _choose(self, node_ids: list[str]) -> Host | None:
        """One of them, the leader more often than others."""
        leader = self._world.leader
        if leader is not None and leader.id in node_ids and self._random.random() < 0.4:
            return leader
        return self._world.hosts[self._random.choice(node_ids)] if node_ids else None

    # -- changes ------------------------------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._world.is_changing = True
        self._world.loop.create_task(work).add_done_callback(self._on_done)

    def _on_done(self, task: Task[None]) -> None:
        self._world.is_changing = False
        task.result()

    def _new_host(self) -> Host:
        """A spare host with an id of its own, which starts now or a little later."""
        host = self._world.new_host()
        late = self._random.choice((0.0, 0.0, 0.0, 2.0)) * self._random.random()
        self._world.timeline.after(late, host.start)
        return host

    async def _join(self, host: Host, *, patience: float = inf) -> None:
        """Have a host made a voter; if that lasts longer than `patience`, it is removed before it is one.

        A newcomer whose disk is damaged meanwhile will never be one: another takes its place (seed 412244).
        """
        world = self._world
        member = host.member
        give_up_at = world.timeline.now + patience
        while host.id not in world.membership.voters:
            if host.is_lost:
                world.count("members: newcomer lost its disk")
                await self._remove(host)
                await self._join(self._new_host(), patience=patience)
                return
            if world.membership.member(host.id) is None:
                await self._ask("add", lambda node: node.backend.add_member(host.id, raft=member.raft, api=member.api))
            elif world.timeline.now > give_up_at and not world.is_healed:
                world.count("members: add given up")
                await self._remove(host)
                return
            await self._pause()
        world.count("members: add done")

    async def _remove(self, host: Host) -> None:
        """Have a member removed; its host is stopped some time later, while it may still disturb."""
        world = self._world
        self._leaving = host.id
        while world.membership.member(host.id) is not None:
            await self._ask("remove", lambda node: node.backend.remove_member(host.id))
            await self._pause()
        self._leaving = ""
        world.count("members: remove done")
        await sleep(self._random.choice((0.0, 0.3, 2.0)) * self._random.random())
        if self._world.outcast is host:
            self._world.outcast = None
        host.retire()

    async def _replace(self, host: Host, *, pause: float = 0.0) -> None:
        """Let a new host take the place of one that has lost its disk."""
        await sleep(pause)
        removes_first = self._random.random() < 0.5
        if removes_first:
            await self._remove(host)
        self._leaving = "" if removes_first else host.id
        await self._join(self._new_host())
        if not removes_first:
            await self._remove(host)
        self._world.count("members: replace done")

    async def _pause(self) -> None:
        await sleep(0.01 + self._random.choice((0.02, 0.3)) * self._random.random())

    async def _ask(self, what: str, handler: Callable[[SimulatedNode], Awaitable[object]]) -> None:
        """Ask whoever leads; how it is answered counts for the statistics only."""
        world = self._world
        leader = world.leader
        node_id = leader.id if leader is not None else self._random.choice(world.ids)
        try:
            await world.call(node_id, handler, seconds=_PATIENCE_SECONDS)
        except InvariantBroken:
            raise
        except RaftschedError as error:
            world.count(f"members: {what} {error.code}")
        except (Unreachable, Reset, TimeoutError):
            world.count(f"members: {what} unanswered")
        else:
            world.count(f"members: {what} answered")
