"""Settings of a node."""

from __future__ import annotations

import re
import socket
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from raftsched import config
from raftsched.config.toml_lines import lines_of
from raftsched.environment import setting_of, unknown_in
from raftsched.errors import Invalid

NODES = """
[[nodes]]
id = "n1"
raft = "127.0.0.1:8401"
api = "127.0.0.1:8400"

[[nodes]]
id = "n2"
raft = "[::1]:8401"
api = "host.example:8400"
"""
TOKENS = 'auth = "token"\nadmin_token_file = "t"\nnode_id = "n1"\ndata_dir = "/tmp/d"\n'
BASE = 'auth = "none"\nnode_id = "n1"\ndata_dir = "/tmp/d"\n'


def load(tmp_path: Path, text: str, **environment: str) -> config.NodeConfig:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return config.load(path, environment)


def test_config_file_is_read_with_its_defaults(tmp_path: Path) -> None:
    loaded = load(tmp_path, BASE + NODES)
    assert loaded.member.api == "127.0.0.1:8400"
    assert loaded.lease_seconds == 15


def test_environment_overrides_the_file(tmp_path: Path) -> None:
    loaded = load(
        tmp_path, BASE + NODES, RAFTSCHED_NODE_ID="n2", RAFTSCHED_LEASE_SECONDS="2.5", RAFTSCHED_URL="ignored"
    )
    assert (loaded.member.id, loaded.lease_seconds) == ("n2", 2.5)


def test_environment_alone_is_enough() -> None:
    nodes = '[{"id": "solo", "raft": "127.0.0.1:1", "api": "127.0.0.1:2"}]'
    environment = {
        "RAFTSCHED_AUTH": "none",
        "RAFTSCHED_NODE_ID": "solo",
        "RAFTSCHED_DATA_DIR": "/d",
        "RAFTSCHED_NODES": nodes,
        "RAFTSCHED_API_LISTEN": "[::]:8400",
    }
    loaded = config.load(None, environment)
    assert (loaded.member.id, loaded.api_listen) == ("solo", "[::]:8400")


def test_node_without_an_id_is_the_one_of_this_host(tmp_path: Path) -> None:
    without_id = BASE.replace('node_id = "n1"\n', "")
    here = NODES.replace("[::1]:8401", f"{socket.gethostname()}.jobs.svc:8401")
    assert load(tmp_path, without_id + here).node_id == "n2"
    for nodes in (NODES, here.replace("127.0.0.1", socket.gethostname())):
        with pytest.raises(config.ConfigInvalid, match=r"node_id: not set.*; set RAFTSCHED_NODE_ID") as refused:
            load(tmp_path, without_id + nodes)
        assert len(refused.value.faults) == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (BASE.replace('auth = "none"\n', "") + NODES, "auth"),
        (BASE + "lease_second = 3\n" + NODES, "lease_second"),
        (BASE + "lease_seconds = -1\n" + NODES, "lease_seconds"),
        (BASE + "lease_seconds = nan\n" + NODES, "lease_seconds"),
        (BASE.replace('"n1"', '"n9"') + NODES, "node_id"),
        (BASE.replace('"n1"', '"../n1"') + NODES, "node_id"),
        (BASE + NODES.replace("n2", "n1"), "nodes"),
        (BASE + NODES.replace("[::1]:8401", "nowhere"), "nodes.n2.raft"),
        (BASE + "election_seconds_min = 2\nelection_seconds_max = 1\n" + NODES, "election_seconds_max"),
        (BASE + "heartbeat_seconds = 0.4\n" + NODES, "heartbeat_seconds"),
        (BASE + "max_clock_skew_ms = 5\n" + NODES, "max_clock_skew_ms"),
        (BASE + "= 3", "node.toml"),
    ],
)
def test_bad_settings_are_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(Invalid, match=named):
        load(tmp_path, text)


