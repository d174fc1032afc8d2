"""Firewall rules and reserved addresses of the lab's Compute Engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.lab.google.front import ApiError, Json
from tests.lab.google.orders import check_labels, check_name

_ROOT = "https://www.googleapis.com/compute/v1/projects/lab"


def _default_rule(name: str, allowed: Json, priority: int = 65_534) -> Json:
    return {
        "kind": "compute#firewall", "name": name, "network": f"{_ROOT}/global/networks/default",
        "sourceRanges": ["0.0.0.0/0"], "allowed": [allowed], "priority": priority,
        "direction": "INGRESS", "description": "Made with the default network", "id": "1",
        "creationTimestamp": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip


def _default_rules() -> dict[str, Json]:
    ssh = {"IPProtocol": "tcp", "ports": ["22"]}
    rules = [_default_rule("default-allow-ssh", ssh)]
    rules.append(_default_rule("default-allow-icmp", {"IPProtocol": "icmp"}))
    return {rule["name"]: rule for rule in rules}


@dataclass(slots=True)
class Network:
    """What the network has; the rules that came with it are not a client's."""

    firewalls: dict[str, Json] = field(default_factory=_default_rules)
    addresses: dict[tuple[str, str], Json] = field(default_factory=dict)
    _made: int = 100

    def refuse_taken(self, body: Json) -> None:
        """Raises ApiError: no name, or taken (409), or a rule that allows and denies nothing."""
        name = str(body.get("name", ""))
        check_name(name)
        if name in self.firewalls:
            what = f"projects/lab/global/firewalls/{name}"
            raise ApiError("alreadyExists", f"The resource '{what}' already exists", 409)
        if bool(body.get("allowed")) == bool(body.get("denied")):
            raise ApiError("invalid", "Invalid value for field 'resource.allowed': one of allowed "
                           "and denied is needed.")  # fmt: skip

    def add_firewall(self, body: Json, made_at: str) -> None:
        """One more rule."""
        self._made += 1
        usual = {"network": f"{_ROOT}/global/networks/default", "direction": "INGRESS",
                 "priority": 1000, "sourceRanges": ["0.0.0.0/0"]}  # fmt: skip
        own = {"kind": "compute#firewall", "id": str(self._made), "creationTimestamp": made_at,
               "selfLink": f"{_ROOT}/global/firewalls/{body['name']}"}  # fmt: skip
        self.firewalls[body["name"]] = usual | body | own

    def firewall(self, name: str) -> Json:
        """The rule, or 404."""
        if name not in self.firewalls:
            what = f"projects/lab/global/firewalls/{name}"
            raise ApiError("notFound", f"The resource '{what}' was not found", 404)
        return self.firewalls[name]

    def made_firewalls(self) -> list[str]:
        """The names of those that clients made."""
        return [name for name, rule in self.firewalls.items() if rule["id"] != "1"]

    def reserve(self, region: str, body: Json, address: str, made_at: str) -> None:
        """A reserved external address."""
        check_name(str(body.get("name", "")))
        check_labels(body.get("labels") or {})
        if (region, body["name"]) in self.addresses:
            what = f"regions/{region}/addresses/{body['name']}"
            raise ApiError("alreadyExists", f"The resource '{what}' already exists", 409)
        self.addresses[region, body["name"]] = body | {
            "kind": "compute#address", "address": address, "status": "RESERVED",
            "region": f"{_ROOT}/regions/{region}", "creationTimestamp": made_at,
            "addressType": "EXTERNAL", "id": str(sum(address.encode())),
        }  # fmt: skip

    def address(self, region: str, name: str) -> Json:
        """The reserved address, or 404."""
        if (region, name) not in self.addresses:
            what = f"regions/{region}/addresses/{name}"
            raise ApiError("notFound", f"The resource '{what}' was not found", 404)
        return self.addresses[region, name]
