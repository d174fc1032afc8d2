"""The account that calls Google Cloud (key file or metadata server), and its project."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from functools import cached_property

import google.auth
from google.auth import exceptions as auth
from google.auth.credentials import Credentials
from google.oauth2 import credentials as user

from orchestrator.domain.machine import ConfigError, CredentialsError, Extent, Login, ProviderError
from runners.google.names import DEFAULT_USER
from runners.google.responses import of_exception

HOST_KEYS = "hostkeys/"
"""Prefix of the guest attributes in which the guest publishes its host keys."""
_KEYS = "ssh-keys"
_ED25519 = re.compile(r"(?:.*/)?ssh-ed25519")


def entry(login: Login, user: str) -> dict[str, str]:
    """Return the metadata that lets one user sign in with one key."""
    key = " ".join(login.public_key.split()[:2])
    return {
        _KEYS: f"{user}:{key} {user}",
        "block-project-ssh-keys": "TRUE",
        "enable-oslogin": "FALSE",  # else metadata keys are ignored
        "enable-guest-attributes": "TRUE",  # the guest publishes its host keys there
    }


def user_in(metadata: dict[str, str]) -> str:
    """Return the login user that `entry` wrote."""
    user, colon, _ = metadata.get(_KEYS, "").partition(":")
    return user if colon else DEFAULT_USER


def host_key_in(attributes: Iterable[tuple[str, str]]) -> str:
    """Return the ed25519 host key among guest attributes, base64; empty until it is published."""
    found = (value.strip() for key, value in attributes if _ED25519.fullmatch(key))
    return next(found, "")


_REFUSED_S = 60.0
"""Seconds for which a refusal is cached: without credentials each try waits for a time-out."""
_NO_PROJECT = "no Google Cloud project is named: set SEATRIAL_GCP_PROJECT"
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


class GoogleAccount:
    """Signs in at the first request, and never to an emulation."""

    def __init__(self, settings: Mapping[str, str], *, api: str) -> None:
        """Store the settings without a request.

        Args:
            settings: The controller's settings.
            api: Name of the setting that overrides the provider's endpoint.
        """
        self._refused: tuple[float, ProviderError] | None = None
        self._named = settings.get("gcp_project", "")
        self.is_simulated = bool(settings.get(api))

    @cached_property
    def project(self) -> str:
        """The Google Cloud project. Raises ConfigError, CredentialsError."""
        named = self._named
        if not named and not self.is_simulated:
            named = self._default[1] or ""
        if not named:
            raise ConfigError(_NO_PROJECT, extent=Extent.PROJECT)
        return named

    @property
    def credentials(self) -> Credentials:
        """Google's default credentials. Raises CredentialsError, ProviderUnavailableError."""
        return self._default[0]

    def require(self) -> None:
        """Raise an error if no project or no credentials are available, so that a plan reports it.

        Raises:
            ConfigError: No project is named.
            CredentialsError: Nobody is signed in; an emulation needs nobody.
            ProviderUnavailableError: The metadata server does not answer.
        """
        try:
            _ = self.project
        except CredentialsError as error:
            told = f"{error}; {_NO_PROJECT}, unless the credentials name one"
            raise CredentialsError(told, code=error.code, extent=error.extent) from error
        if not self.is_simulated:
            _ = self.credentials

    @cached_property
    def _default(self) -> tuple[Credentials, str | None]:
        if self._refused and time.monotonic() - self._refused[0] < _REFUSED_S:
            raise self._refused[1]
        try:
            credentials, project = google.auth.default(scopes=_SCOPES)
        except (auth.GoogleAuthError, OSError) as error:
            told = of_exception("signing in to Google Cloud", error)
            if not isinstance(error, auth.TransportError | auth.GoogleAuthError):
                told = CredentialsError(str(told), extent=Extent.PROJECT)
            self._refused = time.monotonic(), told
            raise told from error
        billed = self._named or project
        if (
            isinstance(credentials, user.Credentials)
            and not credentials.quota_project_id
            and billed
        ):
            # Without a quota project Cloud TPU, Cloud Quotas and Cloud Billing refuse users. A
            # service account has one already, and may lack the permission to name another.
            credentials = credentials.with_quota_project(billed)
        return credentials, project