WRONG = """\
auth = "tokn"
node_id = "n1"
data_dir = 5
lease_second = 3
lease_seconds = "15s"
cluster = "a b"
log_level = "verbose"
heartbeat_seconds = 0.4
executors = { http = 1, http_queues = ["a", 2] }
peer_tls = "c.pem"

[[nodes]]
id = "n1"
raft = "nowhere"
api = "127.0.0.1:8400"

[[nodes]]
id = "n2"
raft = "[::1]:8401"
apis = "host.example:8400"

[api_tls]
certificate = "c"
key = "k"

[[api_tls.clients]]
name = "mail.example"
role = "worker"
tenant = "shop"
"""
FAULTS = """\
RAFTSCHED_LEASE_SECS: no setting of that name; did you mean RAFTSCHED_LEASE_SECONDS?
RAFTSCHED_HTTP_TARGETS: JSON is malformed: object keys must be strings (byte 1)
RAFTSCHED_RETENTION_SECONDS: expected a number > 0.0: '-1'
FILE:1: auth: 'tokn' is none of token, none; did you mean token?
FILE:3: data_dir: expected a text, got a whole number
FILE:4: lease_second: no setting of that name; did you mean lease_seconds?
FILE:5: lease_seconds: expected a number, got a text: '15s'
FILE:6: cluster: expected 1 to 64 letters, digits, dots, dashes and underscores, the first a letter or a digit
FILE:7: log_level: 'verbose' is none of debug, info, warning, error
FILE:8: heartbeat_seconds: must be under a third of election_seconds_min
FILE:9: executors.http_queues[1]: expected a text, got a whole number
FILE:10: peer_tls: expected a table, as [peer_tls]
FILE:14: nodes.n1.raft: 'nowhere' is not host:port
FILE:17: nodes[1].api: not set, and needed
FILE:20: nodes[1].apis: no setting of that name; did you mean api?
FILE:26: api_tls.clients: needs api_tls.client_ca, which verifies the certificates of clients
"""


def test_every_fault_is_told_at_once_with_its_line_or_variable(tmp_path: Path) -> None:
    environment = {
        "RAFTSCHED_LEASE_SECS": "5",
        "RAFTSCHED_RETENTION_SECONDS": "-1",
        "RAFTSCHED_HTTP_TARGETS": "{allow}",
    }
    with pytest.raises(config.ConfigInvalid) as refused:
        load(tmp_path, WRONG, **environment)
    told = [fault.replace(str(tmp_path / "node.toml"), "FILE") for fault in refused.value.faults]
    assert told == FAULTS.splitlines()


