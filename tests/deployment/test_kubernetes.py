"""The objects for Kubernetes are valid, and fit each other, the settings of the nodes and the API."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
from msgspec.structs import asdict, replace

from raftsched import limits
from raftsched.api.access.door import OpenDoor
from raftsched.api.app import create_app
from raftsched.node.certificates import own_api_contexts, peer_contexts
from raftsched.wire.queues import ScaleReply
from raftsched.worker import WorkerSettings
from tests.api.node import SimulatedNode
from tests.deployment.settings import CONFIGS, USER, read_on_host, unknown_words, unmounted, yaml_documents

FOLDER: Final = CONFIGS / "kubernetes"
SCHEMAS: Final = "1.33"
"""The oldest release whose schemas the objects must meet; the latest one is tried as well."""


def documents(folder: Path) -> list[Any]:
    found = [each for path in sorted(folder.glob("*.yaml")) for each in yaml_documents(path)]
    return [each for each in found if each["kind"] != "Kustomization"]


def one(kind: str, name: str = "raftsched") -> Any:
    everything = documents(FOLDER) + documents(FOLDER / "keda")
    return next(each for each in everything if (each["kind"], each["metadata"]["name"]) == (kind, name))


def pod_of(kind: str, name: str = "raftsched") -> Any:
    return one(kind, name)["spec"]["template"]


def settings_of_pods() -> dict[str, Any]:
    """Return the settings that each pod of the StatefulSet reads, by its name."""
    nodes = one("StatefulSet")
    (container,) = pod_of("StatefulSet")["spec"]["containers"]
    found = {}
    for ordinal in range(nodes["spec"]["replicas"]):
        name = f"{nodes['metadata']['name']}-{ordinal}"
        given = {
            each["name"]: each["value"].replace("$(POD_NAME)", name) for each in container["env"] if "value" in each
        }
        found[name] = read_on_host(FOLDER / "cluster.toml", name, given)
    return found


def test_objects_are_valid_and_each_file_is_listed() -> None:
    for release in (SCHEMAS, kubernetes_validate.latest_version()):
        for each in documents(FOLDER):
            kubernetes_validate.validate(each, release, strict=True)
    for folder in (FOLDER, FOLDER / "keda"):
        (listing,) = yaml_documents(folder / "kustomization.yaml")
        files = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
        assert set(listing["resources"]) == files
        assert listing["namespace"] == one("Namespace")["metadata"]["name"]
    (generated,) = yaml_documents(FOLDER / "kustomization.yaml")[0]["configMapGenerator"]
    volumes = {volume["name"]: volume for volume in pod_of("StatefulSet")["spec"]["volumes"]}
    assert volumes["config"]["configMap"]["name"] == generated["name"]
    assert generated["files"] == ["cluster.toml"]


def test_each_pod_is_a_node_with_its_files() -> None:
    settings = settings_of_pods()
    (container,) = pod_of("StatefulSet")["spec"]["containers"]
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    domain = f"{one('StatefulSet')['spec']['serviceName']}.{one('Namespace')['metadata']['name']}.svc"
    for name, loaded in settings.items():
        assert unmounted(loaded, mounted) == []
        assert (loaded.member.api, loaded.member.raft) == (f"{name}.{domain}:8400", f"{name}.{domain}:8401")
        assert loaded.peer_tls is not None
        assert loaded.peer_tls.certificate == f"/run/raftsched/tls/{name}.crt"
        assert loaded.api_tls is not None
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports == {"api": loaded.api_address[1].port, "raft": loaded.raft_address[1].port}
    assert [loaded.node_id for loaded in settings.values()] == [member.id for member in loaded.nodes]
    assert unknown_words(container["args"], [each["name"] for each in container["env"]]) == []


def test_certificates_made_as_documented_are_accepted_by_each_pod(tmp_path: Path) -> None:
    told = (CONFIGS.parent / "docs" / "deployment.md").read_text(encoding="utf-8")
    lines = re.search(
        r"^\$ (raftsched tls new-ca[^$]*)^\$ (for i in 0 1 2;.*?)^\$ kubectl", told, re.MULTILINE | re.DOTALL
    )
    assert lines is not None
    programs = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-ec", lines[1] + lines[2]], cwd=tmp_path, env=os.environ | programs, check=True)
    files = dict(re.findall(r"--from-file=(\S+)=((?:ca|tls)/\S+)", told))
    for loaded in settings_of_pods().values():
        assert loaded.peer_tls is not None
        assert loaded.api_tls is not None
        own = {name: str(tmp_path / files[Path(path).name]) for name, path in asdict(loaded.peer_tls).items()}
        given = replace(loaded, peer_tls=replace(loaded.peer_tls, **own), api_tls=replace(loaded.api_tls, **own))
        assert peer_contexts(given)
        assert own_api_contexts(given)


def test_founders_can_find_each_other_before_any_is_ready() -> None:
    nodes, between = one("StatefulSet"), one("Service", one("StatefulSet")["spec"]["serviceName"])
    assert nodes["spec"]["podManagementPolicy"] == "Parallel"
    assert (between["spec"]["clusterIP"], between["spec"]["publishNotReadyAddresses"]) == ("None", True)
    assert "publishNotReadyAddresses" not in one("Service")["spec"], "clients are sent to ready nodes only"


def test_selectors_meet_the_pods_and_ports_are_theirs() -> None:
    labels = pod_of("StatefulSet")["metadata"]["labels"]
    chosen = [one("Service")["spec"]["selector"], one("Service", "raftsched-nodes")["spec"]["selector"]]
    policy = one("NetworkPolicy", "raftsched-nodes")["spec"]
    chosen += [each["matchLabels"] for each in (one("PodDisruptionBudget")["spec"]["selector"], policy["podSelector"])]
    chosen += [policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"]]
    assert [selector for selector in chosen if not selector.items() <= labels.items()] == []
    assert [port["port"] for port in policy["ingress"][0]["ports"]] == ["raft", "api"]
    assert policy["ingress"][1]["ports"] == [{"port": "api"}], "only nodes reach the Raft port"
    callers = policy["ingress"][1]["from"][0]["podSelector"]["matchLabels"]
    assert callers.items() <= pod_of("Deployment", "raftsched-worker")["metadata"]["labels"].items()
    assert one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_probes_ask_routes_of_the_api_by_its_scheme() -> None:
    (container,) = pod_of("StatefulSet")["spec"]["containers"]
    paths = {kind: container[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert [each["path"] for each in paths.values()] == ["/healthz", "/healthz", "/readyz"]
    assert {(each["port"], each["scheme"]) for each in paths.values()} == {("api", "HTTPS")}


def test_pods_meet_the_restricted_standard_and_have_time_to_stop() -> None:
    seconds = {("StatefulSet", "raftsched"): limits.STOP_SECONDS_MAX}
    seconds["Deployment", "raftsched-worker"] = WorkerSettings().drain_seconds
    for (kind, name), least in seconds.items():
        spec = pod_of(kind, name)["spec"]
        (container,) = spec["containers"]
        own = spec["securityContext"]
        assert (own["runAsNonRoot"], str(own["runAsUser"]), str(own["fsGroup"])) == (True, USER, USER)
        assert own["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert spec["terminationGracePeriodSeconds"] > least
        modes = [each["secret"]["defaultMode"] for each in spec["volumes"] if "secret" in each]
        assert set(modes) == {0o440}, "a file that everybody can read is refused"


def test_worker_and_scaler_use_the_service_of_clients() -> None:
    api = f"https://raftsched.{one('Namespace')['metadata']['name']}.svc:{one('Service')['spec']['ports'][0]['port']}"
    (container,) = pod_of("Deployment", "raftsched-worker")["spec"]["containers"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert environment["RAFTSCHED_URL"] == api
    assert unknown_words(container["args"], environment) == []
    places = tuple(mount["mountPath"] for mount in container["volumeMounts"])
    assert environment["RAFTSCHED_TOKEN_FILE"].startswith(places)
    assert environment["RAFTSCHED_CA_FILE"].startswith(places)

    scaled = one("ScaledObject", "raftsched-worker")["spec"]
    (trigger,) = scaled["triggers"]
    assert scaled["scaleTargetRef"]["name"] == one("Deployment", "raftsched-worker")["metadata"]["name"]
    assert one("TriggerAuthentication", trigger["authenticationRef"]["name"])
    asked = trigger["metadata"]
    assert asked["valueLocation"] in ScaleReply.__struct_fields__
    routes = {
        each.resource.canonical for each in create_app(SimulatedNode(), OpenDoor()).router.routes() if each.resource
    }
    assert asked["url"].removeprefix(api).replace("/http/", "/{name}/") in routes
    assert float(asked["targetValue"]) > 0


@pytest.mark.parametrize("folder", [FOLDER, FOLDER / "keda"])
def test_every_secret_is_documented(folder: Path) -> None:
    told = (CONFIGS.parent / "docs" / "deployment.md").read_text(encoding="utf-8")
    named = {found for each in documents(folder) for found in _secrets_in(each)}
    assert [name for name in named if f"secret generic {name}" not in told] == []


def _secrets_in(value: Any) -> list[str]:
    if isinstance(value, list):
        return [found for each in value for found in _secrets_in(each)]
    if not isinstance(value, dict):
        return []
    own = [value["secretName"]] if "secretName" in value else []
    own += [each["name"] for each in value.get("secretTargetRef", ())]
    return own + [found for each in value.values() for found in _secrets_in(each)]
