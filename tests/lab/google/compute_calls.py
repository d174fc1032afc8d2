"""The calls of Compute Engine that the lab answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from google.cloud import compute_v1

from tests.lab.faults import Fault
from tests.lab.google import fleet as instances
from tests.lab.google.compute_state import ComputeState
from tests.lab.google.descriptors import check_body
from tests.lab.google.filters import chosen
from tests.lab.google.front import ApiError, Json, Request, page
from tests.lab.google.operations import Operation
from tests.lab.google.orders import check_zone, read_order
from tests.lab.google.places import MACHINE_TYPES, REGIONS, ZONES, MachineType, region_of

Handler = Callable[[Request], Json]
_ROOT = "https://www.googleapis.com/compute/v1/projects/lab"
_P = "/compute/v1/projects/<project>"
_Z, _G = f"{_P}/zones/<zone>", f"{_P}/global"
_R = f"{_P}/regions/<region>"
ROUTES: Mapping[str, str] = {
    "instances.insert": f"POST {_Z}/instances",
    "instances.list": f"GET {_Z}/instances",
    "instances.get": f"GET {_Z}/instances/<instance>",
    "instances.delete": f"DELETE {_Z}/instances/<instance>",
    "instances.reset": f"POST {_Z}/instances/<instance>/reset",
    "instances.aggregatedList": f"GET {_P}/aggregated/instances",
    "instances.getGuestAttributes": f"GET {_Z}/instances/<instance>/getGuestAttributes",
    "instances.getSerialPortOutput": f"GET {_Z}/instances/<instance>/serialPort",
    "zoneOperations.get": f"GET {_Z}/operations/<operation>",
    "zoneOperations.list": f"GET {_Z}/operations",
    "zoneOperations.wait": f"POST {_Z}/operations/<operation>/wait",
    "globalOperations.get": f"GET {_G}/operations/<operation>",
    "globalOperations.wait": f"POST {_G}/operations/<operation>/wait",
    "regionOperations.get": f"GET {_R}/operations/<operation>",
    "regionOperations.wait": f"POST {_R}/operations/<operation>/wait",
    "images.getFromFamily": f"GET {_G}/images/family/<family>",
    "images.get": f"GET {_G}/images/<image>",
    "machineTypes.get": f"GET {_Z}/machineTypes/<machineType>",
    "machineTypes.list": f"GET {_Z}/machineTypes",
    "machineTypes.aggregatedList": f"GET {_P}/aggregated/machineTypes",
    "acceleratorTypes.list": f"GET {_Z}/acceleratorTypes",
    "acceleratorTypes.aggregatedList": f"GET {_P}/aggregated/acceleratorTypes",
    "firewalls.insert": f"POST {_G}/firewalls",
    "firewalls.list": f"GET {_G}/firewalls",
    "firewalls.get": f"GET {_G}/firewalls/<firewall>",
    "firewalls.delete": f"DELETE {_G}/firewalls/<firewall>",
    "disks.list": f"GET {_Z}/disks",
    "disks.get": f"GET {_Z}/disks/<disk>",
    "disks.delete": f"DELETE {_Z}/disks/<disk>",
    "disks.aggregatedList": f"GET {_P}/aggregated/disks",
    "addresses.insert": f"POST {_R}/addresses",
    "addresses.list": f"GET {_R}/addresses",
    "addresses.delete": f"DELETE {_R}/addresses/<address>",
    "addresses.aggregatedList": f"GET {_P}/aggregated/addresses",
    "regions.get": f"GET {_R}",
    "regions.list": f"GET {_P}/regions",
    "zones.get": f"GET {_Z}",
    "zones.list": f"GET {_P}/zones",
    "projects.get": f"GET {_P}",
}


def handlers(state: ComputeState) -> dict[str, Handler]:
    """One for each route."""
    calls = ComputeCalls(state)
    return {name: getattr(calls, name.replace(".", "_")) for name in ROUTES}


class ComputeCalls:
    """One method per call, named after it; each answers the JSON of a 200 or raises ApiError."""

    def __init__(self, state: ComputeState) -> None:
        self._s = state

    def instances_insert(self, request: Request) -> Json:
        project, zone = request.path["project"], request.path["zone"]
        scope = f"zones/{zone}"
        again = self._repeated(scope, request)
        if again is not None:
            return again
        check_body(compute_v1.Instance, request.body)
        order = read_order(project, zone, request.body, self._s.images)
        self._s.fleet.refuse_taken(order)
        doom = self._s.doom_of(order, request.fault)
        operation = self._begin("insert", request, f"{scope}/instances/{order.name}", scope)
        self._s.fleet.insert(order, operation, doom)
        return operation.as_json()

    def instances_delete(self, request: Request) -> Json:
        zone, name = request.path["zone"], request.path["instance"]
        again = self._repeated(f"zones/{zone}", request)
        if again is not None:
            return again
        instance = self._s.fleet.find(zone, name, looks=self._s.hides_from_changes)
        scope = f"zones/{zone}"
        operation = self._begin("delete", request, f"{scope}/instances/{name}", scope)
        operation.target_id = instance.number
        if request.fault.in_operation:
            operation.finish(self._s.clock(), request.fault)
        else:
            self._s.fleet.delete(instance, operation)
        return operation.as_json()

    def instances_reset(self, request: Request) -> Json:
        instance = self._s.fleet.find(request.path["zone"], request.path["instance"])
        if instance.state != "RUNNING":
            raise ApiError("resourceNotReady", "The instance is not RUNNING", 400)
        scope = f"zones/{request.path['zone']}"
        operation = self._begin("reset", request, f"{scope}/instances/{instance.order.name}", scope)
        if not request.fault.in_operation:
            self._s.machines.reboot(instance.number)
        return self._ended(operation, request.fault)

    def instances_get(self, request: Request) -> Json:
        return instances.as_json(self._s.fleet.find(request.path["zone"], request.path["instance"]))

    def instances_list(self, request: Request) -> Json:
        check_zone(request.path["zone"])
        found = self._s.fleet.visible(lambda zone: zone == request.path["zone"])
        return _listed([instances.as_json(each) for each in found], request)

    # Google's own spelling of the call, which `handlers` looks for.
    def instances_aggregatedList(self, request: Request) -> Json:  # noqa: N802
        found = self._s.fleet.visible(lambda zone: zone not in self._s.gaps.always)
        return self._by_zone([instances.as_json(each) for each in found], "instances", request)

    def instances_getGuestAttributes(self, request: Request) -> Json:  # noqa: N802
        instance = self._s.fleet.find(request.path["zone"], request.path["instance"])
        there = self._s.machines.guest_attributes(instance.number)
        asked = request.query.get("queryPath", "")
        found = {key: value for key, value in there.items() if key.startswith(asked)}
        if not found:
            raise ApiError("notFound", f"The resource 'guestAttributes/{asked}' was not found", 404)
        items = [
            {"namespace": key.partition("/")[0], "key": key.partition("/")[2], "value": value}
            for key, value in found.items()
        ]
        return {"kind": "compute#guestAttributes", "queryPath": asked,
                "queryValue": {"items": items}}  # fmt: skip

    def instances_getSerialPortOutput(self, request: Request) -> Json:  # noqa: N802
        instance = self._s.fleet.find(request.path["zone"], request.path["instance"])
        text = self._s.machines.console(instance.number) if instance.staged_at else ""
        start = int(request.query.get("start", 0))
        left = text.encode()[start:]
        return {"contents": left.decode(errors="replace"), "start": str(start),
                "next": str(start + len(left))}  # fmt: skip

    def zoneOperations_get(self, request: Request) -> Json:  # noqa: N802
        return self._operation(f"zones/{request.path['zone']}", request)

    zoneOperations_wait = zoneOperations_get  # noqa: N815 - the cloud does the waiting

    def zoneOperations_list(self, request: Request) -> Json:  # noqa: N802
        scope = f"zones/{request.path['zone']}"
        known = self._s.operations.known.items()
        return _listed([each.as_json() for (where, _), each in known if where == scope], request)

    def globalOperations_get(self, request: Request) -> Json:  # noqa: N802
        return self._operation("global", request)

    globalOperations_wait = globalOperations_get  # noqa: N815

    def regionOperations_get(self, request: Request) -> Json:  # noqa: N802
        return self._operation(f"regions/{request.path['region']}", request)

    regionOperations_wait = regionOperations_get  # noqa: N815

    def images_getFromFamily(self, request: Request) -> Json:  # noqa: N802
        return self._s.images.of_family(request.path["project"], request.path["family"]).as_json()

    def images_get(self, request: Request) -> Json:
        return self._s.images.get(request.path["project"], request.path["image"]).as_json()

    def machineTypes_get(self, request: Request) -> Json:  # noqa: N802
        zone, name = request.path["zone"], request.path["machineType"]
        check_zone(zone)
        kind = MACHINE_TYPES.get(name)
        if kind is None or zone not in kind.zones:
            what = f"zones/{zone}/machineTypes/{name}"
            raise ApiError("notFound", f"The resource '{what}' was not found", 404)
        return _machine_type(kind, zone)

    def machineTypes_list(self, request: Request) -> Json:  # noqa: N802
        check_zone(request.path["zone"])
        return _listed(_machine_types(request.path["zone"]), request)

    def machineTypes_aggregatedList(self, request: Request) -> Json:  # noqa: N802
        rows = [row for zone in ZONES for row in _machine_types(zone)]
        return self._by_zone(rows, "machineTypes", request)

    def acceleratorTypes_list(self, request: Request) -> Json:  # noqa: N802
        check_zone(request.path["zone"])
        return _listed(_accelerator_types(request.path["zone"]), request)

    def acceleratorTypes_aggregatedList(self, request: Request) -> Json:  # noqa: N802
        rows = [row for zone in ZONES for row in _accelerator_types(zone)]
        return self._by_zone(rows, "acceleratorTypes", request)

    def firewalls_insert(self, request: Request) -> Json:
        again = self._repeated("global", request)
        if again is not None:
            return again
        check_body(compute_v1.Firewall, request.body)
        self._s.network.refuse_taken(request.body)
        name = request.body["name"]
        operation = self._begin("insert", request, f"global/firewalls/{name}")
        if not request.fault.in_operation:
            self._s.network.add_firewall(request.body, self._s.clock().isoformat())
        return self._ended(operation, request.fault)

    def firewalls_list(self, request: Request) -> Json:
        return _listed(list(self._s.network.firewalls.values()), request)

    def firewalls_get(self, request: Request) -> Json:
        return self._s.network.firewall(request.path["firewall"])

    def firewalls_delete(self, request: Request) -> Json:
        name = request.path["firewall"]
        again = self._repeated("global", request)
        if again is not None:
            return again
        self._s.network.firewall(name)
        operation = self._begin("delete", request, f"global/firewalls/{name}")
        if not request.fault.in_operation:
            del self._s.network.firewalls[name]
        return self._ended(operation, request.fault)

    def disks_list(self, request: Request) -> Json:
        check_zone(request.path["zone"])
        return _listed(self._s.disks.rows(request.path["zone"]), request)

    def disks_get(self, request: Request) -> Json:
        return self._s.disks.find(request.path["zone"], request.path["disk"]).as_json()

    def disks_delete(self, request: Request) -> Json:
        zone, name = request.path["zone"], request.path["disk"]
        again = self._repeated(f"zones/{zone}", request)
        if again is not None:
            return again
        disk = self._s.disks.find(zone, name)
        if not request.fault.in_operation:
            self._s.disks.delete(disk, self._s.clock())
        operation = self._begin("delete", request, f"zones/{zone}/disks/{name}", f"zones/{zone}")
        return self._ended(operation, request.fault)

    def disks_aggregatedList(self, request: Request) -> Json:  # noqa: N802
        return self._by_zone(self._s.disks.rows(), "disks", request)

    def addresses_insert(self, request: Request) -> Json:
        region, now = request.path["region"], self._s.clock()
        address = self._s.fleet.addresses.take_external()
        self._s.network.reserve(region, request.body, address, now.isoformat())
        target = f"regions/{region}/addresses/{request.body['name']}"
        return self._ended(self._begin("insert", request, target, f"regions/{region}"))

    def addresses_list(self, request: Request) -> Json:
        rows = [row for (where, _), row in self._s.network.addresses.items()
                if where == request.path["region"]]  # fmt: skip
        return _listed(rows, request)

    def addresses_delete(self, request: Request) -> Json:
        region, name = request.path["region"], request.path["address"]
        self._s.fleet.addresses.give_back(self._s.network.address(region, name)["address"])
        del self._s.network.addresses[region, name]
        target = f"regions/{region}/addresses/{name}"
        return self._ended(self._begin("delete", request, target, f"regions/{region}"))

    def addresses_aggregatedList(self, request: Request) -> Json:  # noqa: N802
        rows = list(self._s.network.addresses.values())
        return {"items": {f"regions/{region}": _scope(region, rows, "addresses", "region")
                          for region in REGIONS}}  # fmt: skip

    def regions_get(self, request: Request) -> Json:
        region = request.path["region"]
        if region not in REGIONS:
            raise ApiError("notFound", f"The resource 'regions/{region}' was not found", 404)
        return self._region(region)

    def regions_list(self, request: Request) -> Json:
        return _listed([self._region(region) for region in REGIONS], request)

    def zones_get(self, request: Request) -> Json:
        check_zone(request.path["zone"])
        return _zone(request.path["zone"])

    def zones_list(self, request: Request) -> Json:
        return _listed([_zone(zone) for zone in ZONES], request)

    def projects_get(self, request: Request) -> Json:
        name = request.path["project"]
        quotas = self._s.quotas.answer("", self._s.orders())
        return {"kind": "compute#project", "id": "77", "name": name, "quotas": quotas}

    def _region(self, region: str) -> Json:
        quotas = self._s.quotas.answer(region, self._s.orders())
        zones = [f"{_ROOT}/zones/{zone}" for zone in ZONES if region_of(zone) == region]
        return {"kind": "compute#region", "name": region, "status": "UP", "quotas": quotas,
                "id": "78", "zones": zones}  # fmt: skip

    def _operation(self, scope: str, request: Request) -> Json:
        self._s.operations.tick(self._s.clock())
        return self._s.operations.get(scope, request.path["operation"]).as_json()

    def _repeated(self, scope: str, request: Request) -> Json | None:
        token = request.query.get("requestId", "")
        again = self._s.operations.repeated(
            scope, request.name, token, self._s.clock(), body=request.body
        )
        return again.as_json() if again is not None else None

    def _begin(self, kind: str, request: Request, target: str, scope: str = "global") -> Operation:
        token = request.query.get("requestId", "")
        project, now = request.path["project"], self._s.clock()
        return self._s.operations.begin(
            kind, project, target, now,
            token=token, call=request.name, scope=scope, body=request.body,
        )  # fmt: skip

    def _ended(self, operation: Operation, fault: Fault | None = None) -> Json:
        """Let it end, well or with its fault, when its time is over."""
        failed = fault if fault is not None and fault.in_operation else None
        now, takes = self._s.clock(), timedelta(seconds=self._s.operations.change_s)
        operation.due = now + takes, failed
        self._s.operations.tick(now)
        return operation.as_json()

    def _by_zone(self, rows: list[Json], key: str, request: Request) -> Json:
        """An aggregated list, with Google's warnings for empty and for unreachable zones."""
        out = self._s.gaps.of(key, is_new="pageToken" not in request.query)
        kept = chosen(rows, request.query.get("filter", ""))
        kept, following = page([r for r in kept if _zone_name(r) not in out], request.query)
        items: dict[str, Json] = {
            f"zones/{zone}": _unreachable(zone) if zone in out else _scope(zone, kept, key, "zone")
            for zone in ZONES
        }
        body: Json = {"kind": "compute#aggregatedList", "id": "lab", "items": items}
        if out:
            body["unreachables"] = [f"projects/lab/zones/{zone}" for zone in sorted(out)]
            body["warning"] = _unreachable(min(out))["warning"]
        return body | ({"nextPageToken": following} if following else {})


