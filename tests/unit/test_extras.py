"""A part of Seatrial that is not installed is named in one sentence, with its extra."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path

import pytest

from orchestrator import extras
from orchestrator.adapters.lazy_statistics import LazyDetector, LazyStatistics
from orchestrator.application.ports.statistics import Watched
from orchestrator.bootstrap.sign_in import sign_in_ports
from orchestrator.cli.errors import RefusedError
from orchestrator.config import Settings
from orchestrator.domain.machine import ConfigError, StaticHosts
from runners import registry
from runners.provider_context import ProviderContext

ABSENT = {
    "aws": "boto3",
    "gcp": "google-cloud-billing, google-cloud-compute, ",
    "oidc": "authlib",
    "statistics": "scipy",
}
WITH_ISSUER = Settings(
    oidc_issuer="https://login.example",
    oidc_client_id="seatrial",
    oidc_roles="*=read",
    public_url="https://seatrial.example",
)


@pytest.fixture
def core_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The distributions of every extra are away."""
    found = metadata.distribution

    def look(name: str) -> metadata.Distribution:
        if name.startswith(("authlib", "boto3", "google-cloud", "scipy")):
            raise metadata.PackageNotFoundError(name)
        return found(name)

    monkeypatch.setattr(metadata, "distribution", look)


class NoHosts(StaticHosts):
    """Providers with a cloud of their own never ask it."""


def provider(name: str) -> Callable[[], object]:
    return lambda: registry.load(name, ProviderContext(NoHosts()))


def account(cloud: str) -> Callable[[], object]:
    return lambda: registry.account_setup(cloud, {}, Path())


@pytest.mark.parametrize(
    ("extra", "what", "use", "error"),
    [
        ("aws", "provider aws", provider("aws"), ConfigError),
        ("gcp", "provider gcp", provider("gcp"), ConfigError),
        ("gcp", "provider tpu", provider("tpu"), ConfigError),
        ("aws", "provider aws", account("aws"), ConfigError),
        ("gcp", "provider gcp", account("gcp"), ConfigError),
        ("oidc", "SEATRIAL_OIDC_ISSUER", lambda: sign_in_ports(WITH_ISSUER), RefusedError),
        (
            "statistics",
            "the comparison of benchmarks",
            lambda: LazyStatistics().adjusted([0.5]),
            extras.MissingExtraError,
        ),
        (
            "statistics",
            "the comparison of benchmarks",
            lambda: LazyDetector().detect([1.0]),
            extras.MissingExtraError,
        ),
        (
            "statistics",
            "the comparison of benchmarks",
            lambda: LazyDetector().changes([Watched([1.0])]),
            extras.MissingExtraError,
        ),
    ],
)
@pytest.mark.usefixtures("core_only")
def test_what_is_not_installed_is_named_with_its_extra(
    extra: str, what: str, use: Callable[[], object], error: type[Exception]
) -> None:
    with pytest.raises(error) as raised:
        use()
    said = str(raised.value)
    assert said.startswith(f"{what} needs {ABSENT[extra]}")
    assert f": install Seatrial with the extra `{extra}` (docs/installation.md)" in said


@pytest.mark.usefixtures("core_only")
def test_what_else_machines_of_a_cloud_lack_is_told_with_its_extra() -> None:
    with pytest.raises(ConfigError, match="SEATRIAL_INGRESS_CIDR is not set either"):
        registry.load("aws", ProviderContext(NoHosts()))
    with pytest.raises(ConfigError) as raised:
        registry.load(
            "aws", ProviderContext(NoHosts(), settings={"ingress_cidr": "203.0.113.7/32"})
        )
    assert str(raised.value).endswith("(docs/installation.md)")
    with pytest.raises(ConfigError) as raised:
        registry.account_setup("aws", {}, Path())
    assert str(raised.value).endswith("(docs/installation.md)")


@pytest.mark.usefixtures("core_only")
def test_what_needs_no_extra_works_without_any() -> None:
    assert LazyStatistics().adjusted([]) == ()
    assert LazyDetector().changes([]) == ()
    assert registry.load("local", ProviderContext(NoHosts()))


@pytest.mark.parametrize("extra", sorted(ABSENT))
def test_nothing_is_missing_where_it_is_installed(extra: str) -> None:
    extras.require(extra, "a test")


def test_every_extra_that_a_provider_names_is_one_of_the_distribution() -> None:
    named = {registry.traits(name).extra for name in registry.names()} - {""}
    assert named <= set(metadata.metadata("seatrial").get_all("Provides-Extra") or ())


def test_what_is_installed_while_a_controller_runs_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: ["installed-later; extra == 'later'"])
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(extras.MissingExtraError):
        extras.require("later", "a test")
    with pytest.raises(ModuleNotFoundError):
        import_module("installed_later")
    (tmp_path / "installed_later-1.dist-info").mkdir()
    (tmp_path / "installed_later-1.dist-info" / "METADATA").write_text("Name: installed-later\n")
    (tmp_path / "installed_later.py").touch()
    # Python's caches of a folder hold until its time of modification changes.
    os.utime(tmp_path, (2e9, 2e9))
    extras.require("later", "a test")
    import_module("installed_later")
