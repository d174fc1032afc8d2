"""The client library's clients: one of each, made when first needed, pointed where settings say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import google.auth
from google.api_core.client_options import ClientOptions
from google.auth import exceptions as auth
from google.auth.credentials import AnonymousCredentials, Credentials
from google.cloud import billing_v1, compute_v1

from orchestrator.domain.machine import ConfigError, CredentialsError, Extent
from runners.gcp.reading import of_exception

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
C = TypeVar("C")


class Clients:
    """Every client that the provider uses; safe to share between threads."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._made: dict[type, Any] = {}

    @property
    def is_simulated(self) -> bool:
        """Whether another Compute Engine than Google's answers."""
        return bool(self._settings.get("gcp_compute_endpoint"))

    @property
    def has_catalogue(self) -> bool:
        """Whether the price catalogue may be asked: never Google's beside an emulated Compute."""
        return bool(self._settings.get("gcp_billing_endpoint")) or not self.is_simulated

    @property
    def is_configured(self) -> bool:
        """Whether a project is named and credentials are expected, without asking the network."""
        return bool(self._settings.get("gcp_project"))

    @cached_property
    def project(self) -> str:
        """The Google Cloud project. Raises ConfigError, CredentialsError."""
        named = self._settings.get("gcp_project")
        if not named and not self.is_simulated:
            named = self._default[1]
        if not named:
            raise ConfigError(
                "no Google Cloud project is named: set SEATRIAL_GCP_PROJECT", extent=Extent.PROJECT
            )
        return str(named)

    @property
    def instances(self) -> compute_v1.InstancesClient:
        """Virtual machines."""
        return self._compute(compute_v1.InstancesClient)

    @property
    def zone_operations(self) -> compute_v1.ZoneOperationsClient:
        """Our own: the one inside an operation's future asks Google's host whatever is set."""
        return self._compute(compute_v1.ZoneOperationsClient)

    @property
    def disks(self) -> compute_v1.DisksClient:
        """Disks."""
        return self._compute(compute_v1.DisksClient)

    @property
    def addresses(self) -> compute_v1.AddressesClient:
        """Reserved addresses."""
        return self._compute(compute_v1.AddressesClient)

    @property
    def firewalls(self) -> compute_v1.FirewallsClient:
        """Firewall rules."""
        return self._compute(compute_v1.FirewallsClient)

    @property
    def images(self) -> compute_v1.ImagesClient:
        """Images and their families."""
        return self._compute(compute_v1.ImagesClient)

    @property
    def machine_types(self) -> compute_v1.MachineTypesClient:
        """What is sold."""
        return self._compute(compute_v1.MachineTypesClient)

    @property
    def accelerator_types(self) -> compute_v1.AcceleratorTypesClient:
        """Which GPUs are sold."""
        return self._compute(compute_v1.AcceleratorTypesClient)

    @property
    def regions(self) -> compute_v1.RegionsClient:
        """Regions, with their quotas."""
        return self._compute(compute_v1.RegionsClient)

    @property
    def projects(self) -> compute_v1.ProjectsClient:
        """The project, with its quotas."""
        return self._compute(compute_v1.ProjectsClient)

    @property
    def catalogue(self) -> billing_v1.CloudCatalogClient:
        """Public prices."""
        endpoint = self._settings.get("gcp_billing_endpoint", "")
        return self._client(
            billing_v1.CloudCatalogClient,
            lambda: billing_v1.CloudCatalogClient(
                credentials=_anonymous() if endpoint else self._credentials,
                client_options=ClientOptions(api_endpoint=endpoint or None),
                transport="rest",
            ),
        )

    def close(self) -> None:
        """Drop every connection; the clients are made anew when next used."""
        while self._made:
            self._made.popitem()[1].transport.close()

    def _compute(self, kind: type[C]) -> C:
        endpoint = self._settings.get("gcp_compute_endpoint", "")
        # Each client class takes these two, but they share no type that says so.
        make: Callable[..., C] = kind
        return self._client(
            kind,
            lambda: make(
                credentials=_anonymous() if endpoint else self._credentials,
                client_options=ClientOptions(api_endpoint=endpoint or None),
            ),
        )

    def _client(self, kind: type[C], make: Callable[[], C]) -> C:
        if kind not in self._made:
            self._made[kind] = make()
        found: C = self._made[kind]
        return found

    @property
    def _credentials(self) -> Credentials:
        return self._default[0]

    @cached_property
    def _default(self) -> tuple[Credentials, str | None]:
        try:
            credentials, project = google.auth.default(scopes=_SCOPES)
        except (auth.GoogleAuthError, OSError) as error:
            told = of_exception("signing in to Google Cloud", error)
            if isinstance(error, auth.TransportError | auth.GoogleAuthError):
                raise told from error
            raise CredentialsError(str(told), extent=Extent.PROJECT) from error
        return credentials, project


def _anonymous() -> Credentials:
    return AnonymousCredentials()  # type: ignore[no-untyped-call]
