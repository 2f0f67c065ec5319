from __future__ import annotations

from ipaddress import ip_address

import pytest
from yarl import URL

from raftsched.errors import Invalid
from raftsched.executors.http.hops import Hop, hop_of
from raftsched.executors.http.targets import Targets
from raftsched.executors.http.verdicts import TargetRefused
from tests.for_each import for_each

LOOPBACK = ("127.0.0.0/8", "::1")
OWN = frozenset({(ip_address("127.0.0.1"), 8400), (ip_address("8.8.4.4"), 8400)})
URLS: list[tuple[str, tuple[str, ...], tuple[str, ...], str]] = [
    # url, allow, deny, word of the refusal ("" = allowed)
    ("http://127.0.0.1/", (), (), "loopback"),
    ("http://127.255.255.254:80/", (), (), "loopback"),
    ("http://0.0.0.0/", (), (), "unspecified"),
    ("http://0.1.2.3/", (), (), "unspecified"),
    ("http://10.0.0.1/", (), (), "private"),
    ("http://172.16.0.1/", (), (), "private"),
    ("http://172.31.255.255/", (), (), "private"),
    ("http://192.168.0.1/", (), (), "private"),
    ("http://100.64.0.1/", (), (), "carrier-grade"),
    ("http://100.100.100.200/latest/meta-data/", (), (), "carrier-grade"),
    ("http://169.254.169.254/latest/meta-data/", (), (), "metadata"),
    ("http://168.63.129.16/", (), (), "metadata"),
    ("http://192.0.0.192/", (), (), "metadata"),
    ("http://198.18.0.1/", (), (), "not public"),
    ("http://203.0.113.1/", (), (), "not public"),
    ("http://192.88.99.1/", (), (), "6to4"),
    ("http://224.0.0.1/", (), (), "multicast"),
    ("http://240.0.0.1/", (), (), "not public"),
    ("http://255.255.255.255/", (), (), "broadcast"),
    ("http://[::]/", (), (), "unspecified"),
    ("http://[::1]/", (), (), "loopback"),
    ("http://[0:0:0:0:0:0:0:1]/", (), (), "loopback"),
    ("http://[fe80::1]/", (), (), "link-local"),
    ("http://[fe80::1%25eth0]/", (), (), "link-local"),
    ("http://[fec0::1]/", (), (), "site-local"),
    ("http://[fc00::1]/", (), (), "unique-local"),
    ("http://[fd00:ec2::254]/", (), (), "unique-local"),
    ("http://[ff02::1]/", (), (), "multicast"),
    ("http://[2001:db8::1]/", (), (), "not public"),
    ("http://[100::1]/", (), (), "not public"),
    ("http://[5f00::1]/", (), (), "not public"),
    # IPv4 within IPv6: mapped, compatible, NAT64 of both prefixes, 6to4, Teredo
    ("http://[::ffff:169.254.169.254]/", (), (), "metadata"),
    ("http://[::ffff:7f00:1]/", (), (), "loopback"),
    ("http://[::127.0.0.1]/", (), (), "not public"),
    ("http://[::ffff:0:127.0.0.1]/", (), (), "not public"),
    ("http://[64:ff9b::a9fe:a9fe]/", (), (), "metadata"),
    ("http://[64:ff9b::10.0.0.1]/", (), (), "private"),
    ("http://[64:ff9b:1::8.8.8.8]/", (), (), "local NAT64"),
    ("http://[2002:7f00:1::]/", (), (), "loopback"),
    ("http://[2002:a9fe:a9fe::1]/", (), (), "metadata"),
    ("http://[2001:0:a9fe:a9fe::1]/", (), (), "Teredo"),
    ("http://[64:ff9b::8.8.8.8]/", (), (), ""),
    ("http://[2002:808:808::1]/", (), (), ""),
    ("http://[::ffff:8.8.8.8]/", (), (), ""),
    # other spellings
    ("http://2130706433/", (), (), "127.0.0.1"),
    ("http://0x7f000001/", (), (), "127.0.0.1"),
    ("http://0x7f.1/", (), (), "127.0.0.1"),
    ("http://0177.0.0.1/", (), (), "127.0.0.1"),
    ("http://127.1/", LOOPBACK, (), "127.0.0.1"),
    ("http://134744072/", (), (), "8.8.8.8"),
    ("http://127.0.0.1./", (), (), "loopback"),
    ("http://%31%32%37.0.0.1/", (), (), "no host name"),
    ("http://good.example@127.0.0.1/", LOOPBACK, (), "user name"),
    ("http://good.example:80@127.0.0.1:6379/", LOOPBACK, (), "user name"),
    ("http://127.0.0.1#@good.example/", (), (), "loopback"),
    ("http://127.0.0.1\\@good.example/", (), (), "backslash"),
    ("http://:80/", (), (), "host is required"),
    ("http://8.8.8.8:99999/", (), (), "not an address"),
    ("http://8.8.8.8:0/", (), (), "port"),
    ("file:///etc/passwd", (), (), "http:// or https://"),
    ("gopher://8.8.8.8/", (), (), "http:// or https://"),
    ("ftp://8.8.8.8/", (), (), "http:// or https://"),
    # public addresses, and the lists
    ("http://8.8.8.8/", (), (), ""),
    ("https://[2606:4700::1111]/", (), (), ""),
    ("http://127.0.0.1:9000/", LOOPBACK, (), ""),
    ("http://127.0.0.1.:9000/", LOOPBACK, (), ""),
    ("http://[::ffff:127.0.0.1]:9000/", LOOPBACK, (), ""),
    ("http://[::1]:9000/", LOOPBACK, (), ""),
    ("http://[64:ff9b::10.1.0.1]/", ("10.1.0.0/16",), (), ""),
    ("http://10.2.0.1/", ("10.1.0.0/16",), (), "private"),
    ("http://10.1.0.1/", ("10.1.0.0/16",), ("10.1.0.1",), "denied"),
    ("http://[::ffff:10.1.0.1]/", ("::/0", "0.0.0.0/0"), ("10.1.0.1",), "denied"),
    ("http://[::ffff:8.8.8.8]/", (), ("8.8.8.0/24",), "denied"),
    ("http://[64:ff9b::8.8.8.8]/", (), ("8.8.8.8",), "denied"),
    ("http://127.0.0.1:8400/", LOOPBACK, (), "belongs to the cluster"),
    ("http://127.9.9.9:8400/", LOOPBACK, (), "belongs to the cluster"),
    ("http://[::1]:8400/", LOOPBACK, (), "belongs to the cluster"),
    ("http://8.8.4.4:8400/", (), (), "belongs to the cluster"),
    ("http://8.8.4.4:80/", (), (), ""),
    # names: their addresses come later
    ("http://denied.example/", (), ("denied.example",), "denied"),
    ("http://DENIED.example./", (), ("Denied.Example.",), "denied"),
    ("http://a.denied.example/", (), ("*.denied.example",), "denied"),
    ("http://denied.example/", (), ("*.denied.example",), ""),
    ("http://localhost./", (), (), ""),
]  # fmt: skip


