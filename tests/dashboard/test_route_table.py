"""Rules that follow from the table of pages, so that a new page is held to them at once.

Each page is asked for in a simulated node, by callers of each kind; one test looks at them in a browser.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest
from aiohttp import web
from markupsafe import escape

from raftsched.api.access.principal import Principal
from raftsched.core.operations.access import NoteTokenUses
from raftsched.core.operations.base import Operation
from raftsched.dashboard.csrf import FIELD
from raftsched.dashboard.headers import POLICY
from raftsched.dashboard.pages import PAGES
from raftsched.dashboard.session import ROOT
from tests.api.access.test_tenants import CANARY, Twin, World, owned_by_acme
from tests.api.node import run_of
from tests.dashboard.site import complaints_of, opened_browser, sign_in
from tests.dashboard.visitor import Elements, Seen, page_of, paths_of, visited, visitor

pytestmark = pytest.mark.asyncio(loop_scope="function")

_OF_EVERY_PAGE: Final = ("/sign-out", "/preferences")
_EVIL: Final = {"Origin": "https://evil.example"}
ATTACK: Final = (
    "</textarea></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'><a href='javascript:alert(3)'>{{7*7}}"
)
"""In every field that takes a free text. Names, queues, tags and ids have an alphabet of their own."""
_NOT_FOUND, _FORBIDDEN = 404, 403
_ENDED: Final = {"/dead-letters/groups/{group}": 422}
"""Pages about what is only there while the list has it."""


async def test_every_page_with_a_name_is_asked_about_something(tmp_path: Path) -> None:
    async with visited(tmp_path) as scene:
        assert [page.path for page in PAGES if not list(paths_of(page, scene))] == []


async def test_every_form_carries_the_token_of_the_session(tmp_path: Path) -> None:
    faults: list[str] = []
    async with visited(tmp_path) as scene:
        admin = visitor(scene, "all")
        form_count = 0
        for page in PAGES:
            for path in paths_of(page, scene) if page.show else ():
                seen = await admin.ask("GET", path)
                forms = [form for form in Elements(seen.text).forms if form.method.lower() == "post"]
                form_count += len(forms)
                faults += [f"{path}: {form}" for form in forms if form.fields.get(FIELD) != admin.csrf]
        assert form_count > len(PAGES)
    assert faults == []


async def test_no_form_is_taken_without_its_token_or_from_elsewhere(tmp_path: Path) -> None:
    async with visited(tmp_path) as scene:
        before = _changes(scene)
        assert await taken(scene) == []
        assert _changes(scene) == before


def _changes(scene: World) -> list[Operation]:
    """Return what was proposed, but for the uses of tokens, which are noted a second later."""
    return [operation for operation in scene.a.node.proposed if not isinstance(operation, NoteTokenUses)]


@pytest.mark.parametrize("check", ["raftsched.dashboard.site.check_form", "raftsched.dashboard.app.check_origin"])
async def test_a_missing_check_of_forms_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str) -> None:
    async with visited(tmp_path) as scene:
        monkeypatch.setattr(check, lambda *_: None)
        assert len(await taken(scene)) > 20


async def taken(scene: World) -> list[str]:
    """Return the forms that were taken although they lacked their token, or came from elsewhere."""
    faults: list[str] = []
    admin = visitor(scene, "all")
    for path in _posts(scene):
        for given, headers in (
            ({}, {}),
            ({FIELD: ""}, {}),
            ({FIELD: "0" * 64}, {}),
            ({FIELD: visitor(scene, "b").csrf}, {}),
            ({FIELD: admin.csrf}, _EVIL),
            ({FIELD: admin.csrf}, {"Origin": "null"}),
            ({FIELD: admin.csrf}, {"Sec-Fetch-Site": "cross-site"}),
        ):
            seen = await admin.ask("POST", path, given, **headers)
            if seen.status != _FORBIDDEN or "Nothing was changed" not in seen.text:
                faults.append(f"POST {path} {given} {headers}: {seen.status}")
    return faults


def _posts(scene: World) -> list[str]:
    """Return a path for each POST that the application takes below `/ui`, of pages or not."""
    app = scene.a.runner.app
    found = []
    for resource in app.router.resources():
        if isinstance(resource, web.PrefixedSubAppResource):
            found += [str(route.resource.canonical) for route in resource if route.method == "POST" and route.resource]
    templates = [path.removeprefix(ROOT) for path in found]
    assert len(templates) > len([page for page in PAGES if page.act])
    return [re.sub(r"\{\w+\}", "x", template) for template in templates]


@pytest.mark.parametrize("name", ["viewer", "submitter", "operator", "a"])
async def test_pages_offer_their_reader_no_action_that_the_role_lacks(tmp_path: Path, name: str) -> None:
    faults: list[str] = []
    async with visited(tmp_path) as scene:
        reader = visitor(scene, name)
        for page in PAGES:
            for path in paths_of(page, scene):
                if page.show is None:
                    continue
                seen = await reader.ask("GET", path)
                if not reader.may(page.access):
                    faults += [f"{path}: {seen.status}"] if seen.status != _FORBIDDEN else []
                    continue
                elements = Elements(seen.text)
                for form in elements.forms:
                    target = page_of(form.action or path)
                    allowed = target is not None and reader.may(target.access)
                    is_of_all = form.action.removeprefix(ROOT) in _OF_EVERY_PAGE
                    if form.method.lower() == "post" and not is_of_all and (not allowed or name == "viewer"):
                        faults.append(f"{path}: {form}")
                for link in elements.main_links:
                    target = page_of(link) if link.startswith(f"{ROOT}/") else None
                    if target is not None and not reader.may(target.access):
                        faults.append(f"{path}: a link to {link}, which needs {target.access}")
    assert faults == []


async def test_actions_beyond_a_role_are_refused_and_change_nothing(tmp_path: Path) -> None:
    faults: list[str] = []
    async with visited(tmp_path) as scene:
        before = await owned_by_acme(scene)
        reader = visitor(scene, "viewer")
        for page in PAGES:
            for path in paths_of(page, scene) if page.act else ():
                seen = await reader.ask(
                    "POST", path, {FIELD: reader.csrf, "name": "x", "confirm": "acme", "weight": "2"}
                )
                if seen.status != _FORBIDDEN:
                    faults.append(f"POST {path}: {seen.status}")
        assert await owned_by_acme(scene) == before
    assert faults == []


async def test_what_is_another_tenants_is_answered_as_what_does_not_exist(tmp_path: Path) -> None:
    async with visited(tmp_path) as scene:
        before = await owned_by_acme(scene)
        asked_count, faults = await differences(scene)
        assert await owned_by_acme(scene) == before
    assert asked_count > 50
    assert faults == []


async def test_a_difference_is_found_if_everybody_sees_every_tenant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with visited(tmp_path) as scene:
        monkeypatch.setattr(Principal, "sees", lambda _self, _tenant: True)
        _, faults = await differences(scene)
        assert len(faults) > 20


async def differences(scene: World) -> tuple[int, list[str]]:
    """Return how many questions were asked, and what tells `zeta` whether something of `acme` exists."""
    faults: list[str] = []
    asked_count = 0
    other = visitor(scene, "b")
    for page in PAGES:
        if "{" not in page.path or page.path.startswith("/cluster/"):
            continue
        wanted = _ENDED.get(page.path, _NOT_FOUND) if other.may(page.access) else _FORBIDDEN
        for method in (["GET"] if page.show else []) + (["POST"] if page.act else []):
            fields = {FIELD: other.csrf, "reason": "x", "confirm": "acme"} if method == "POST" else None
            for foreign, missing in zip(paths_of(page, scene), paths_of(page, scene, missing=True), strict=True):
                asked_count += 1
                answers = [_without(await other.ask(method, path, fields), path) for path in (foreign, missing)]
                if answers[0] != answers[1] or answers[0].status != wanted:
                    faults.append(f"{method} {foreign}: {_difference(*answers)}")
    return asked_count, faults


def _without(seen: Seen, path: str) -> Seen:
    """Return a reply without the name that was asked for."""
    name = path.split("/")[3 if "/groups/" in path else 2]
    kept = [text.replace(name, "…") for text in (seen.location, seen.cookies, seen.text)]
    return Seen(seen.status, *kept)


def _difference(one: Seen, other: Seen) -> str:
    for name in ("status", "location", "cookies", "text"):
        if getattr(one, name) != getattr(other, name):
            return f"{name}: {getattr(one, name)!s:.3000} is not {getattr(other, name)!s:.3000}"
    words = re.sub(r"<[^>]+>|\s+", " ", one.text)
    return f"both are {one.status}: {words[-300:]}"


async def test_lists_of_a_tenant_show_nothing_of_another(tmp_path: Path) -> None:
    leaks: list[str] = []
    async with visited(tmp_path) as scene:
        other = visitor(scene, "b")
        names = {twin.foreign for twin in scene.twins if twin.noun != "tenants"}
        queries = [f"tag={CANARY}", f"name={CANARY}-job", f"q={CANARY}", f"queue=acme:{CANARY}", f"actor={CANARY}"]
        queries += [f"q={name}" for name in names] + ["order=asc", "status=queued", "tenant=acme", ""]
        for page in PAGES:
            if "{" in page.path or page.show is None:
                continue
            for query in queries:
                seen = await other.ask("GET", f"{page.path}?{query}")
                text = seen.text.replace(query.partition("=")[2] or "\0", "")
                text = text.replace(query.partition("=")[2].replace(":", "%3A") or "\0", "")
                found = [name for name in (*names, CANARY) if name in text]
                if found and seen.status == 200:
                    leaks.append(f"{page.path}?{query}: {found}: {text[max(0, text.index(found[0]) - 100) :][:200]}")
    assert leaks == []


async def _hostile(scene: World) -> World:
    """Let `acme` have things of every kind with hostile texts, and return the scene with them in place of its own."""
    api, worker = scene.a, scene.w
    queue = f"acme:{CANARY}"
    job = {
        "name": "x",
        "queue": queue,
        "payload": {ATTACK: [ATTACK]},
        "concurrency_key": ATTACK,
        "max_attempts": 1,
    }
    await api.post("tokens", {"role": "viewer", "name": ATTACK[:100]})
    await api.post(f"queues/{queue}/pause", {"reason": ATTACK})
    await api.post(f"queues/{queue}/resume", {})
    failed = await api.submit(**job, idempotency_key=ATTACK, unique={"key": ATTACK})
    [lease] = await worker.lease(queue, worker="w1", capacity=1)
    run = run_of(lease)
    await worker.post(f"runs/{run['run_id']}/logs", {"fencing_token": run["fencing_token"], "lines": [ATTACK]})
    await worker.report(run_of(lease, status="failed", error={"type": ATTACK, "message": ATTACK, "traceback": ATTACK}))
    request = {"url": f"https://example.org/?{ATTACK}".replace(" ", ""), "headers": {"X": "<b>"}, "body": ATTACK}
    sent = await api.submit(name="h", http=request, delay_seconds=3_600)
    shell = await api.submit(
        name="s", shell={"argv": [ATTACK], "env": {"A": ATTACK}, "stdin": ATTACK}, delay_seconds=60
    )
    paused = await api.submit(**job, delay_seconds=3_600)
    await api.post(f"jobs/{paused['id']}/pause", {"reason": ATTACK})
    described = {"description": ATTACK, "owner": ATTACK[:100], "labels": {"team": ATTACK[:60]}}
    schedule = await api.post("schedules", {"name": "evil", "cron": "0 3 * * *", "job": job, **described})
    assert schedule.status == 201, schedule.body
    await api.post("schedules/evil/pause", {"reason": ATTACK})
    workflow = await api.post("workflows", {"name": "flow", "jobs": {"t": job}})
    assert workflow.status == 201, workflow.body
    twins = (
        *(Twin("jobs", each["id"], "") for each in (failed, sent, shell, paused)),
        Twin("schedules", schedule.json["id"], ""),
        Twin("workflows", workflow.json["id"], ""),
        *(twin for twin in scene.twins if twin.noun not in ("jobs", "schedules", "workflows")),
    )
    return replace(scene, twins=twins)


async def test_every_reply_has_the_policy_and_is_stored_by_no_cache(tmp_path: Path) -> None:
    """Pages have data of one reader, and one has the text of a new token."""
    faults: list[str] = []
    async with visited(tmp_path) as scene:
        admin = visitor(scene, "all")
        new_token = {FIELD: admin.csrf, "role": "viewer", "name": "x"}
        asked: list[tuple[str, str, dict[str, str] | None]] = [
            ("POST", "/tokens", new_token),
            ("GET", "/nothing", None),
        ]
        asked += [("GET", path, None) for page in PAGES if page.show for path in paths_of(page, scene)]
        for method, path, fields in asked:
            seen = await admin.ask(method, path, fields)
            if (seen.cache, seen.policy) != ("no-store", POLICY):
                faults.append(f"{method} {path}: {seen.cache} {seen.policy}")
    assert faults == []


async def test_hostile_texts_are_shown_as_texts_on_every_page(tmp_path: Path) -> None:
    faults: list[str] = []
    shown: set[str] = set()
    async with visited(tmp_path) as scene:
        hostile = await _hostile(scene)
        admin = visitor(hostile, "a")
        query = urlencode(dict.fromkeys(("q", "actor", "action", "subject", "name", "tag", "cursor", "next"), ATTACK))
        for page in PAGES:
            for path in paths_of(page, hostile) if page.show else ():
                for asked in (path, f"{path}?{query}"):
                    seen = await admin.ask("GET", asked)
                    faults += [f"{asked[:60]}: {fault}" for fault in Elements(seen.text).faults]
                    faults += [f"{asked[:60]}: fault"] if seen.status >= 500 else []
                    if escape(ATTACK) in seen.text or "&lt;img src=x" in seen.text:
                        shown.add(page.path)
    assert faults == []
    assert shown >= {"/jobs/{id}", "/schedules/{id}", "/tokens", "/audit"}


async def test_hostile_texts_run_nothing_in_a_browser(tmp_path: Path) -> None:
    """Neither a script of theirs, nor a violation of the policy by one that was tried, nor a dialog."""
    async with visited(tmp_path) as scene, opened_browser() as browser:
        hostile = await _hostile(scene)
        context = await browser.new_context()
        await sign_in(context, visitor(hostile, "a").token)
        tab = await context.new_page()
        tab.set_default_timeout(60_000)
        complaints = complaints_of(tab)
        for page in PAGES:
            for path in list(paths_of(page, hostile))[:4] if page.show else ():
                await tab.goto(f"{hostile.a.node.api_url}{ROOT}{path}")
                assert await tab.locator("h1").count() == 1, path
        await context.close()
    assert complaints == []
