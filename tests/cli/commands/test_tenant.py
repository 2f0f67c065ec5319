from __future__ import annotations

import pytest

from tests.cli.runner import Cli


async def test_set_changes_what_is_named_and_none_takes_it_away(cli: Cli) -> None:
    tenant = await cli.json(
        "tenant", "set", "acme", "--unfinished-jobs", "10000", "--schedules", "5", "--submits-per-second", "20",
        "--submit-burst", "60", "--weight", "3",
    )  # fmt: skip
    names = ("unfinished_jobs", "schedules", "submits_per_second", "submit_burst", "weight")
    assert [tenant[name] for name in names] == [10_000, 5, 20, 60, 3]
    tenant = await cli.json("tenant", "set", "acme", "--unfinished-jobs", "none", "--weight", "none")
    assert [tenant[name] for name in names] == [None, 5, 20, 60, 1]
    assert await cli.json("tenant", "show", "acme") == tenant
    await cli.misused("tenant", "set", "acme")
    await cli.misused("tenant", "set", "acme", "--weight", "-1")
    assert "weight" in await cli.refused("tenant", "set", "acme", "--weight", "9999")


async def test_list_and_show_tell_what_is_used_and_remove_ends_the_quotas(cli: Cli) -> None:
    assert "no tenant" in (await cli.ok("tenant", "list")).stdout
    await cli.ok("submit", "mail", "--tenant", "acme")
    await cli.ok("tenant", "set", "acme", "--unfinished-jobs", "10000")
    [row] = (await cli.ok("tenant", "list")).rows
    assert row[0] == "acme"
    assert "1 of 10,000" in (await cli.ok("tenant", "list")).stdout
    assert "1 of 10,000" in (await cli.ok("tenant", "show", "acme")).stdout
    assert (await cli.json("tenant", "remove", "acme"))["unfinished_jobs"] is None
    assert [tenant["name"] for tenant in await cli.json("tenant", "list")] == ["acme"]


@pytest.mark.parametrize("name", ["nobody"])
async def test_remove_refuses_a_tenant_without_settings(cli: Cli, name: str) -> None:
    assert "no settings" in await cli.refused("tenant", "remove", name)
