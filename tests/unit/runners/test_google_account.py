"""Signing in to Google, and whose quota the calls count against."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import google.auth
import pytest
from google.auth import exceptions

from orchestrator.domain.machine import ConfigError, CredentialsError, Offers
from orchestrator.domain.matrix import Accelerator, Platform
from runners import registry
from runners.fake import MemoryHostStore
from runners.google import account as module
from runners.google.account import GoogleAccount
from runners.provider_context import ProviderContext

PERSON = {
    "type": "authorized_user",
    "client_id": "1.apps.googleusercontent.com",
    "client_secret": "s",
    "refresh_token": "r",
}


def signed_in(path: Path, monkeypatch: pytest.MonkeyPatch, **more: str) -> str | None:
    """The quota project of a person's credentials, as the calls would carry it."""
    path.write_text(json.dumps({**PERSON, **more}), encoding="utf-8")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    account = GoogleAccount({"gcp_project": "validation-1"}, api="gcp_tpu_endpoint")
    quota_project: str | None = account.credentials.quota_project_id
    return quota_project


def test_a_person_without_a_quota_project_is_counted_in_the_project_that_is_rented_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else Google answers: "The tpu.googleapis.com API requires a quota project"."""
    assert signed_in(tmp_path / "adc.json", monkeypatch) == "validation-1"


def test_a_quota_project_of_ones_own_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert signed_in(tmp_path / "adc.json", monkeypatch, quota_project_id="mine") == "mine"


def test_a_refused_sign_in_is_not_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try waits some seconds for a metadata server, and an emergency stop asks often."""
    tries = []

    def refuse(**_: object) -> None:
        tries.append(1)
        raise exceptions.DefaultCredentialsError("none here")

    monkeypatch.setattr(google.auth, "default", refuse)
    account = GoogleAccount({}, api="gcp_compute_endpoint")
    for _ in range(3):
        with pytest.raises(CredentialsError, match="none here"):
            _ = account.credentials
    assert len(tries) == 1
    monkeypatch.setattr(module, "_REFUSED_S", 0.0)
    with pytest.raises(CredentialsError):
        _ = account.credentials
    assert len(tries) == 2


@pytest.mark.parametrize(
    ("provider", "keys"),
    [
        ("gcp", {"instance_type": ("g2-standard-4",), "connect": "private"}),
        ("gcp", {"accelerator": Accelerator(vendor="nvidia", name="X900"), "connect": "private"}),
        ("tpu", {"accelerator_type": "v5litepod-1", "connect": "private"}),
    ],
)
def test_a_plan_says_that_nobody_is_signed_in_as_a_launch_would(
    monkeypatch: pytest.MonkeyPatch, provider: str, keys: dict[str, object]
) -> None:
    def refuse(**_: object) -> None:
        raise exceptions.DefaultCredentialsError("none here")

    monkeypatch.setattr(google.auth, "default", refuse)
    settings = {"gcp_project": "validation-1"}
    rents = registry.load(provider, ProviderContext(book=MemoryHostStore(), settings=settings))
    platform = Platform(id="cell", provider=provider, **keys)  # type: ignore[arg-type]
    assert isinstance(rents, Offers)
    with pytest.raises(CredentialsError, match="none here") as alone:
        rents.places(platform)
    assert "SEATRIAL" not in str(alone.value)
    rents = registry.load(provider, ProviderContext(book=MemoryHostStore()))
    assert isinstance(rents, Offers)
    with pytest.raises(CredentialsError, match="none here") as caught:
        rents.places(replace(platform, connect="public"))
    told = str(caught.value).split("; ")
    assert any(text.startswith("no Google Cloud project is named") for text in told)
    assert told[-1].startswith("SEATRIAL_INGRESS_CIDR is not set")
    assert str(caught.value).count("none here") == 1


def test_an_emulation_needs_nobody_and_a_project_is_needed_everywhere() -> None:
    settings = {"gcp_compute_endpoint": "http://127.0.0.1:1"}
    GoogleAccount({**settings, "gcp_project": "lab"}, api="gcp_compute_endpoint").require()
    with pytest.raises(ConfigError, match="SEATRIAL_GCP_PROJECT"):
        GoogleAccount(settings, api="gcp_compute_endpoint").require()
