"""The clouds of the smoke: one cheap platform of each, and how this process asks them itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from orchestrator.assets import asset_dir
from orchestrator.config import load
from orchestrator.domain.machine import Credentialed, Machine, PartialInventoryError, Provider
from runners import registry
from runners.fake import MemoryHostStore
from runners.provider_context import ProviderContext

PROJECT = "seatrial-smoke"
"""The tag of what the smoke rents by `seatrial run`: all that it looks at, and ends."""
KILL_PROJECT = "seatrial-smoke-kill"
"""Of machines that nobody owns: no janitor of the run's controller may save them."""
PAYLOAD = Path(__file__).with_name("payload")
PLATFORMS: Mapping[str, Mapping[str, object]] = {
    "aws": {
        "id": "aws",
        "provider": "aws",
        "instance_type": "g5.xlarge",
        "accelerator": {"vendor": "nvidia", "name": "A10G", "count": 1},
        "locations": ["us-east-2", "us-east-1", "us-west-2"],
        "market": ["spot"],
        "disk_gb": 100,
    },
    "gcp": {
        "id": "gcp",
        "provider": "gcp",
        "instance_type": "g2-standard-4",
        "accelerator": {"vendor": "nvidia", "name": "L4", "count": 1},
        "locations": ["us-central1"],
        "market": ["spot"],
        "disk_gb": 100,
    },
    "tpu": {
        "id": "tpu",
        "provider": "tpu",
        "accelerator_type": "v5litepod-1",
        "runtime_version": "v2-alpha-tpuv5-lite",
        "environments": ["tpu"],
        "locations": ["us-central1-a", "us-west1-c", "us-west4-a"],
        "market": ["spot"],
    },
}
ENDS_BY_ITSELF = frozenset({"aws", "gcp"})
"""A TPU VM's timer ends its work, not its bill."""
_ENDED = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) GMT\)")


@dataclass(frozen=True, slots=True)
class Times:
    """When a machine began and ended by its provider's own account."""

    began: datetime | None
    ended: datetime | None
    why_not: str = ""
    """What the provider does not tell, and why."""


def settings(project: str = PROJECT) -> dict[str, str]:
    """What the environment says, under the smoke's own project."""
    return {**load().for_providers(), "project": project}


def provider(cloud: str, project: str = PROJECT) -> Provider:
    """A cloud, as a controller with an empty memory meets it."""
    context = ProviderContext(
        MemoryHostStore(),
        settings(project),
        now=lambda: datetime.now(UTC),
        templates=asset_dir("templates"),
    )
    return registry.load(cloud, context)


def is_configured(cloud: str) -> bool:
    """Whether credentials are at hand, without asking the network."""
    found = provider(cloud)
    # A provider that cannot say is tried: it tells a person what it lacks.
    return found.is_configured() if isinstance(found, Credentialed) else True


def matrix(clouds: list[str], *, minutes: float, max_usd: str) -> dict[str, Any]:
    """The smoke's matrix: one cell for each cloud, one tiny job."""
    return {
        "apiVersion": "seatrial/v1",
        "kind": "Matrix",
        "metadata": {"name": "cloud-smoke"},
        "subject": {"name": "cloud-smoke", "version": "1"},
        "payload": {"path": str(PAYLOAD)},
        "limits": {"max_usd": max_usd, "max_minutes": minutes, "infra_retries": 0},
        "platforms": [dict(PLATFORMS[cloud]) for cloud in clouds],
        "jobs": [{"id": "facts"}],
    }


def left(cloud: str, project: str) -> list[Machine]:
    """Everything of the project that the provider shows, shared things too.

    Raises:
        ProviderError: It shows nothing of where this script rents; other places may be silent.
    """
    try:
        return list(provider(cloud, project).inventory())
    except PartialInventoryError as error:
        rented = cast("Sequence[str]", PLATFORMS[cloud]["locations"])
        if any(
            gap.startswith(place) or error.hides(place) for gap in error.gaps for place in rented
        ):
            raise
        return list(error.machines)


def times(cloud: str, machine_id: str) -> Times:
    """What the provider itself tells of a machine that is gone."""
    if cloud == "aws":
        return _aws_times(machine_id)
    if cloud == "gcp":
        return _gcp_times(machine_id)
    return Times(None, None, "the TPU API forgets a node with its deletion")


def _aws_times(machine_id: str) -> Times:
    import boto3

    region, _, instance = machine_id.partition("/")
    answer = boto3.client("ec2", region_name=region).describe_instances(InstanceIds=[instance])
    found = answer["Reservations"][0]["Instances"][0]
    said = _ENDED.search(found.get("StateTransitionReason", ""))
    ended = datetime.fromisoformat(f"{said[1]}+00:00") if said else None
    missing = "" if said else f"EC2 says {found.get('StateTransitionReason')!r}"
    return Times(found.get("LaunchTime"), ended, missing)


def _gcp_times(machine_id: str) -> Times:
    import google.auth
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import compute_v1

    told = settings()
    endpoint, project = told.get("gcp_compute_endpoint"), told.get("gcp_project")
    more: dict[str, Any] = {}
    if endpoint:
        more = {
            "credentials": AnonymousCredentials(),
            "client_options": {"api_endpoint": endpoint},
        }
    zone, _, name = machine_id.split("/")
    with compute_v1.ZoneOperationsClient(**more) as client:
        listed = list(client.list(project=project or google.auth.default()[1], zone=zone))
    ours = [one for one in listed if one.target_link.endswith(f"/instances/{name}")]
    ends = {one.operation_type: _time(one.end_time) for one in ours}
    began, ended = ends.get("insert"), ends.get("delete")
    missing = "" if began and ended else f"its operations are {sorted(ends)}"
    return Times(began, ended, missing)


def _time(said: str) -> datetime | None:
    return datetime.fromisoformat(said) if said else None
