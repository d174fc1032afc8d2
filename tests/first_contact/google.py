"""The calls to Google Cloud: 9 to 12 to Compute Engine, 13 to 15 to Cloud TPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

from google.cloud import compute_v1
from google.cloud.cloudquotas_v1 import ListQuotaInfosRequest
from google.protobuf import json_format

from orchestrator.domain.machine import MachineState, ProviderError
from runners.gcp.clients import ComputeClients
from runners.gcp.images import DEFAULT_FAMILIES, DEFAULT_PROJECT
from runners.gcp.instance import ResourceId, parse_id
from runners.google.account import HOST_KEYS, GoogleAccount, host_key_in
from runners.google.responses import NotThereError, read
from runners.google.setup.project import APIS
from runners.google.setup.rest import ENDPOINT, Rest
from runners.tpu.client import TpuApi
from runners.tpu.names import location
from runners.tpu.quotas import SERVICE
from tests.cloud_smoke.clouds import PLATFORMS, settings
from tests.first_contact.calls import PROJECT, Contact, ContactCall, Finding, all_of
from tests.first_contact.rented import launched, looks, renting

ZONE, REGION = "us-central1-a", "us-central1"
TPU_ZONES = ("us-central1-a", "us-west1-c", "us-west4-a")
SMALL: Mapping[str, object] = {
    "provider": "gcp",
    "instance_type": "e2-micro",
    "locations": (ZONE,),
    "market": ("on-demand",),
    "disk_gb": 100,
}
RUN_S, LATE_S, WAIT_S = 120.0, 360.0, 300.0


def _clients() -> ComputeClients:
    return ComputeClients(settings(PROJECT))


def _rest() -> tuple[Rest, str]:
    account = GoogleAccount(settings(PROJECT), api=ENDPOINT)
    return Rest(settings(PROJECT), account), account.project


def _json(message: Any) -> Any:
    return json_format.MessageToDict(type(message).pb(message))


def services(contact: Contact) -> Finding:
    rest, project = _rest()
    missing = []
    for name in APIS:
        answer = rest.get("serviceusage.googleapis.com", f"v1/projects/{project}/services/{name}")
        contact.keep(9, name, answer)
        if answer.get("state") != "ENABLED":
            missing.append(name)
    for family in DEFAULT_FAMILIES:
        try:
            image = read(
                family,
                lambda one=family: _clients().images.get_from_family(
                    project=DEFAULT_PROJECT, family=one
                ),
            )
        except NotThereError as error:
            contact.keep(9, family, str(error))
            missing.append(family)
            continue
        contact.keep(9, family, _json(image))
    return all_of(missing, "the APIs are enabled and the image families exist")


def compute_quotas(contact: Contact) -> Finding:
    clients = _clients()
    project = read("the project", lambda: clients.projects.get(project=clients.project, retry=None))
    region = read(
        REGION,
        lambda: clients.regions.get(project=clients.project, region=REGION, retry=None),
    )
    found = {one.metric: one.limit - one.usage for one in (*project.quotas, *region.quotas)}
    contact.keep(10, "quotas", found)
    wanted = ("NVIDIA_L4_GPUS", "PREEMPTIBLE_NVIDIA_L4_GPUS", "GPUS_ALL_REGIONS")
    return all_of(
        (f"{name} ({found.get(name, 'not listed')})" for name in wanted if found.get(name, 0) < 1),
        f"one L4 fits into the quotas of {REGION}",
    )


def micro(contact: Contact) -> Finding:
    """Watches what the guest publishes, and whether Google ends it in time."""
    clients = _clients()
    keys: list[str] = []
    with renting("gcp", contact, 11) as rents:
        made = launched(rents, SMALL, contact, 11, seconds=RUN_S)
        if made is None:
            return Finding("not shown", "no e2-micro was available")
        request, machine = made
        contact.kept["insert"] = request
        which = parse_id(machine.id)
        assert which
        assert request.login
        assert request.expires_at
        again = dataclasses.replace(request, expires_at=request.expires_at + timedelta(minutes=5))
        for seen in looks(rents, machine, contact, seconds=RUN_S + LATE_S):
            if seen.state is MachineState.TERMINATED:
                break
            if "second insert" not in contact.kept and _is_shown(clients, which):
                contact.kept["second insert"] = _second_insert(contact, rents, again, machine.id)
            key = _published(contact, clients, which.scope, which.name)
            keys += [key] if key and key not in keys[-1:] else []
        else:
            return Finding("refuted", f"it outlived its maxRunDuration by {LATE_S:.0f} s")
        listed = clients.zone_operations.list(
            compute_v1.ListZoneOperationsRequest(project=clients.project, zone=which.scope)
        )
        contact.keep(11, "operations afterwards", [_json(one) for one in listed])
    contact.keep(11, "host keys that were published, in order", keys)
    injected = request.login.host_public_key.split()[1]
    if not keys:
        return Finding("not shown", "Google ended it; no host key was published")
    if keys == [injected]:
        return Finding("confirmed", "Google ended it; only the injected host key was published")
    others = sum(key != injected for key in keys)
    return Finding("refuted", f"Google ended it; {others} host keys of others were published")


def _is_shown(clients: ComputeClients, which: ResourceId) -> bool:
    """Whether Google lists the machine yet; until then an answer cannot be assigned to it."""
    request = compute_v1.GetInstanceRequest(
        project=clients.project, zone=which.scope, instance=which.name
    )
    try:
        read(which.name, lambda: clients.instances.get(request, retry=None))
    except (NotThereError, ProviderError):
        return False
    return True


def _published(contact: Contact, clients: ComputeClients, zone: str, name: str) -> str:
    request = compute_v1.GetGuestAttributesInstanceRequest(
        project=clients.project, zone=zone, instance=name, query_path=HOST_KEYS
    )
    try:
        answer = read(name, lambda: clients.instances.get_guest_attributes(request, retry=None))
    except (NotThereError, ProviderError):
        return ""
    contact.keep(11, "guest attributes", _json(answer))
    return host_key_in((one.key, one.value) for one in answer.query_value.items)


def _second_insert(contact: Contact, rents: Any, again: Any, first: str) -> Finding:
    try:
        second = rents.launch(again)
    except ProviderError as error:
        contact.keep(12, "the same insert, another duration", str(error))
        return Finding("refuted", str(error))
    contact.keep(12, "the same insert, another duration", second)
    if second.id == first:
        return Finding("confirmed", "it is answered with the first machine")
    return Finding("refuted", f"it made another machine, {second.id}")


def repeated(contact: Contact) -> Finding:
    """Told here, asked once the machine of call 11 was shown."""
    found = contact.kept.get("second insert", Finding("not shown", "call 11 saw no machine"))
    assert isinstance(found, Finding)
    return found


def _tpu() -> TpuApi:
    told = settings(PROJECT)
    endpoint = told.get("gcp_tpu_endpoint", "")
    return TpuApi(GoogleAccount(told, api="gcp_tpu_endpoint"), endpoint=endpoint)


def tpu_types(contact: Contact) -> Finding:
    api = _tpu()
    without = []
    for zone in TPU_ZONES:
        parent = location(api.project, zone)
        try:
            found = api.read(
                zone, lambda tpu, where=parent: list(tpu.list_accelerator_types(parent=where))
            )
        except ProviderError as error:
            contact.keep(13, zone, str(error))
            without.append(zone)
            continue
        types = [one.type_ for one in found]
        contact.keep(13, zone, types)
        if "v5litepod-1" not in types:
            without.append(zone)
    _serving_quotas(contact, api.project)
    return all_of(without, "v5litepod-1 is sold in each zone of the smoke")


def _serving_quotas(contact: Contact, project: str) -> None:
    clients = _clients()
    if not clients.has_quotas:
        return
    parent = f"{location(project, 'global')}/services/{SERVICE}"
    listed = clients.quotas.list_quota_infos(ListQuotaInfosRequest(parent=parent))
    infos = [_json(one) for one in listed if "Litepod" in one.quota_id]
    contact.keep(13, "quota infos of v5e", infos)


def tpu_lists(contact: Contact) -> Finding:
    api = _tpu()
    parent = location(api.project, "-")
    nodes = api.read("nodes", lambda tpu: list(tpu.list_nodes(parent=parent).pages))
    queued = api.read(
        "queued resources", lambda tpu: list(tpu.list_queued_resources(parent=parent).pages)
    )
    contact.keep(14, "nodes", [_json(page) for page in nodes])
    contact.keep(14, "queued resources", [_json(page) for page in queued])
    silent = sorted({place for page in (*nodes, *queued) for place in page.unreachable})
    return all_of(silent, "`locations/-` lists every zone")


def tpu_spot(contact: Contact) -> Finding:
    with renting("tpu", contact, 15) as rents:
        try:
            made = launched(rents, PLATFORMS["tpu"], contact, 15, seconds=WAIT_S)
        except ProviderError as error:
            contact.keep(15, "create queued resource", repr(error))
            return Finding("refuted", f"a refusal that does not lead to the next zone: {error}")
        if made is None:
            return Finding("confirmed", "every zone refused, for capacity or quota")
        for seen in looks(rents, made[1], contact, seconds=WAIT_S):
            contact.keep(15, "inspect", seen)
            if seen.state is MachineState.TERMINATED:
                kind = "confirmed" if seen.ended in ("capacity", "quota") else "refuted"
                return Finding(kind, f"refused late: {seen.ended or seen.detail}")
            if seen.state in (MachineState.BOOTING, MachineState.READY):
                return Finding("confirmed", f"granted: {seen.detail or seen.state}")
    return Finding("not shown", f"it waited for {WAIT_S:.0f} s, and was taken back")


CALLS = (
    ContactCall(9, "gcp", "enabled APIs, image families", "all are there", services),
    ContactCall(10, "gcp", "quotas of us-central1", "one L4 fits", compute_quotas),
    ContactCall(
        11,
        "gcp",
        "one e2-micro for two minutes",
        "only the injected host key is published, and Google ends the machine",
        micro,
        Decimal("0.02"),
    ),
    ContactCall(
        12,
        "gcp",
        "the same insert with another duration",
        "the first one holds",
        repeated,
        Decimal("0.01"),
    ),
    ContactCall(13, "tpu", "accelerator types and quotas", "v5litepod-1 is sold there", tpu_types),
    ContactCall(14, "tpu", "nodes and queued resources of `-`", "no zone is silent", tpu_lists),
    ContactCall(
        15,
        "tpu",
        "one spot v5litepod-1, deleted when it is granted",
        "a refusal is one of capacity or quota",
        tpu_spot,
        Decimal("0.05"),
    ),
)
