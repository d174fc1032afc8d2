"""The provider ``acme``: servers of a small cloud with a REST interface."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx

from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    CredentialsError,
    Extent,
    LaunchRequest,
    Machine,
    MachineState,
    NotOfferedError,
    Place,
    ProviderError,
    ProviderTraits,
    ProviderUnavailableError,
    QuotaError,
    SshAddress,
)
from orchestrator.domain.matrix import Platform
from runners import first_boot
from runners.provider_context import ProviderContext

TRAITS = ProviderTraits(
    name="acme",
    keys=frozenset({"instance_type", "locations"}),
    required=frozenset({"instance_type", "locations"}),
)
Json = dict[str, Any]
HOST = "api.acme.example"
USER = "ubuntu"
MEMORY = timedelta(minutes=10)  # places are asked for at every look; the cloud hears few of them
FACTS = {"instance_id": "id", "instance_type": "type", "zone": "zone", "image_id": "image"}
KINDS = {"servers": "machine", "volumes": "disk"}

# What to do next, for each refusal that the cloud documents:
REFUSALS: Mapping[str, tuple[type[ProviderError], Extent]] = {
    "no_capacity": (CapacityError, Extent.PLACE),
    "zone_drained": (CapacityError, Extent.ZONE),
    "region_limit": (QuotaError, Extent.REGION),
    "account_limit": (QuotaError, Extent.PROJECT),
    "no_such_type": (NotOfferedError, Extent.PLACE),
    "slow_down": (ProviderUnavailableError, Extent.PROJECT),
    "not_signed_in": (CredentialsError, Extent.PROJECT),
}
STATES: Mapping[str, MachineState] = {
    "queued": MachineState.REQUESTED,  # the cloud may still say no
    "starting": MachineState.BOOTING,
    "running": MachineState.READY,
    "deleting": MachineState.STOPPING,
    "refused": MachineState.TERMINATED,
    "deleted": MachineState.TERMINATED,
}
ENDS = {"no_capacity": "capacity", "region_limit": "quota", "account_limit": "quota"}


class AcmeProvider:
    """Rents servers from Acme; ``ACME_URL`` and ``ACME_TOKEN`` say where and as whom."""

    def __init__(self, context: ProviderContext) -> None:
        self._context = context
        url = os.environ.get("ACME_URL", f"https://{HOST}/v1")
        self._token = os.environ.get("ACME_TOKEN", "")
        # Short, since a look has to return; and no retries: the flow repeats, with the token.
        self._http = httpx.Client(base_url=url, timeout=httpx.Timeout(20, connect=5))
        self._simulated = self._http.base_url.host != HOST
        self._sold: dict[str, tuple[datetime, list[Json]]] = {}

    def is_configured(self) -> bool:
        """Whether the janitor has anything to ask here; known without the network."""
        return bool(self._token)

    def places(self, platform: Platform) -> tuple[Place, ...]:
        """The zones of the locations, in the matrix's order. Raises ProviderError."""
        kind, wanted = platform.instance_type, platform.locations
        if not isinstance(kind, str):
            raise ConfigError("instance_type: name one")
        if not isinstance(wanted, tuple):
            raise ConfigError("locations: name at least one zone or region of acme's")
        sold = self._zones_of(kind)
        fit = [z for name in wanted for z in sold if name in (z["zone"], z["region"])]
        return tuple(
            Place(
                name=f"{zone['zone']}/{kind}",
                price_usd_per_hour=Decimal(zone["usd_per_hour"]),
                disk_usd_per_hour=Decimal(zone["disk_usd_per_hour"]),
                minimum_s=60,
                priced="acme's price list, as of today",
                region=zone["region"],
                zone=zone["zone"],
                market="on-demand",
                instance_type=kind,
            )
            for zone in {zone["zone"]: zone for zone in fit}.values()  # each once
        )

    def launch(self, request: LaunchRequest) -> Machine:
        """Ask for a server; the same token answers with the same one. Raises ProviderError."""
        place, login, ends = request.place, request.login, request.expires_at
        if login is None or ends is None:
            raise ConfigError("a rented machine needs keys and an end")
        order = {
            "type": place.instance_type,
            "zone": place.zone,
            "tags": dict(request.tags),  # the token is among them: `inventory` finds it by that
            "delete_at": ends.isoformat(),  # the cloud's own kill switch
            # Who may enter, the host key that answers, and the guest's timer, for cloud-init.
            "user_data": first_boot.cloud_config(
                login, user=USER, expires_at=ends, templates=self._context.templates
            ),
        }
        made = self._ask("POST", "servers", order, key=request.token)
        return self._machine(made, "servers")

    def inspect(self, machine_id: str) -> Machine:
        """Return its present state; TERMINATED if Acme does not know it. Raises ProviderError."""
        gone = Machine(id=machine_id, token="", state=MachineState.TERMINATED)
        kind = machine_id.partition("/")[0]
        found = self._ask("GET", machine_id) if kind in KINDS else {}
        return self._machine(found, kind) if found else gone

    def terminate(self, machine_id: str) -> None:
        """Begin to delete it; gone already is no error. Raises ProviderError."""
        if machine_id.partition("/")[0] in KINDS:
            self._ask("DELETE", machine_id)

    def inventory(self) -> Iterable[Machine]:
        """Every server and volume with our tag. Raises ProviderError rather than forget one."""
        project = self._context.settings.get("project", "seatrial")
        for kind in KINDS:
            for one in self._pages(kind, f"seatrial-project:{project}"):
                machine = self._machine(one, kind)
                if machine.state is not MachineState.TERMINATED:
                    yield machine

    def _zones_of(self, kind: str) -> list[Json]:
        now = self._context.now()
        asked_at, zones = self._sold.get(kind, (now, []))
        if not zones or now - asked_at > MEMORY:
            zones = self._ask("GET", f"types/{kind}")["zones"]
            self._sold[kind] = (now, zones)
        return zones

    def _pages(self, kind: str, tag: str) -> Iterator[Json]:
        after: str | None = ""
        while after is not None:
            page = self._ask("GET", kind, {"tag": tag, "after": after})
            yield from page["items"]
            after = page["next"]

    def _machine(self, found: Json, kind: str) -> Machine:
        state = STATES.get(found["status"], MachineState.BOOTING)
        refusal = found.get("refusal", "")
        ready = state is MachineState.READY and kind == "servers"
        return Machine(
            id=f"{kind}/{found['id']}",
            token=found["tags"].get("seatrial-token", ""),
            state=state,
            # The injected host key holds; a cloud that publishes one gives it as `host_key`.
            endpoint=SshAddress(found["address"], USER) if ready else None,
            detail=f"{found['status']} {refusal}".strip(),
            ended=ENDS.get(refusal, "failed") if refusal else "",
            kind=KINDS[kind],
            tags=found["tags"],
            facts={fact: found[key] for fact, key in FACTS.items() if key in found},
            simulated=self._simulated,
        )

    def _ask(self, method: str, path: str, sent: Json | None = None, *, key: str = "") -> Json:
        asked = f"{method} {self._http.base_url}{path}"
        headers = {"Authorization": f"Bearer {self._token}", "Idempotency-Key": key}
        query, body = (sent, None) if method == "GET" else (None, sent)
        try:
            answer = self._http.request(method, path, headers=headers, params=query, json=body)
            said: Json = answer.json() if answer.content else {}
        except (httpx.HTTPError, ValueError) as error:
            raise ProviderUnavailableError(f"{asked}, which may have worked: {error}") from error
        if said.get("code") == "not_found":
            return {}
        if answer.is_error:
            raise _refusal(answer.status_code, said, asked)
        return said


def _refusal(status: int, said: Json, asked: str) -> ProviderError:
    code, words = str(said.get("code", "")), said.get("message", "")
    # What is not in the table: the cloud's fault is worth repeating, ours is not.
    other = ProviderUnavailableError if status >= httpx.codes.INTERNAL_SERVER_ERROR else ConfigError
    kind, extent = REFUSALS.get(code, (other, Extent.PLACE))
    return kind(f"{asked} was refused: {code or status}: {words}", code=code, extent=extent)
