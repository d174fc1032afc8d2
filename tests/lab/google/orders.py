"""What `instances.insert` asks for, held against Compute Engine's rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tests.lab.google.front import ApiError, Json
from tests.lab.google.images import Images
from tests.lab.google.places import MACHINE_TYPES, ZONES, MachineType, region_of

NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][-_a-z0-9]{0,62}")
_LABEL_VALUE = re.compile(r"[-_a-z0-9]{0,63}")
_KIB = 1024
_MODELS = ("STANDARD", "SPOT", "FLEX_START", "RESERVATION_BOUND")
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class DiskOrder:
    """A disk that comes with an instance."""

    name: str
    kind: str
    size_gb: int
    auto_delete: bool
    image: str
    labels: Mapping[str, str]

    @property
    def is_ssd(self) -> bool:
        return self.kind in ("pd-ssd", "pd-balanced")


@dataclass(frozen=True, slots=True)
class Order:
    """A permitted instance."""

    project: str
    zone: str
    name: str
    machine_type: MachineType
    model: str
    termination_action: str
    max_run_s: float | None
    metadata: Mapping[str, str]
    disks: tuple[DiskOrder, ...]
    external: bool
    body: Json

    @property
    def region(self) -> str:
        return region_of(self.zone)

    @property
    def spot(self) -> bool:
        return self.model == "SPOT"

    @property
    def market(self) -> str:
        return "spot" if self.spot else "on-demand"


def market_of(body: Json) -> str:
    """The market that a call is for, before its order is read."""
    scheduling = body.get("scheduling") or {}
    spot = scheduling.get("provisioningModel") == "SPOT" or scheduling.get("preemptible")
    return "spot" if spot else "on-demand"


def check_name(name: str, field: str = "resource.name") -> None:
    """RFC 1035, as GCE has it.

    Raises:
        ApiError: It is not.
    """
    if not NAME.fullmatch(name):
        raise _invalid(field, name, f"Must be a match of regex '{NAME.pattern}'")


def check_zone(zone: str) -> None:
    """404 for a zone that is nowhere."""
    if zone not in ZONES:
        raise ApiError("notFound", f"The resource 'zones/{zone}' was not found", 404)


def check_labels(labels: Mapping[str, str]) -> None:
    """The alphabet: lower case, digits, dash and underscore; at most 64 of them."""
    if len(labels) > 64:
        raise _invalid("resource.labels", str(len(labels)), "At most 64 labels")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise _invalid("resource.labels", f"{key}={value}", "Only hyphens, underscores, "
                           "lowercase characters and numbers are allowed")  # fmt: skip


def read_order(project: str, zone: str, body: Json, images: Images) -> Order:
    """The order in a call.

    Raises:
        ApiError: As GCE refuses it, 400 or 404.
    """
    check_zone(zone)
    name = str(body.get("name", ""))
    check_name(name)
    check_labels(body.get("labels") or {})
    scheduling = body.get("scheduling") or {}
    kind = _machine_type(str(body.get("machineType", "")), zone)
    model = scheduling.get("provisioningModel") or (
        "SPOT" if scheduling.get("preemptible") else "STANDARD"
    )
    _check_scheduling(scheduling, model, kind)
    return Order(
        project=project,
        zone=zone,
        name=name,
        machine_type=kind,
        model=model,
        termination_action=scheduling.get("instanceTerminationAction", "STOP"),
        max_run_s=_max_run_s(scheduling, model),
        metadata=_metadata(body.get("metadata") or {}),
        disks=_disks(body, name, images),
        external=_wants_external(body.get("networkInterfaces") or []),
        body=body,
    )


def _machine_type(link: str, zone: str) -> MachineType:
    kind = MACHINE_TYPES.get(link.rpartition("/")[2])
    if kind is None or zone not in kind.zones:
        why = f"Machine type with name '{link.rpartition('/')[2]}' does not exist in zone '{zone}'."
        raise _invalid("resource.machineType", link, why)
    if f"zones/{zone}/" not in f"{link}/":
        raise _invalid("resource.machineType", link, "Must be in the instance's zone")
    return kind


def _check_scheduling(scheduling: Json, model: str, kind: MachineType) -> None:
    field = "resource.scheduling"
    if model not in _MODELS:
        raise _invalid(f"{field}.provisioningModel", model, "")
    maintenance = scheduling.get("onHostMaintenance") or ("TERMINATE" if model == "SPOT" else "")
    if kind.accelerators and maintenance != "TERMINATE":
        why = "instances with guest accelerators do not support live migration."
        raise ApiError("invalid", f"[{kind.name}] is not compatible with scheduling: {why}")
    if model == "SPOT" and maintenance != "TERMINATE":
        raise _invalid(f"{field}.onHostMaintenance", maintenance, "Spot VMs are terminated")
    if model in ("SPOT", "FLEX_START") and scheduling.get("automaticRestart"):
        raise _invalid(f"{field}.automaticRestart", "true", f"Must be off for {model}")
    action = scheduling.get("instanceTerminationAction")
    if action not in (None, "STOP", "DELETE"):
        raise _invalid(f"{field}.instanceTerminationAction", str(action), "")


def _max_run_s(scheduling: Json, model: str) -> float | None:
    asked = scheduling.get("maxRunDuration")
    if asked is None:
        if model == "FLEX_START":
            raise _invalid("resource.scheduling.maxRunDuration", "", "Needed for FLEX_START")
        return None
    field, seconds = "resource.scheduling.maxRunDuration", float(asked.get("seconds", 0))
    longest = (7 if model == "FLEX_START" else 120) * _DAY_S
    if not 30 <= seconds <= longest:
        raise _invalid(field, str(seconds), f"Must be between 30 and {longest} seconds")
    if not scheduling.get("instanceTerminationAction"):
        raise ApiError("invalid", "You must specify an instance termination action together with "
                       "a maximum run duration.")  # fmt: skip
    return seconds


def _metadata(metadata: Json) -> Mapping[str, str]:
    items = {item["key"]: str(item.get("value", "")) for item in metadata.get("items") or []}
    sizes = [len(value.encode()) for value in items.values()]
    if max(sizes, default=0) > 256 * _KIB or sum(sizes) > 512 * _KIB:
        raise _invalid("resource.metadata", "", "Values are 256 KB at most, 512 KB together")
    return items


def _disks(body: Json, name: str, images: Images) -> tuple[DiskOrder, ...]:
    asked = body.get("disks") or []
    if not asked or not asked[0].get("boot"):
        raise _invalid("resource.disks", "", "At least one boot disk is needed")
    return tuple(_disk(disk, name, at, images) for at, disk in enumerate(asked))


def _disk(disk: Json, name: str, at: int, images: Images) -> DiskOrder:
    params = disk.get("initializeParams") or {}
    own_name = params.get("diskName") or (name if at == 0 else f"{name}-{at}")
    check_name(own_name, "resource.disks[].initializeParams.diskName")
    check_labels(params.get("labels") or {})
    source = params.get("sourceImage", "")
    if not source and disk.get("boot"):
        raise _invalid("resource.disks[0].initializeParams.sourceImage", "", "Needed")
    image = images.resolve(source) if source else None
    size_gb = int(params.get("diskSizeGb") or disk.get("diskSizeGb") or 0)
    least = image.size_gb if image else 10
    if size_gb and size_gb < least:
        raise ApiError("invalid", f"Requested disk size cannot be smaller than the image size "
                       f"({least} GB)")  # fmt: skip
    return DiskOrder(
        name=own_name,
        kind=str(params.get("diskType", "pd-standard")).rpartition("/")[2],
        size_gb=size_gb or least,
        auto_delete=bool(disk.get("autoDelete")),
        image=image.link if image else "",
        labels=params.get("labels") or {},
    )


def _wants_external(interfaces: list[Json]) -> bool:
    if not interfaces:
        raise _invalid("resource.networkInterfaces", "", "At least one is needed")
    network = str(interfaces[0].get("network", "default")).rpartition("/")[2]
    if network != "default":
        raise _invalid("resource.networkInterfaces[0].network", network,
                       "The referenced network resource cannot be found.")  # fmt: skip
    return bool(interfaces[0].get("accessConfigs"))


def _invalid(field: str, value: str, why: str) -> ApiError:
    return ApiError("invalid", f"Invalid value for field '{field}': '{value}'. {why}".rstrip())