@for_each(("url", "allow", "deny", "word"), URLS)
def test_url_is_refused_with_its_reason_or_becomes_a_hop(
    url: str, allow: tuple[str, ...], deny: tuple[str, ...], word: str
) -> None:
    targets = Targets(allow=allow, deny=deny)
    targets.own = OWN
    for previous in (None, URL("http://8.8.8.8/")):  # a job's own URL, and one of a redirect
        if not word:
            assert isinstance(hop_of(url, targets, previous), Hop)
            continue
        with pytest.raises(TargetRefused) as caught:
            hop_of(url, targets, previous)
        assert word in str(caught.value)


@for_each(
    ("location", "word"),
    [
        ("http://\uff11\uff12\uff17.\uff10.\uff10.\uff11/", "loopback"),
        ("http://127\u30020\u30020\u30021/", "loopback"),
        ("http://\u2460\u2461\u2466.0.0.1/", "loopback"),
        ("http://ex\u00e4mple.org/", "denied"),
        ("http://8.8.8.8/ HTTP/1.1\r\nX: y", ""),
        ("", ""),
    ],
)
def test_redirect_with_other_characters_is_read_as_it_is_sent_and_a_job_with_them_is_refused(
    location: str, word: str
) -> None:
    targets = Targets(deny=("xn--exmple-cua.org",))
    with pytest.raises(TargetRefused):
        hop_of(location, targets)
    if word:
        with pytest.raises(TargetRefused, match=word):
            hop_of(location, targets, URL("http://8.8.8.8/"))
    else:
        assert str(hop_of(location, targets, URL("http://8.8.8.8/")).url).isprintable()


@for_each(
    ("host", "address", "allow", "deny", "word"),
    [
        ("127.0.0.1.nip.io", "127.0.0.1", (), (), "loopback"),
        ("metadata.google.internal", "169.254.169.254", (), (), "metadata"),
        ("localhost", "::1", (), (), "loopback"),
        ("hooks.internal", "10.0.0.1", ("hooks.internal",), (), ""),
        ("HOOKS.internal.", "10.0.0.1", ("hooks.internal",), (), ""),
        ("a.hooks.internal", "10.0.0.1", ("hooks.internal",), (), "private"),
        ("a.hooks.internal", "10.0.0.1", ("*.hooks.internal",), (), ""),
        ("evilhooks.internal", "10.0.0.1", ("*.hooks.internal",), (), "private"),
        ("hooks.internal", "10.0.0.1", ("hooks.internal",), ("10.0.0.0/24",), "denied"),
        ("hooks.internal", "127.0.0.1", ("hooks.internal",), (), "belongs to the cluster"),
        ("example.org", "8.8.8.8", (), (), ""),
    ],
)
def test_name_is_judged_by_the_address_it_leads_to(
    host: str, address: str, allow: tuple[str, ...], deny: tuple[str, ...], word: str
) -> None:
    targets = Targets(allow=allow, deny=deny)
    targets.own = OWN
    fault = targets.address_fault(host, ip_address(address), 8400 if "cluster" in word else 80)
    assert (word in fault) if word else (fault == "")


@for_each("entry", ["10.1.0.1/16", "10.1", "0x7f.1", "http://a.example", "a b", "", "a.example:80", "*", "1.2.3.4/33"])
def test_entry_that_means_nothing_is_refused(entry: str) -> None:
    for field in ("allow", "deny"):
        with pytest.raises(Invalid) as caught:
            Targets(**{field: (entry,)})
        assert caught.value.field == field


def test_hop_has_the_address_in_its_usual_form() -> None:
    hop = hop_of("http://127.0.0.1.:8080/a%7Eb?c=%2F+#d", Targets(allow=LOOPBACK))
    assert str(hop.url) == "http://127.0.0.1:8080/a%7Eb?c=%2F+"
