"""The client library's clients for Compute Engine."""

from __future__ import annotations

from collections.abc import Mapping

from google.cloud import compute_v1

from runners.google.account import GoogleAccount
from runners.google.clients import COMPUTE, Clients


class ComputeClients(Clients):
    """Every client that the provider uses; safe to share between threads."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings, GoogleAccount(settings, api=COMPUTE))

    @property
    def instances(self) -> compute_v1.InstancesClient:
        """The client for virtual machines."""
        return self._compute(compute_v1.InstancesClient)

    @property
    def zone_operations(self) -> compute_v1.ZoneOperationsClient:
        """The client for zonal operations, which uses the configured endpoint."""
        return self._compute(compute_v1.ZoneOperationsClient)

    @property
    def disks(self) -> compute_v1.DisksClient:
        """The client for disks."""
        return self._compute(compute_v1.DisksClient)

    @property
    def addresses(self) -> compute_v1.AddressesClient:
        """The client for reserved addresses."""
        return self._compute(compute_v1.AddressesClient)

    @property
    def images(self) -> compute_v1.ImagesClient:
        """The client for images and their families."""
        return self._compute(compute_v1.ImagesClient)

    @property
    def machine_types(self) -> compute_v1.MachineTypesClient:
        """The client for machine types."""
        return self._compute(compute_v1.MachineTypesClient)

    @property
    def accelerator_types(self) -> compute_v1.AcceleratorTypesClient:
        """The client for GPU types."""
        return self._compute(compute_v1.AcceleratorTypesClient)
