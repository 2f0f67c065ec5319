"""`configs/compose.yaml` is what Compose accepts, and fits the settings of the nodes and the image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import check_jsonschema
import jsonschema_rs
import pytest

from raftsched import limits
from raftsched.worker import WorkerSettings
from tests.deployment.settings import CONFIGS, read_on_host, unknown_words, unmounted, yaml_documents

SCHEMA = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor" / "compose-spec.json"


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml_documents(CONFIGS / "compose.yaml")[0]


def nodes_in(compose: Any) -> dict[str, Any]:
    return {name: service for name, service in compose["services"].items() if name.startswith("raftsched-")}


def test_file_is_valid_and_names_only_files_that_exist(compose: Any) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert [error.message for error in jsonschema_rs.validator_for(schema).iter_errors(compose)] == []
    mounts = [volume for service in compose["services"].values() for volume in service.get("volumes", ())]
    sources = [volume.split(":")[0] for volume in mounts]
    assert [source for source in sources if source.startswith(".") and not (CONFIGS / source).exists()] == []
    assert {source for source in sources if not source.startswith(".")} == compose["volumes"].keys()


def test_services_of_nodes_are_those_of_the_settings(compose: Any) -> None:
    found = {}
    for name, service in nodes_in(compose).items():
        loaded = read_on_host(CONFIGS / "cluster.toml", service["hostname"], {})
        found[loaded.node_id] = name
        mounted = [volume.split(":")[1] for volume in service["volumes"]]
        assert unmounted(loaded, [*mounted, *(secret["target"] for secret in service["secrets"])]) == []
        assert (loaded.member.api, loaded.member.raft) == (f"{name}:8400", f"{name}:8401")
        assert float(service["stop_grace_period"].removesuffix("s")) > limits.STOP_SECONDS_MAX
    assert list(found) == [member.id for member in loaded.nodes]
    assert compose["services"]["raftsched-1"]["ports"] == [f"127.0.0.1:8400:{loaded.api_address[1].port}"]


def test_worker_asks_the_nodes_and_has_time_to_finish(compose: Any) -> None:
    worker = compose["services"]["worker"]
    assert worker["environment"]["RAFTSCHED_URL"].split() == [f"http://{name}:8400" for name in nodes_in(compose)]
    assert unknown_words(worker["command"], worker["environment"]) == []
    assert float(worker["stop_grace_period"].removesuffix("s")) > WorkerSettings().drain_seconds


def test_all_services_of_the_image_are_hardened(compose: Any) -> None:
    for service in (*nodes_in(compose).values(), compose["services"]["worker"]):
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