def test_faults_between_settings_are_told_at_once_with_their_lines(tmp_path: Path) -> None:
    text = (BASE + NODES).replace('"127.0.0.1:8401"', '"0.0.0.0:8401"').replace('"[::1]:8401"', '"nowhere"')
    with pytest.raises(config.ConfigInvalid) as refused:
        load(tmp_path, text, RAFTSCHED_HEARTBEAT_SECONDS="0.4")
    places = [fault.replace(str(tmp_path / "node.toml"), "FILE").partition(": ")[0] for fault in refused.value.faults]
    assert places == ["RAFTSCHED_HEARTBEAT_SECONDS", "FILE:7", "FILE:12"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'auth = "none"\nnode_id == 3\n', "FILE:2: Invalid value"),
        (b'auth = "none"\nauth = "none"\n', "FILE:2: Cannot overwrite a value"),
        (b'auth = "none"\nnode_id = "', "FILE:2: Unterminated string (at end of document)"),
        (b'auth = "none"\nnode_id = "\xff"\n', "FILE:2: not UTF-8"),
    ],
)
def test_a_file_that_is_no_toml_is_refused_with_the_line(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "node.toml"
    path.write_bytes(content)
    with pytest.raises(config.ConfigInvalid) as refused:
        config.load(path, {})
    assert [fault.replace(str(path), "FILE") for fault in refused.value.faults] == [told]


DOCUMENT = '''# comment
a = 1 # a
"q.r" . b = """x
[no]
"""
list = [ # list
  1,
  "two, ]",
  [3, 4],
  { x = 1, y = {z = 'q'} },
]
empty = []
nothing = {}
[table]
key = """
a = 3
"""
[[each]]
id = 1
[each.sub]
value = 2
[[each.more]]
w = 1
[[each]]
id = 2
dot.ted = 2027-01-01
[[each.more]]
w = 2
[[each.more]]
s = "a\\"]" # more
'''


def test_lines_are_those_of_every_key_and_item_of_a_document() -> None:
    def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
        if path:
            yield path
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, each in inner:
            yield from paths(each, (*path, key))

    lines = lines_of(DOCUMENT)
    assert set(lines) == set(paths(tomllib.loads(DOCUMENT)))
    keys = DOCUMENT.splitlines()
    assert [path for path, line in lines.items() if isinstance(path[-1], str) and path[-1] not in keys[line - 1]] == []
    places = {("list", 3, "y", "z"): 10, ("each", 0, "sub", "value"): 21, ("each", 1, "more", 1, "s"): 30}
    assert {path: lines[path] for path in places} == places


API_TLS = '[api_tls]\ncertificate = "c"\nkey = "k"\n'
CLIENT = '[[api_tls.clients]]\nname = "mail.example"\nrole = "worker"\ntenant = "shop"\n'


def test_clients_of_the_api_are_named_with_role_and_tenant(tmp_path: Path) -> None:
    everybody = CLIENT.replace("shop", "*").replace("mail.", "ops.")
    loaded = load(tmp_path, TOKENS + NODES + API_TLS + 'client_ca = "ca"\n' + CLIENT + everybody)
    assert loaded.api_tls is not None
    assert [(client.name, client.role, client.tenant) for client in loaded.api_tls.clients] == [
        ("mail.example", "worker", "shop"),
        ("ops.example", "worker", "*"),
    ]
    assert loaded.url_of("h:1") == "https://h:1"
    assert load(tmp_path, BASE + NODES).url_of("h:1") == "http://h:1"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[api_tls]\ncertificate = "c"\n', r"node\.toml:\d+: api_tls\.key: not set"),
        (API_TLS + 'cs = "c"\n', "cs"),
        (API_TLS + CLIENT, r"api_tls\.clients: needs api_tls\.client_ca"),
        (API_TLS + 'client_ca = "ca"\n' + CLIENT + CLIENT, r"api_tls\.clients: mail\.example is named twice"),
        (API_TLS + 'client_ca = "ca"\n' + CLIENT.replace("shop", "a b"), "tenant"),
        (API_TLS + 'client_ca = "ca"\n' + CLIENT.replace("worker", ""), "role"),
        (API_TLS + 'client_ca = "ca"\n' + CLIENT.replace("mail.example", ""), "name"),
        (API_TLS + 'client_ca = "ca"\n' + CLIENT, r'api_tls\.clients: unused with auth = "none"'),
    ],
)
def test_bad_settings_of_tls_are_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(Invalid, match=named):
        load(tmp_path, BASE + NODES + text)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"absent\.toml"):
        config.load(tmp_path / "absent.toml", {})


def test_shipped_configuration_loads() -> None:
    path = Path(__file__).parents[1] / "configs" / "cluster.toml"
    assert len(config.load(path, {"RAFTSCHED_NODE_ID": "n2"}).nodes) == 3


# -- variables ---------------------------------------------------------------------------------------------------------


