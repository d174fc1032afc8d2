"""What `serve` says of the issuer's settings before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import config
from orchestrator.bootstrap.sign_in import public_host, sign_in_ports
from orchestrator.cli.errors import RefusedError
from orchestrator.config import SettingsError
from orchestrator.domain.caller_identity import Scope

WHOLE = {
    "SEATRIAL_OIDC_ISSUER": "https://login.example/realms/corp",
    "SEATRIAL_OIDC_CLIENT_ID": "seatrial",
    "SEATRIAL_OIDC_ROLES": "release-managers=gate, ops=admin,*=read",
    "SEATRIAL_PUBLIC_URL": "https://seatrial.example/",
}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, value in WHOLE.items():
        monkeypatch.setenv(name, value)
    return WHOLE


@pytest.mark.usefixtures("given")
def test_an_issuer_with_all_that_it_needs() -> None:
    settings = config.load()
    ports = sign_in_ports(settings)
    assert ports.issuer is not None
    assert ports.issuer.host == "login.example"
    expected = (("release-managers", Scope.GATE), ("ops", Scope.ADMIN), ("*", Scope.READ))
    assert ports.roles == expected
    assert ports.public_url == "https://seatrial.example"
    assert public_host(settings) == ("seatrial.example",)
    assert (ports.sessions.life.total_seconds(), ports.sessions.idle.total_seconds()) == (
        8 * 3600,
        3600,
    )


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize("url", ["https://Seatrial.Example:443/", "https://seatrial.example"])
def test_the_public_address_is_as_browsers_name_it(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("SEATRIAL_PUBLIC_URL", url)
    assert sign_in_ports(config.load()).public_url == "https://seatrial.example"


def test_without_an_issuer_tokens_alone_sign_in() -> None:
    ports = sign_in_ports(config.load())
    assert (ports.issuer, ports.roles) == (None, ())


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("OIDC_ISSUER", "http://login.example", "must begin with https://"),
        ("OIDC_ISSUER", "login.example", "must begin with https://"),
        ("OIDC_ISSUER", "https://login.example/?a=b", "has a query or a fragment"),
        ("OIDC_ISSUER", "", "SEATRIAL_OIDC_CLIENT_ID is set, and SEATRIAL_OIDC_ISSUER is not"),
        ("OIDC_CLIENT_ID", "", "needs SEATRIAL_OIDC_CLIENT_ID"),
        ("OIDC_ROLES", "", "needs SEATRIAL_OIDC_ROLES"),
        ("PUBLIC_URL", "", "needs SEATRIAL_PUBLIC_URL"),
        ("PUBLIC_URL", "http://seatrial.example", "SEATRIAL_PUBLIC_URL must begin with https://"),
        ("PUBLIC_URL", "https://corp.example/seatrial", "must have no path"),
        ("OIDC_SCOPES", "profile email", "must have `openid`"),
        ("OIDC_CLIENT_SECRET_FILE", "/nowhere/secret", "/nowhere/secret: No such file"),
        ("OIDC_CLIENT_SECRET_FILE", "/dev/null", "is empty"),
    ],
)
def test_what_is_missing_or_unsafe_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(f"SEATRIAL_{name}", value)
    with pytest.raises(RefusedError) as refused:
        sign_in_ports(config.load())
    assert message in str(refused.value)


@pytest.mark.usefixtures("given")
def test_a_secret_has_one_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("from the file\n", encoding="utf-8")
    monkeypatch.setenv("SEATRIAL_OIDC_CLIENT_SECRET_FILE", str(file))
    assert sign_in_ports(config.load()).issuer is not None
    monkeypatch.setenv("SEATRIAL_OIDC_CLIENT_SECRET", "from the environment")
    with pytest.raises(RefusedError, match="are both set"):
        sign_in_ports(config.load())
    assert "from the environment" not in repr(config.load())


@pytest.mark.parametrize("roles", ["dev", "dev=", "=run", "dev=owner", "dev=run,ops"])
def test_a_role_is_a_group_and_a_scope(monkeypatch: pytest.MonkeyPatch, roles: str) -> None:
    monkeypatch.setenv("SEATRIAL_OIDC_ROLES", roles)
    with pytest.raises(SettingsError, match="SEATRIAL_OIDC_ROLES must be GROUP=SCOPE"):
        config.load()
