"""The table of verbs, and all that is made from it: no side has a verb that another lacks."""

from __future__ import annotations

import inspect
from typing import get_args

import click
import pytest
from msgspec.structs import fields

from raftsched.api.access.door import OpenDoor
from raftsched.api.app import create_app
from raftsched.cli.commands.queues import queue_command
from raftsched.cli.commands.schedule.command import schedule_command
from raftsched.cli.commands.workers import workers_command
from raftsched.cli.main import main
from raftsched.client import BlockingJob, Job, Queue
from raftsched.client.queues import BlockingQueue
from raftsched.client.schedules import BlockingSchedules, Schedules
from raftsched.client.workers import BlockingWorkerHandle, WorkerHandle
from raftsched.wire.bulk import BulkRequest
from raftsched.wire.verbs import JOB, QUEUE, SCHEDULE, WORKER, Action, Verb
from tests.api.node import SimulatedNode

TABLES = {"job": JOB, "schedule": SCHEDULE, "queue": QUEUE, "worker": WORKER}
VERBS = [verb for table in TABLES.values() for verb in table.values()]
CLIENTS = {
    "job": (Job, BlockingJob),
    "schedule": (Schedules, BlockingSchedules),
    "queue": (Queue, BlockingQueue),
    "worker": (WorkerHandle, BlockingWorkerHandle),
}
GROUPS: dict[str, click.Group] = {
    "job": main,
    "schedule": schedule_command,
    "queue": queue_command,
    "worker": workers_command,
}
NAMES_IN_CLIENT = {"amend": "update"}
NAMES_OF_COMMANDS = {"configure": "set"}
ONLY_IN_BULK = {"delete", "reprioritise"}
"""Of jobs: the client's `bulk` does the one, `Job.update` the other."""
NO_COMMAND = {("schedule", "amend")}
"""`schedule create` changes a schedule, too."""


def _id(verb: Verb) -> str:
    return f"{verb.name} {verb.noun}"


@pytest.mark.parametrize("verb", VERBS, ids=_id)
def test_verb_is_served_where_the_table_says(verb: Verb) -> None:
    routes = {
        (route.method, route.resource.canonical): route.name
        for route in create_app(SimulatedNode(), OpenDoor()).router.routes()
        if route.resource is not None
    }
    name = routes.get((verb.method, f"/api/v1{verb.path(verb.object_path)}"))
    served = verb.name if not verb.part_of else verb.part_of
    assert (name == f"{served}_{verb.noun}") is not verb.is_bulk_only


@pytest.mark.parametrize("verb", VERBS, ids=_id)
def test_verb_is_a_method_of_both_clients_with_the_fields_of_its_request(verb: Verb) -> None:
    if verb.noun == "job" and verb.name in ONLY_IN_BULK:
        return
    for client in CLIENTS[verb.noun]:
        method = getattr(client, NAMES_IN_CLIENT.get(verb.name, verb.name))
        taken = inspect.signature(method).parameters
        has_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in taken.values())
        named = {{"from_": "start", "to": "end"}.get(field, field) for field in verb.options}
        assert has_any or named <= taken.keys()


@pytest.mark.parametrize("verb", VERBS, ids=_id)
def test_verb_is_a_command_with_its_help_and_fields(verb: Verb) -> None:
    if (verb.noun, verb.name) in NO_COMMAND:
        return
    group = GROUPS[verb.noun]
    command = group.get_command(click.Context(group), NAMES_OF_COMMANDS.get(verb.name, verb.name))
    assert command is not None
    assert (command.help or "").startswith(verb.help)
    if verb.fields is not None or verb.body is None:
        assert set(verb.options) <= {parameter.name for parameter in command.params}


def test_bulk_actions_are_the_verbs_that_are_meant_for_a_status() -> None:
    assert [verb.name for verb in JOB.values() if verb.meant_for] == [*get_args(Action)]
    assert all(not verb.meant_for for table in (SCHEDULE, QUEUE, WORKER) for verb in table.values())


@pytest.mark.parametrize("verb", [verb for verb in JOB.values() if verb.meant_for], ids=_id)
def test_bulk_request_has_the_fields_of_each_action(verb: Verb) -> None:
    known = {field.name for field in fields(BulkRequest)}
    own = {field.name for field in fields(verb.request)} if verb.request is not None else set()
    assert set(verb.options) <= known & own
    assert verb.past
