"""Who may reach our machines: one network, on the SSH port, and nobody else.

The network `default` comes with rules that let the whole world in. Ours stand before them: one
lets the one network in, the other keeps out everybody else. Rules carry no labels; their
description says whose they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from google.cloud import compute_v1

from orchestrator.domain.machine import ConfigError, Extent, Machine, MachineState
from runners.gcp.clients import Clients
from runners.gcp.instance import NETWORK
from runners.gcp.names import ResourceId, firewall_name, network_tag
from runners.gcp.reading import (
    READ_TIMEOUT_S,
    AlreadyThereError,
    NotThereError,
    create,
    is_done,
    of_operation,
    read,
)

_SSH = "22"
_ALLOW, _DENY = 900, 901
"""Before the 65534 of the rules that come with a network; the lower goes first."""


def ensure_ingress(clients: Clients, *, project: str, cidr: str) -> None:
    """Make the two rules unless they are there. Does not wait until they hold.

    Args:
        clients: Of the cloud's project.
        project: The controllers' project name.
        cidr: Who may connect; empty when it is not set.

    Raises:
        ConfigError: It is not set.
        ProviderError: A rule could not be made.
    """
    if not cidr:
        raise ConfigError(
            "who may reach the machine's SSH port is not said: set SEATRIAL_INGRESS_CIDR to your "
            "own address (203.0.113.7/32), or use `connect: private`",
            extent=Extent.PROJECT,
        )
    name = firewall_name(project, cidr)
    common = {
        "description": json.dumps({"seatrial-project": project, "seatrial-shared": "true"}),
        "network": NETWORK,
        "direction": "INGRESS",
        "target_tags": [network_tag(project)],
    }
    # Keeping out comes first: there is no moment in which the default rules are all there is.
    everybody = ["0.0.0.0/0"]
    shut = compute_v1.Denied(I_p_protocol="all")
    _ensure(
        clients,
        compute_v1.Firewall(
            common, name=f"{name}-deny", priority=_DENY, source_ranges=everybody, denied=[shut]
        ),
    )
    opened = compute_v1.Allowed(I_p_protocol="tcp", ports=[_SSH])
    _ensure(
        clients,
        compute_v1.Firewall(
            common, name=name, priority=_ALLOW, source_ranges=[cidr], allowed=[opened]
        ),
    )


def firewall_machine(rule: compute_v1.Firewall, *, simulated: bool) -> Machine | None:
    """A rule of ours, as the inventory lists it; None for anybody else's."""
    tags = _tags(rule.description)
    if "seatrial-project" not in tags:
        return None
    return Machine(
        id=str(ResourceId("global", "firewalls", rule.name)),
        token="",
        state=MachineState.READY,
        kind="firewall",
        tags=tags,
        simulated=simulated,
    )


def _ensure(clients: Clients, rule: compute_v1.Firewall) -> None:
    what = f"firewall rule {rule.name}"
    try:
        read(
            f"looking for {what}",
            lambda: clients.firewalls.get(
                project=clients.project, firewall=rule.name, retry=None, timeout=READ_TIMEOUT_S
            ),
        )
    except NotThereError:
        pass
    else:
        return
    try:
        operation = create(
            f"making {what}",
            lambda: clients.firewalls.insert_unary(
                project=clients.project,
                firewall_resource=rule,
                retry=None,
                timeout=READ_TIMEOUT_S,
            ),
        )
    except AlreadyThereError:
        return
    except NotThereError as error:
        raise ConfigError(
            f"making {what}: {error}; the project needs a network named `default`",
            code="notFound",
            extent=Extent.PROJECT,
        ) from error
    refused = of_operation(f"making {what}", operation) if is_done(operation) else None
    if refused is not None:
        raise refused


def _tags(description: str) -> Mapping[str, str]:
    try:
        said = json.loads(description or "{}")
    except ValueError:
        return {}
    if not isinstance(said, dict):
        return {}
    return {str(key): str(value) for key, value in said.items()}
