from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from raftsched import limits
from raftsched.errors import Invalid
from raftsched.executors.secrets import MissingSecret, Redaction, Secrets
from tests.for_each import for_each

VALUE = 'whsec_Ca"n/ary+value=='


def test_secret_is_a_file_or_a_variable_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "pay.key").write_text("from a file\n")
    secrets = Secrets(tmp_path, environment={"RAFTSCHED_SECRET_PAY_KEY": "x", "RAFTSCHED_SECRET_SHOP_1_A": "variable"})
    assert secrets.read("pay.key") == "from a file"
    assert secrets.read("shop:1-a") == "variable"
    (tmp_path / "pay.key").write_text("changed")
    assert secrets.read("pay.key") == "changed"


@for_each(
    ("content", "word"),
    [(None, "RAFTSCHED_SECRET_KEY is not set"), (b"", "empty"), (b"\n", "empty"), (b"canary\xff", "UTF-8"),
     (b"canary" * limits.SECRET_BYTES_MAX, "larger")],
)  # fmt: skip
def test_unusable_secret_is_named_and_its_value_is_not(tmp_path: Path, content: bytes | None, word: str) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(MissingSecret, match=word) as caught:
        Secrets(tmp_path, environment={}).read("key")
    assert "the secret key" in str(caught.value)
    assert "canary" not in str(caught.value)


def test_tenant_reads_no_secret_but_those_in_its_own_directory(tmp_path: Path) -> None:
    """An executor works for all tenants, and a job chooses the target that gets the secret."""
    for place in ("key", "acme/key", "acme/only"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(f"canary of {place}")
    secrets = Secrets(tmp_path, environment={"RAFTSCHED_SECRET_ONLY": "canary", "RAFTSCHED_SECRET_ZETA_KEY": "canary"})
    assert [secrets.read("key", tenant) for tenant in ("", "default", "acme")] == [
        *["canary of key"] * 2, "canary of acme/key",
    ]  # fmt: skip
    assert secrets.read("only") == "canary"
    (tmp_path / "zeta").mkdir()
    for tenant, name in (("zeta", "key"), ("zeta", "only"), ("acme", "only2"), ("nobody", "key"), (".", "key"),
                         ("..", tmp_path.name), ("../acme", "key"), ("zeta/../acme", "key"), ("/", "key")):  # fmt: skip
        with pytest.raises(MissingSecret) as caught:
            secrets.read(name, tenant)
        assert "canary" not in str(caught.value)
    with pytest.raises(MissingSecret, match="can't be read"):
        secrets.read("acme")
    with pytest.raises(MissingSecret, match="in a directory"):
        Secrets(environment={"RAFTSCHED_SECRET_KEY": "canary"}).read("key", "acme")


def test_directory_that_is_none_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="secrets_dir"):
        Secrets(tmp_path / "missing")


@for_each(
    "form",
    [VALUE, VALUE.removeprefix("whsec_"), json.dumps(VALUE)[1:-1], quote(VALUE, safe=""),
     base64.b64encode(VALUE.encode()).decode()],
)  # fmt: skip
def test_value_is_redacted_in_every_form_also_when_it_is_cut(form: str) -> None:
    redaction = Redaction({"key": VALUE, "other": "unrelated"})
    assert redaction.text(f"a {form} b {form}").replace("=", "") == "a [secret key] b [secret key]"
    for length in range(4, len(form)):
        cut = redaction.content(f"a {form[:length]}".encode(), is_cut=True)
        assert cut in (b"a ", b"a [secret key]") or (form.endswith("=") and cut.startswith(b"a [secret"))
    assert Redaction({}).text("a") == "a"