def test_every_variable_that_the_source_names_is_known() -> None:
    root = Path(__file__).parents[1]
    named = set()
    for path in [
        *(root / "raftsched").rglob("*.py"),
        root / "README.md",
        *(root / "docs").glob("*.md"),
        *(root / "configs").rglob("*.*"),
    ]:
        named |= set(re.findall(r"\bRAFTSCHED_[A-Z][A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8")))
    assert {"RAFTSCHED_URL", "RAFTSCHED_NODE_ID"} <= named
    settings = {name for name in named if setting_of(name) in config.NodeConfig.__struct_fields__}
    placeholders = {"RAFTSCHED_X", "RAFTSCHED_PORT"}
    assert unknown_in(dict.fromkeys(named - settings - placeholders, "x"), ()) == {}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RAFTSCHED_SERVICE_HOST", "10.0.0.1"),
        ("RAFTSCHED_SERVICE_PORT_API", "8400"),
        ("RAFTSCHED_PORT", "tcp://10.0.0.1:8400"),
        ("RAFTSCHED_PORT_8400_TCP_ADDR", "10.0.0.1"),
        ("RAFTSCHED_PEERS_PORT_8401_TCP", "tcp://10.0.0.1:8401"),
        ("RAFTSCHED_PEERS_SERVICE_HOST", "None"),
        ("RAFTSCHED_SECRET_SLACK", "s"),
    ],
)
def test_variables_of_kubernetes_and_of_secrets_are_no_mistakes(variable: str, value: str) -> None:
    assert unknown_in({variable: value}, ("lease_seconds",)) == {}


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("RAFTSCHED_LEASESECONDS", "did you mean RAFTSCHED_LEASE_SECONDS"),
        ("RAFTSCHED_PORT", "RAFTSCHED_PORT: no setting of that name"),
        ("RAFTSCHED_QQQQQQQQQQQQQQQQQ", "no setting of that name$"),
    ],
)
def test_a_variable_that_nobody_reads_is_refused_with_the_nearest(variable: str, words: str) -> None:
    (fault,) = unknown_in({variable: "8400"}, ("lease_seconds", "node_id")).values()
    assert re.search(words, fault)


# -- addresses ---------------------------------------------------------------------------------------------------------


def nodes(*addresses: tuple[str, str], **listen: Any) -> config.NodeConfig:
    members = tuple(config.Member(f"n{number}", *pair) for number, pair in enumerate(addresses, start=1))
    return config.NodeConfig(node_id="n1", data_dir="/d", nodes=members, auth="none", **listen)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: nodes(("a:1", "a:1")), r"nodes\.n1\.api: a:1 is nodes\.n1\.raft as well"),
        (lambda: nodes(("a:1", "a:2"), ("A:2", "b:1")), r"nodes\.n2\.raft: A:2 is nodes\.n1\.api as well"),
        (lambda: nodes(("[::]:1", "a:2")), r"nodes\.n1\.raft: :: can't be dialed.*set raft_listen = '\[::\]:1'"),
        (lambda: nodes(("a:1", "a:2"), ("b:1", "0.0.0.0:2")), r"nodes\.n2\.api: 0\.0\.0\.0 can't be dialed"),
        (lambda: nodes(("a:1", "a:0")), r"nodes\.n1\.api: port 0 can't be dialed"),
        (lambda: nodes(("a:1", "a:2"), api_listen="0.0.0.0:1"), r"nodes\.n1\.raft: port 1 is the port of api_listen"),
    ],
)
def test_addresses_that_cannot_be_meant_are_refused(made: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made()


def test_an_even_number_of_nodes_is_legal_and_warned_of() -> None:
    two = nodes(("a:1", "a:2"), ("b:1", "b:2"), api_listen="0.0.0.0:2", raft_listen="0.0.0.0:1")
    assert two.warnings()[1:] == ["nodes: 2 nodes tolerate the loss of 0, no more than 1 would; with 3, 1 may be lost"]
    assert two.warnings()[0].startswith("auth: ")
    assert nodes(("127.0.0.1:1", "127.0.0.1:2")).warnings() == []


def test_encrypted_disks_beside_a_network_in_the_clear_are_a_warning(tmp_path: Path) -> None:
    members = [{"id": f"n{number}", "raft": f"host{number}:1", "api": f"127.0.0.1:{number}"} for number in (1, 2, 3)]
    settings = {"node_id": "n1", "data_dir": str(tmp_path), "nodes": members, "auth": "none"}
    keys = {"encryption": {"keys_file": "/keys"}}
    tls = {"peer_tls": {"certificate": "c", "key": "k", "ca": "a"}}
    found = [msgspec.convert(settings | more, config.NodeConfig).warnings() for more in ({}, keys, keys | tls)]
    assert found == [[], ["encryption: disks are encrypted, traffic between the nodes is not; set [peer_tls]"], []]
