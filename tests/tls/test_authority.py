"""`raftsched tls`: what it makes is accepted where it should be, and nowhere else."""

from __future__ import annotations

import json
import ssl
import stat
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from raftsched.errors import Invalid
from raftsched.tls.authority import issue, new_authority, read_certificates
from raftsched.tls.contexts import ApiTlsFiles, TlsFiles, api_contexts, node_contexts
from tests.acceptance.conftest import run_cli


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    new_authority(tmp_path / "ca", days=100)
    return tmp_path / "ca"


def files_of(ca: Path, name: str, *hosts: str, is_client: bool = False) -> TlsFiles:
    made = issue(ca, ca.parent / name, name=name, hosts=hosts, days=10, is_client=is_client, replace=False)
    return TlsFiles(made.certificate, made.key, ca / "ca.crt")


def test_certificate_of_a_node_serves_both_ports_under_its_names_only(ca: Path) -> None:
    files = files_of(ca, "n1", "node1.internal", "10.0.0.1", "::1")
    node_contexts(files, "n1")
    api = ApiTlsFiles(files.certificate, files.key, files.authority)
    for host in ("node1.internal", "10.0.0.1", "::1", "n1"):
        api_contexts(api, host)
    for host in ("node2.internal", "10.0.0.2", "internal"):
        with pytest.raises(Invalid, match=r"api_tls\.certificate: .*other nodes would refuse it for .*mismatch"):
            api_contexts(api, host)
    with pytest.raises(Invalid, match=r"other nodes would refuse it as n2's"):
        node_contexts(files, "n2")


def test_certificate_of_a_client_is_none_of_a_node(ca: Path) -> None:
    with pytest.raises(Invalid, match="other nodes would refuse it as n1's"):
        node_contexts(files_of(ca, "n1", is_client=True), "n1")
    with pytest.raises(Invalid, match="--host"):
        issue(ca, ca.parent, name="x", hosts=("h",), days=1, is_client=True, replace=False)


def test_another_authority_of_the_same_name_certifies_nothing(ca: Path, tmp_path: Path) -> None:
    new_authority(tmp_path / "mine", days=100, name="the CA")
    new_authority(tmp_path / "other", days=100, name="the CA")
    files = files_of(tmp_path / "mine", "n1")
    node_contexts(files, "n1")
    with pytest.raises(Invalid, match="other nodes would refuse it"):
        node_contexts(replace(files, authority=tmp_path / "other" / "ca.crt"), "n1")


def test_keys_are_private_and_files_are_never_overwritten_by_mistake(ca: Path) -> None:
    files = files_of(ca, "n1")
    for key in (ca / "ca.key", files.key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = {path: path.read_bytes() for path in (ca / "ca.crt", ca / "ca.key", files.certificate, files.key)}
    with pytest.raises(Invalid, match="exists already"):
        new_authority(ca, days=1)
    with pytest.raises(Invalid, match="exists already"):
        files_of(ca, "n1")
    (ca / "ca.crt").rename(ca / "kept")
    with pytest.raises(Invalid, match=r"ca\.key exists already"):
        new_authority(ca, days=1)
    (ca / "kept").rename(ca / "ca.crt")
    assert {path: path.read_bytes() for path in before} == before
    issue(ca, files.key.parent, name="n1", days=10, is_client=False, replace=True)
    assert files.key.read_bytes() != before[files.key]
    node_contexts(files, "n1")
    assert sorted(path.name for path in files.key.parent.iterdir()) == ["n1.crt", "n1.key"]


def test_what_is_wrong_is_named_and_nothing_is_written(ca: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    new_authority(tmp_path / "other", days=1)
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    (mixed / "ca.crt").write_bytes((ca / "ca.crt").read_bytes())
    (mixed / "ca.key").write_bytes((tmp_path / "other" / "ca.key").read_bytes())
    garbage = tmp_path / "garbage"
    garbage.mkdir()
    for name in ("ca.crt", "ca.key"):
        (garbage / name).write_text("garbage")
    cases = [
        (ca, "n1", ("é.example",), 10, "--host: 'é.example'"),
        (ca, "n1", (), 101, "--days: the authority expires in 99 days"),
        (tmp_path / "absent", "n1", (), 1, "make it with raftsched tls new-ca"),
        (mixed, "n1", (), 1, "ca.key is not the key of ca.crt"),
        (garbage, "n1", (), 1, "not both in PEM"),
    ]
    wrong = []
    for directory, name, hosts, days, words in cases:
        try:
            issue(directory, out, name=name, hosts=hosts, days=days, is_client=False, replace=False)
            wrong.append((words, "accepted"))
        except Invalid as error:
            if words not in str(error):
                wrong.append((words, str(error)))
    assert not wrong
    assert not out.exists()


def test_openssl_finds_nothing_strange_in_them(ca: Path) -> None:
    """Newer Pythons verify with this flag by default."""
    for strict in (files_of(ca, "n1"), files_of(ca, "n2")):
        made = node_contexts(strict, strict.certificate.stem)
        made.client.verify_flags |= ssl.VERIFY_X509_STRICT
        made.server.verify_flags |= ssl.VERIFY_X509_STRICT
        server, client = made.server, made.client
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        asking = client.wrap_bio(to_client, to_server, server_hostname=strict.certificate.stem)
        serving = server.wrap_bio(to_server, to_client, server_side=True)
        for side in (asking, serving, asking, serving):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
        assert serving.getpeercert()


def test_the_command_makes_and_shows_certificates(tmp_path: Path) -> None:
    ca, out = str(tmp_path / "ca"), str(tmp_path / "n1")
    made = run_cli("tls", "new-ca", "--out", ca, "--days", "400")
    assert (made.returncode, made.stderr) == (0, "")
    assert run_cli("tls", "issue", "--ca", ca, "--name", "../n1", "--out", out).returncode == 1
    made = run_cli("tls", "issue", "--ca", ca, "--name", "n1", "--host", "10.0.0.1", "--out", out, "--days", "20")
    assert made.returncode == 0, made.stderr
    bundle = tmp_path / "bundle.pem"
    bundle.write_text((tmp_path / "ca" / "ca.crt").read_text() + (tmp_path / "n1" / "n1.crt").read_text())
    shown = run_cli("tls", "show", "--json", str(bundle))
    assert shown.returncode == 0
    authority, node = json.loads(shown.stdout)["certificates"]
    assert (authority["kind"], authority["days_left"]) == ("authority", 399)
    assert (node["kind"], node["names"], node["days_left"]) == ("node", ["n1", "10.0.0.1"], 19)
    assert node["issuer"] == authority["subject"]
    assert run_cli("tls", "show", "--within", "30", str(bundle)).returncode == 1
    assert "node" in run_cli("tls", "show", str(bundle)).stdout
    assert run_cli("tls", "show", str(tmp_path / "n1" / "n1.key")).returncode == 1


def test_expired_certificates_are_shown_as_such(tmp_path: Path) -> None:
    path = tmp_path / "old.pem"
    issued = trustme.CA().issue_cert(
        "n1", not_before=datetime(2000, 1, 1, tzinfo=UTC), not_after=datetime(2001, 1, 1, tzinfo=UTC)
    )
    issued.cert_chain_pems[0].write_to_path(path)
    assert read_certificates(path)[0].days_left < 0
    assert run_cli("tls", "show", str(path)).returncode == 1