def _zone_name(row: Json) -> str:
    return str(row["zone"]).rpartition("/")[2]


def _scope(place: str, rows: list[Json], key: str, field: str) -> Json:
    found = [row for row in rows if str(row[field]).rpartition("/")[2] == place]
    if found:
        return {key: found}
    message = f"There are no results for scope '{field}s/{place}' on this page."
    return {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": message}}


def _unreachable(zone: str) -> Json:
    data = [{"key": "scope", "value": f"zones/{zone}"}]
    message = f"The zone '{zone}' is unreachable."
    return {"warning": {"code": "UNREACHABLE", "message": message, "data": data}}


def _listed(rows: list[Json], request: Request) -> Json:
    kept, following = page(chosen(rows, request.query.get("filter", "")), request.query)
    body: dict[str, Any] = {"kind": "compute#list", "id": "lab", "items": kept}
    return body | ({"nextPageToken": following} if following else {})


def _zone(zone: str) -> Json:
    return {"kind": "compute#zone", "name": zone, "status": "UP", "id": "79",
            "region": f"{_ROOT}/regions/{region_of(zone)}"}  # fmt: skip


def _machine_types(zone: str) -> list[Json]:
    return [_machine_type(kind, zone) for kind in MACHINE_TYPES.values() if zone in kind.zones]


def _machine_type(kind: MachineType, zone: str) -> Json:
    body: Json = {
        "kind": "compute#machineType", "name": kind.name, "zone": zone,
        "guestCpus": kind.cpus, "memoryMb": kind.memory_mb, "architecture": "X86_64",
        "selfLink": f"{_ROOT}/zones/{zone}/machineTypes/{kind.name}",
    }  # fmt: skip
    if kind.accelerators:
        with_it = {"guestAcceleratorType": kind.accelerator,
                   "guestAcceleratorCount": kind.accelerators}  # fmt: skip
        body["accelerators"] = [with_it]
    return body


def _accelerator_types(zone: str) -> list[Json]:
    kinds = [kind for kind in MACHINE_TYPES.values() if kind.accelerator and zone in kind.zones]
    return [
        {"kind": "compute#acceleratorType", "name": name, "zone": f"{_ROOT}/zones/{zone}",
         "description": name, "maximumCardsPerInstance": 8}
        for name in sorted({kind.accelerator for kind in kinds})
    ]  # fmt: skip
