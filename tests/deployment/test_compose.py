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


def mounts_of(service: Any) -> dict[str, str]:
    """Return target -> source."""
    return {target: source for source, target, *_ in (volume.split(":") for volume in service.get("volumes", ()))}


def targets_of(service: Any) -> list[str]:
    return [secret["target"] for secret in service["secrets"]]


def test_file_is_valid_and_names_only_files_that_exist(compose: Any) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert [error.message for error in jsonschema_rs.validator_for(schema).iter_errors(compose)] == []
    sources = [source for service in compose["services"].values() for source in mounts_of(service).values()]
    assert [source for source in sources if source.startswith(".") and not (CONFIGS / source).exists()] == []
    assert {source for source in sources if not source.startswith(".")} == compose["volumes"].keys()


def test_services_of_nodes_are_those_of_the_settings(compose: Any) -> None:
    found = {}
    for name, service in nodes_in(compose).items():
        loaded = read_on_host(CONFIGS / "cluster.toml", service["hostname"], {})
        found[loaded.node_id] = name
        assert unmounted(loaded, [*mounts_of(service), *targets_of(service)]) == []
        assert (loaded.member.api, loaded.member.raft) == (f"{name}:8400", f"{name}:8401")
        assert float(service["stop_grace_period"].removesuffix("s")) > limits.STOP_SECONDS_MAX
    assert list(found) == [member.id for member in loaded.nodes]
    assert compose["services"]["raftsched-1"]["ports"] == [f"127.0.0.1:8400:{loaded.api_address[1].port}"]


def test_worker_asks_the_nodes_and_has_time_to_finish(compose: Any) -> None:
    worker = compose["services"]["worker"]
    assert worker["environment"]["RAFTSCHED_URL"].split() == [f"http://{name}:8400" for name in nodes_in(compose)]
    assert unknown_words(worker["command"], worker["environment"]) == []
    assert float(worker["stop_grace_period"].removesuffix("s")) > WorkerSettings().drain_seconds


def test_monitoring_reads_all_nodes_and_finds_its_files(compose: Any) -> None:
    (settings,) = yaml_documents(CONFIGS / "prometheus" / "prometheus.yml")
    (scrape,) = settings["scrape_configs"]
    assert scrape["static_configs"][0]["targets"] == [f"{name}:8400" for name in nodes_in(compose)]
    prometheus, grafana = compose["services"]["prometheus"], compose["services"]["grafana"]
    assert scrape["authorization"]["credentials_file"] in targets_of(prometheus)
    mounted = mounts_of(prometheus)
    assert {f"/etc/prometheus/{name}" for name in (*settings["rule_files"], "prometheus.yml")} < mounted.keys()

    provisioned = CONFIGS / "grafana" / "provisioning"
    (provider,) = yaml_documents(provisioned / "dashboards" / "raftsched.yml")[0]["providers"]
    assert f"{provider['options']['path']}/raftsched.json" in mounts_of(grafana)
    (source,) = yaml_documents(provisioned / "datasources" / "raftsched.yml")[0]["datasources"]
    assert source["url"].removeprefix("http://") == f"prometheus:{prometheus['ports'][0].split(':')[-1]}"


def test_all_services_of_the_image_are_hardened(compose: Any) -> None:
    for service in (*nodes_in(compose).values(), compose["services"]["worker"]):
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
