"""Ask for clients and workers: choose the node, and write the answer down.

Each request is one operation of the history. What is heard decides: a refusal that the system calls definite is `fail`, an
answer is `ok`, and everything else is `info`, after which the client is somebody else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from chaos.sim.hosts.host import Reset, Unreachable
from chaos.sim.hosts.node import SimulatedNode
from chaos.sim.world.world import World
from raftsched.core.operations.base import Operation
from raftsched.core.state.results import Refused, Result
from raftsched.errors import InvariantBroken, NotLeader, OutcomeUnknown, RaftschedError, Unavailable

T = TypeVar("T")
PATIENCE_SECONDS = 1.5


class Unknown(Exception):
    """Nobody knows what became of the request."""


class Refusal(Exception):
    """The request was definitely refused; `code` says why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class _PassedOn:
    """The endpoint knows of a leader elsewhere, who is asked instead."""

    leader: str


class Caller:
    """A client's identity in the history, and its way to the nodes."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self._name = name
        self._lives = 0
        self.node = world.random.choice(world.ids)
        """The node that it asks; it follows hints to the leader."""

    @property
    def process(self) -> str:
        return f"{self._name}.{self._lives}"

    async def ask(
        self,
        f: str,
        handler: Callable[[SimulatedNode], Awaitable[T]],
        answer: Callable[[T], dict[str, Any]],
        *,
        op: int = 0,
        seconds: float = PATIENCE_SECONDS,
        node: str = "",
        **fields: Any,
    ) -> T:
        """One operation: asked, answered, written down. Raises `Refusal` or `Unknown`."""
        recorder = self.world.recorder
        op = op or recorder.new_op()
        process, node = self.process, node or self._choose(f)
        recorder.invoke(process, op, f, node=node, **fields)
        try:
            if fields.get("stale"):
                result = await self.world.call(node, handler, seconds=seconds)
            else:
                result = await self._forwarded(node, handler, seconds)
            shown = answer(result)
        except (Unreachable, RaftschedError) as error:
            self.world.trace.say(process, f"op {op}: {error}")
            if isinstance(error, (OutcomeUnknown, InvariantBroken)):
                raise self._lost(op) from error
            code = error.code if isinstance(error, RaftschedError) else "unreachable"
            self._look_elsewhere(error)
            recorder.reply(process, op, "fail", error=code)
            raise Refusal(code) from error
        except Refusal as refusal:
            recorder.reply(process, op, "fail", error=refusal.code)
            raise
        except (Reset, TimeoutError) as error:
            self._look_elsewhere(error)
            raise self._lost(op) from error
        recorder.reply(process, op, "ok", **shown)
        if self.world.is_healed and shown.get("grants", True):
            self.world.served.setdefault(f, set()).add(node)
        return result

    async def _forwarded(self, node: str, handler: Callable[[SimulatedNode], Awaitable[T]], seconds: float) -> T:
        """Ask a node; if it knows of another leader, it passes the request on, once, as `api.forwarder` does."""

        async def at_endpoint(asked: SimulatedNode) -> T | _PassedOn:
            leader = asked.leader_elsewhere
            return _PassedOn(leader) if leader else await handler(asked)

        async def at_leader(asked: SimulatedNode) -> T:
            if asked.leader_elsewhere:
                raise NotLeader(asked.leader_elsewhere)
            return await handler(asked)

        answer = await self.world.call(node, at_endpoint, seconds=seconds)
        if isinstance(answer, _PassedOn):
            return await self.world.call(answer.leader, at_leader, seconds=seconds)
        return answer

    def _choose(self, f: str) -> str:
        """The node it knows; once all is healed, one that has not served this yet: every node must, so each is asked.

        A node whose disk is lost for good stays down, and is asked no more often than any other.
        """
        world = self.world
        if not world.is_healed:
            return self.node
        served = world.served.get(f, set())
        waiting = [node for node in world.ids if node not in served and not world.hosts[node].is_lost]
        return world.random.choice(waiting or world.ids)

    def _lost(self, op: int) -> Unknown:
        self.world.recorder.reply(self.process, op, "info")
        self._lives += 1
        return Unknown()

    def _look_elsewhere(self, error: BaseException) -> None:
        if isinstance(error, NotLeader) and error.leader:
            self.node = error.leader
        elif not isinstance(error, RaftschedError) or isinstance(error, Unavailable):
            self.node = self.world.random.choice(self.world.ids)


def or_refuse(result: Result) -> Result:
    """Return the result of a request; raises `Refusal` if that is a refusal."""
    if isinstance(result, Refused):
        raise Refusal(result.code.label)
    return result


async def propose(node: SimulatedNode, operation: Operation) -> tuple[Result, int]:
    """Propose, as the API's handlers do; return the result and the index of the state that answers."""
    result = await node.backend.propose(operation)
    return result, node.state.applied_index
