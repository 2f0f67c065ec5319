"""The page of the cluster, with nodes of its own: members, leadership, encryption and backups."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from raftsched.dashboard.quorum import Quorum
from raftsched.storage.backup import verify
from tests.dashboard.site import Site, opened_site


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def own_site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.touch(mode=0o600)
    keys.write_text(f"k1 {base64.b64encode(bytes(32)).decode()}\n")
    directory = tmp_path_factory.mktemp("cluster")
    async with opened_site(directory, encryption={"keys_file": str(keys)}) as opened:
        yield opened


async def test_only_admins_of_all_tenants_see_what_changes_the_cluster(own_site: Site) -> None:
    for role in ("viewer", "operator", "admin"):
        async with own_site.window(role) as window:
            page = await window.open("/cluster")
            await expect(page.locator("#nodes tbody tr")).to_have_count(3)
            assert await page.locator("main form, main a.button, main button").count() == 0, role
            await window.open("/cluster/transfer")
            await expect(page.get_by_role("heading", level=1)).to_have_text("You may not do this")


async def test_leadership_is_transferred_after_a_question(own_site: Site) -> None:
    async with own_site.window(token=own_site.admin_token, java_script_enabled=False) as window:
        page = await window.open("/cluster")
        before = await own_site.admin.cluster()
        heir = next(node["id"] for node in before["nodes"] if node["id"] != before["leader"])
        await page.get_by_role("link", name="Transfer leadership").click()
        await page.get_by_label(heir).check()
        await page.get_by_role("button", name="Transfer leadership").click()
        await expect(page.get_by_role("status")).to_have_text(f"{heir} leads now.")
    assert (await own_site.admin.cluster())["leader"] == heir


async def test_a_backup_is_downloaded_whole(own_site: Site, tmp_path: Path) -> None:
    async with own_site.window(token=own_site.admin_token) as window:
        page = await window.open("/cluster", node=1)
        await expect(page.locator("#backup")).to_contain_text("No backup was recorded")
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Download a backup of n2").click()
        stored = tmp_path / (await download.value).suggested_filename
        await (await download.value).save_as(stored)
    manifest = verify(stored)
    assert stored.name == f"{manifest.cluster}-n2-{manifest.applied_index}.backup"


async def test_keys_are_shown_and_data_is_moved_to_the_first(own_site: Site) -> None:
    async with own_site.window(token=own_site.admin_token) as window:
        page = await window.open("/cluster")
        section = page.locator("#encryption")
        await expect(section).to_contain_text("complete")
        await expect(section.locator("tbody tr").first).to_contain_text("k1")
        await section.get_by_role("link", name="Move all data").click()
        await page.get_by_role("button", name="Move all data of n1").click()
        await expect(page.get_by_role("status")).to_have_text("Node n1 moves its data to the key k1.")


async def test_a_node_that_is_down_is_named_removed_and_replaced(own_site: Site) -> None:
    cluster = own_site.cluster
    async with own_site.window(token=own_site.admin_token) as window:
        page = await window.open("/cluster")
        lost = cluster.nodes[2]
        lost.kill()
        await expect(page.locator("#problems")).to_contain_text(f"{lost.id} (", timeout=30_000)
        row = page.locator(f"#node-{lost.id}")
        await expect(row).to_contain_text("down")
        await expect(row).to_contain_text("since")
        await expect(page.locator("#health")).to_contain_text("the loss of one more stops the cluster")
        await page.reload()
        await row.get_by_role("link", name=f"Remove {lost.id}").click()
        await expect(page.locator("main dl")).to_contain_text("2 voters, 2 must be up, 2 are")
        await page.fill("#confirm", "n1")
        await page.get_by_role("button", name="Remove").click()
        await expect(page.get_by_role("alert")).to_have_text(f"confirm: type {lost.id} to remove this node")
        await page.fill("#confirm", lost.id)
        await page.get_by_role("button", name="Remove").click()
        await expect(page.get_by_role("status")).to_contain_text(f"{lost.id} was removed")
        await expect(page.locator("#nodes tbody tr")).to_have_count(2)
        new = cluster.new_node()
        cluster.start_node(new)
        await page.fill("#id", new.id)
        await page.fill("#raft", new.raft)
        await page.fill("#api", new.api.removeprefix("http://"))
        await page.get_by_role("button", name="Preview").click()
        await expect(page.locator("main dl")).to_contain_text("3 voters, 2 must be up, 3 are: the cluster survives")
        await page.get_by_role("button", name="Add this node").click()
        await expect(page.get_by_role("status")).to_contain_text(f"{new.id} joins")
        await expect(page.locator("#health")).to_contain_text("3 voters, 2 must be up, 3 are", timeout=90_000)
        await window.open("/cluster/nodes/n99/remove")
        await expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page or object")


def test_quorum_tells_what_a_change_leaves() -> None:
    told = {
        (3, 3): "3 voters, 2 must be up, 3 are: the cluster survives the loss of 1 more",
        (3, 2): "3 voters, 2 must be up, 2 are: the loss of one more stops the cluster",
        (1, 1): "1 voter, 1 must be up, 1 is: the loss of one more stops the cluster",
        (4, 2): "4 voters, 3 must be up, 2 are: no work is accepted",
    }
    assert {counts: Quorum(*counts).text for counts in told} == told
