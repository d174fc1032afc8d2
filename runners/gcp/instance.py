"""A launch request as Compute Engine's instance resource, and the names in it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid5

from google.cloud import compute_v1

from orchestrator.domain.machine import ConfigError, LaunchRequest, Login
from runners.first_boot import cloud_config, startup_script
from runners.gcp.images import ResolvedImage
from runners.gcp.platform_config import GcpPlatformConfig
from runners.google.account import entry
from runners.google.firewall import NETWORK
from runners.google.names import NAME, labels, named

_REQUESTS = UUID("6f0c3c5e-9f0d-5d0b-8f0e-2b7a4a1d9c11")
"""Namespace of Seatrial's request ids; it must never change."""
KINDS: Mapping[str, str] = {
    "instances": "machine",
    "disks": "disk",
    "firewalls": "firewall",
    "addresses": "address",
}
"""`Machine.kind` by collection of the API."""


@dataclass(frozen=True, slots=True)
class ResourceId:
    """A machine's id, or another resource's: ``us-central1-a/instances/name``."""

    scope: str
    """A zone, a region, or ``global``."""
    collection: str
    name: str

    def __str__(self) -> str:
        return f"{self.scope}/{self.collection}/{self.name}"

    @property
    def kind(self) -> str:
        """The kind, as in `Machine.kind`."""
        return KINDS[self.collection]


def parse_id(machine_id: str) -> ResourceId | None:
    """Return the parts of an id; None for an id of another form."""
    parts = machine_id.split("/")
    if len(parts) != len(("scope", "collection", "name")) or parts[1] not in KINDS:
        return None
    scope, collection, name = parts
    return ResourceId(scope, collection, name) if NAME.fullmatch(name) else None


def instance_name(token: str) -> str:
    """Return the name of a token's only machine, equal in all zones."""
    return named(token)


def request_id(token: str, zone: str) -> str:
    """Return an id that is the same for every repetition of one launch in a zone."""
    return str(uuid5(_REQUESTS, f"{token}|{zone}"))


def network_tag(project: str) -> str:
    """Return the network tag that applies only Seatrial's firewall rules to its machines."""
    return named(project)


def last(link: str) -> str:
    """Return the last part of a resource's link."""
    return link.rpartition("/")[2]


CONNECT = "seatrial-connect"
"""Metadata key of the way to connect, set if the controller connects through a tunnel."""
IMAGE_FACTS = "seatrial-image"
"""Metadata key of the image that a machine was booted from."""
MINIMUM_RUN_S = 60
GUEST_LATER = timedelta(minutes=10)
"""Time between Google's end of a machine and the guest timer's. A guest that powers itself off is
only stopped, and its disk still costs; Google's end deletes, but counts from when it ran.
"""
_MODELS = {"spot": "SPOT", "on-demand": "STANDARD"}


def build_instance(
    request: LaunchRequest,
    config: GcpPlatformConfig,
    image: ResolvedImage,
    *,
    project: str,
    now: datetime,
    templates: Path,
) -> compute_v1.Instance:
    """Return the instance resource to insert.

    Args:
        request: The request with login, tags and expiry.
        config: The platform's configuration.
        image: The image to boot.
        project: The controllers' project name, for the network tag.
        now: The present time; a request that has expired by then is refused.
        templates: The folder that holds ``cloud_init/``.

    Raises:
        ConfigError: Login or expiry of the request is missing, or the disk is too small.
    """
    login, expires_at = _safe(request)
    if image.disk_gb > config.disk_gb:
        raise ConfigError(
            f"disk_gb: {config.disk_gb} is less than the {image.disk_gb} GB of image {image.name}"
        )
    place, guest_ends_at = request.place, expires_at + GUEST_LATER
    carried = dict(config.labels) | labels(
        {**request.tags, "seatrial-project": project, "seatrial-token": request.token}
    )
    return compute_v1.Instance(
        name=instance_name(request.token),
        machine_type=f"zones/{place.zone}/machineTypes/{place.instance_type}",
        labels=carried,
        tags=compute_v1.Tags(items=[network_tag(project)]),
        disks=[_boot_disk(place.zone, config, image, carried)],
        network_interfaces=[_network(config, place.region)],
        scheduling=_scheduling(place.market, expires_at, request.asked_at or now, now),
        metadata=_metadata(
            {
                **entry(login, config.user),
                "user-data": cloud_config(
                    login, user=config.user, expires_at=guest_ends_at, templates=templates
                ),
                "startup-script": startup_script(expires_at=guest_ends_at, templates=templates),
                IMAGE_FACTS: json.dumps(dict(image.facts)),
                **({CONNECT: "iap"} if config.has_tunnel else {}),
                **({"install-nvidia-driver": "True"} if image.needs_driver else {}),
            }
        ),
    )


def _safe(request: LaunchRequest) -> tuple[Login, datetime]:
    if request.login is None or request.expires_at is None:
        raise ConfigError("gcp: a machine is never launched without a login and a time to end")
    return request.login, request.expires_at


def _boot_disk(
    zone: str, config: GcpPlatformConfig, image: ResolvedImage, carried: dict[str, str]
) -> compute_v1.AttachedDisk:
    key = compute_v1.CustomerEncryptionKey(kms_key_name=config.kms_key) if config.kms_key else None
    return compute_v1.AttachedDisk(
        boot=True,
        auto_delete=True,
        disk_encryption_key=key,  # by default Google encrypts the disk with a Google-managed key
        initialize_params=compute_v1.AttachedDiskInitializeParams(
            source_image=image.link,
            disk_size_gb=config.disk_gb,
            disk_type=f"zones/{zone}/diskTypes/pd-balanced",
            labels=carried,
        ),
    )


def _network(config: GcpPlatformConfig, region: str) -> compute_v1.NetworkInterface:
    outside = compute_v1.AccessConfig(name="External NAT", type_="ONE_TO_ONE_NAT")
    subnetwork = config.subnetwork
    if subnetwork and "/" not in subnetwork:
        subnetwork = f"regions/{region}/subnetworks/{subnetwork}"
    # A subnetwork alone determines its network, perhaps a shared one of another project.
    network = config.network or ("" if subnetwork else NETWORK)
    return compute_v1.NetworkInterface(
        network=network or None,
        subnetwork=subnetwork or None,
        access_configs=[outside] if config.is_public else [],
    )


def _scheduling(
    market: str, expires_at: datetime, requested_at: datetime, now: datetime
) -> compute_v1.Scheduling:
    if expires_at <= now:
        raise ConfigError(f"the machine was to end at {expires_at:%H:%M:%S} UTC, which is past")
    # Counted from the first call, so that a repeated one is the same request: what Google does with
    # a request id that it knows and another body is not documented. Whole minutes, rounded up.
    run_s = max(MINIMUM_RUN_S, math.ceil((expires_at - requested_at).total_seconds() / 60) * 60)
    return compute_v1.Scheduling(
        on_host_maintenance="TERMINATE",  # machines with GPUs cannot be moved
        automatic_restart=False,
        provisioning_model=_MODELS[market],
        instance_termination_action="DELETE",
        max_run_duration=compute_v1.Duration(seconds=run_s),
    )


def _metadata(items: dict[str, str]) -> compute_v1.Metadata:
    return compute_v1.Metadata(
        items=[compute_v1.Items(key=key, value=value) for key, value in items.items()]
    )
