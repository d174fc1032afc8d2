"""The two services beside the TPU API: Cloud Billing's catalogue, and Cloud Quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from google.auth.credentials import AnonymousCredentials
from google.cloud.billing_v1 import CloudCatalogClient
from google.cloud.cloudquotas_v1 import CloudQuotasClient

C = TypeVar("C", CloudCatalogClient, CloudQuotasClient)


def may_ask(settings: Mapping[str, str], key: str) -> bool:
    """Whether a service may be called: a lab's machines have no business with the real ones."""
    emulated = settings.get("gcp_tpu_endpoint") or settings.get("gcp_compute_endpoint")
    return bool(settings.get(key)) or not emulated


def open_client(kind: type[C], endpoint: str) -> C:
    """A client, of an emulated service where an endpoint is given."""
    if not endpoint:
        return kind(transport="rest")
    options = {"api_endpoint": endpoint}
    if endpoint.startswith("http://"):
        anonymous = AnonymousCredentials()  # type: ignore[no-untyped-call]
        return kind(credentials=anonymous, transport="rest", client_options=options)
    return kind(transport="rest", client_options=options)
