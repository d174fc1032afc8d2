"""REST clients of Google's libraries: created at first use, with endpoints from the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import billing_v1, cloudquotas_v1, compute_v1

from runners.google.account import GoogleAccount

COMPUTE, TPU = "gcp_compute_endpoint", "gcp_tpu_endpoint"
BILLING, QUOTAS = "gcp_billing_endpoint", "gcp_quotas_endpoint"


C = TypeVar("C")


class Clients:
    """Every client that more than one provider uses; safe to share between threads."""

    def __init__(self, settings: Mapping[str, str], account: GoogleAccount) -> None:
        self._settings = settings
        self._account = account
        self._made: dict[type, Any] = {}

    @property
    def is_simulated(self) -> bool:
        """Whether the endpoint is not Google's own, but an emulation."""
        return self._account.is_simulated

    @property
    def has_catalogue(self) -> bool:
        """Whether the price catalogue may be called."""
        return may_ask(self._settings, BILLING)

    @property
    def has_quotas(self) -> bool:
        """Whether Cloud Quotas may be called."""
        return may_ask(self._settings, QUOTAS)

    @property
    def project(self) -> str:
        """The Google Cloud project. Raises ConfigError, CredentialsError."""
        return self._account.project

    def require_account(self) -> None:
        """Raise ProviderError if no project or no credentials are available to launch with."""
        self._account.require()

    @property
    def firewalls(self) -> compute_v1.FirewallsClient:
        """The client for firewall rules."""
        return self._compute(compute_v1.FirewallsClient)

    @property
    def global_operations(self) -> compute_v1.GlobalOperationsClient:
        """The client for operations on firewall rules, which uses the configured endpoint."""
        return self._compute(compute_v1.GlobalOperationsClient)

    @property
    def regions(self) -> compute_v1.RegionsClient:
        """The client for regions, with their quotas."""
        return self._compute(compute_v1.RegionsClient)

    @property
    def projects(self) -> compute_v1.ProjectsClient:
        """The client for the project, with its quotas."""
        return self._compute(compute_v1.ProjectsClient)

    @property
    def has_compute(self) -> bool:
        """Whether Compute Engine may be called."""
        return may_ask(self._settings, COMPUTE)

    @property
    def catalogue(self) -> billing_v1.CloudCatalogClient:
        """The client for public prices."""
        return self._client(billing_v1.CloudCatalogClient, BILLING)

    @property
    def quotas(self) -> cloudquotas_v1.CloudQuotasClient:
        """The client for the limits of services."""
        return self._client(cloudquotas_v1.CloudQuotasClient, QUOTAS)

    def close(self) -> None:
        """Close every connection; the clients are created again at their next use."""
        while self._made:
            self._made.popitem()[1].transport.close()

    def _compute(self, kind: type[C]) -> C:
        return self._client(kind, COMPUTE)

    def _client(self, kind: type[C], service: str) -> C:
        if kind not in self._made:
            endpoint = self._settings.get(service, "")
            # Each client class takes these parameters, but they share no type for them.
            make: Callable[..., C] = kind
            self._made[kind] = make(
                # An endpoint of one's own is an emulation: it never sees credentials.
                credentials=_anonymous() if endpoint else self._account.credentials,
                client_options=ClientOptions(api_endpoint=endpoint or None),
                transport="rest",
            )
        found: C = self._made[kind]
        return found


def _anonymous() -> AnonymousCredentials:
    return AnonymousCredentials()  # type: ignore[no-untyped-call]


def may_ask(settings: Mapping[str, str], service: str) -> bool:
    """Return whether a service may be called: an emulated cloud must not call the real ones."""
    is_emulated = settings.get(COMPUTE) or settings.get(TPU)
    return bool(settings.get(service)) or not is_emulated
