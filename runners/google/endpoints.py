"""Which of Google's services may be asked at all."""

from __future__ import annotations

from collections.abc import Mapping

COMPUTE, TPU = "gcp_compute_endpoint", "gcp_tpu_endpoint"
BILLING, QUOTAS = "gcp_billing_endpoint", "gcp_quotas_endpoint"


def may_ask(settings: Mapping[str, str], service: str) -> bool:
    """Whether a service may be called: an emulated cloud has no business with the real ones."""
    is_emulated = settings.get(COMPUTE) or settings.get(TPU)
    return bool(settings.get(service)) or not is_emulated
