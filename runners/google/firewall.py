"""Firewall rules of Seatrial's machines: one network may reach the SSH port.

The network `default` has rules that admit all addresses. Seatrial's rules have precedence: one
admits the configured network, the other denies all others. Rules have no labels; their description
names the owner.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256

from google.cloud import compute_v1

from orchestrator.domain.machine import (
    ConfigError,
    Extent,
    Machine,
    MachineState,
    ProviderUnavailableError,
)
from runners.google.clients import Clients
from runners.google.responses import (
    READ_TIMEOUT_S,
    WRITE_TIMEOUT_S,
    AlreadyThereError,
    NotThereError,
    create,
    delete,
    is_done,
    is_there,
    listed,
    of_missing,
    of_operation,
    read,
)

KIND = "firewall"
"""The kind, as in `Machine.kind`."""
NETWORK = "global/networks/default"
TUNNEL_RANGE = "35.235.240.0/20"
"""Addresses of the Identity-Aware Proxy: cloud.google.com/iap/docs/using-tcp-forwarding."""
_IDS = "global/firewalls/"
_SSH = "22"
_ALLOW, _DENY = 900, 901
"""Priorities of the two rules: they precede 65534, the priority of a network's own rules."""
_NAME_LIMIT = 58
"""Maximum length of a name, so that ``-deny`` fits into the 63 characters."""


class Firewall:
    """The firewall rules for the machines of one provider and project.

    No two providers share a rule: each deletes its own when its last machine is gone.
    """

    def __init__(self, clients: Clients, *, provider: str, project: str, tag: str) -> None:
        """Store the settings; no rule is created yet.

        Args:
            clients: The clients of the cloud project.
            provider: The provider that owns the rules.
            project: The controllers' project name.
            tag: The network tag of Seatrial's machines only.
        """
        self._clients = clients
        self._provider = provider
        self._project = project
        self._tag = tag

    def ensure(self, cidr: str) -> None:
        """Create the two rules if they are missing, and wait until they are made.

        Args:
            cidr: The network that may connect, from `required_ingress`.

        Raises:
            ProviderError: A rule could not be created.
        """
        for rule in self._rules(cidr):
            self._ensure(rule)

    def inventory(self) -> tuple[Machine, ...]:
        """Return Seatrial's rules. Raises ProviderError."""
        request = compute_v1.ListFirewallsRequest(project=self._clients.project)
        found = listed(
            "listing our firewall rules",
            lambda: list(self._clients.firewalls.list(request, retry=None, timeout=READ_TIMEOUT_S)),
        )
        return tuple(self._listed(rule) for rule in found if self._is_ours(rule))

    def inspect(self, machine_id: str) -> Machine:
        """Return a rule's state. Raises ProviderError."""
        name = machine_id.rpartition("/")[2]
        is_left = is_there(
            f"looking at {machine_id}",
            lambda: self._clients.firewalls.get(
                project=self._clients.project, firewall=name, retry=None, timeout=READ_TIMEOUT_S
            ),
        )
        return Machine(
            id=machine_id,
            token="",
            state=MachineState.READY if is_left else MachineState.TERMINATED,
            kind=KIND,
            simulated=self._clients.is_simulated,
        )

    def terminate(self, machine_id: str) -> None:
        """Start to delete a rule; idempotent. Raises ProviderError."""
        name = machine_id.rpartition("/")[2]
        delete(
            f"deleting {machine_id}",
            lambda: self._clients.firewalls.delete_unary(
                project=self._clients.project, firewall=name, retry=None, timeout=WRITE_TIMEOUT_S
            ),
        )

    def _rules(self, cidr: str) -> tuple[compute_v1.Firewall, ...]:
        name = rule_name(self._tag, cidr)
        said = {
            "seatrial-project": self._project,
            "seatrial-provider": self._provider,
            "seatrial-shared": "true",
        }
        common = {
            "description": json.dumps(said),
            "network": NETWORK,
            "direction": "INGRESS",
            "target_tags": [self._tag],
        }
        everybody = ["0.0.0.0/0"]
        shut = compute_v1.Denied(I_p_protocol="all")
        opened = compute_v1.Allowed(I_p_protocol="tcp", ports=[_SSH])
        # The denying rule comes first: the default rules are never in effect alone.
        return (
            compute_v1.Firewall(
                common, name=f"{name}-deny", priority=_DENY, source_ranges=everybody, denied=[shut]
            ),
            compute_v1.Firewall(
                common, name=name, priority=_ALLOW, source_ranges=[cidr], allowed=[opened]
            ),
        )

    def _ensure(self, rule: compute_v1.Firewall) -> None:
        what, firewalls = f"firewall rule {rule.name}", self._clients.firewalls
        project = self._clients.project
        if is_there(
            f"looking for {what}",
            lambda: firewalls.get(
                project=project, firewall=rule.name, retry=None, timeout=READ_TIMEOUT_S
            ),
        ):
            return
        try:
            operation = create(
                f"making {what}",
                lambda: firewalls.insert_unary(
                    project=project, firewall_resource=rule, retry=None, timeout=READ_TIMEOUT_S
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
        refused = of_operation(f"making {what}", self._ended(f"making {what}", operation))
        if refused is not None:
            raise refused

    def _ended(self, what: str, operation: compute_v1.Operation) -> compute_v1.Operation:
        """Wait for the end of an operation and return it: Google answers before a rule is made."""
        if is_done(operation):
            return operation
        try:
            seen = read(
                what,
                lambda: self._clients.global_operations.wait(
                    project=self._clients.project,
                    operation=operation.name,
                    retry=None,
                    timeout=WRITE_TIMEOUT_S,
                ),
            )
        except NotThereError as error:
            raise of_missing(what, error) from error
        if not is_done(seen):
            raise ProviderUnavailableError(
                f"{what}: operation {operation.name} has not ended yet; repeat it a little later",
                code="RUNNING",
            )
        return seen

    def _is_ours(self, rule: compute_v1.Firewall) -> bool:
        said = _tags(rule.description)
        whose = (said.get("seatrial-project"), said.get("seatrial-provider"))
        return whose == (self._project, self._provider)

    def _listed(self, rule: compute_v1.Firewall) -> Machine:
        return Machine(
            id=f"{_IDS}{rule.name}",
            token="",
            state=MachineState.READY,
            kind=KIND,
            tags=_tags(rule.description),
            simulated=self._clients.is_simulated,
        )


def required_ingress(settings: Mapping[str, str]) -> str:
    """Return the network that may reach public machines. Raises ConfigError if it is not set."""
    cidr = settings.get("ingress_cidr")
    if not cidr:
        raise ConfigError(
            "SEATRIAL_INGRESS_CIDR is not set, and says who may reach the SSH port of machines "
            "with a public address: set it to your own address (203.0.113.7/32), or write "
            "`connect: private`",
            extent=Extent.PROJECT,
        )
    return cidr


def is_rule(machine_id: str) -> bool:
    """Return whether an id is that of a firewall rule: ``global/firewalls/name``."""
    return machine_id.startswith(_IDS)


def rule_name(tag: str, cidr: str) -> str:
    """Return the name of the rule that admits one network; other networks have other names."""
    plain = f"{tag}-{sha256(cidr.encode()).hexdigest()[:8]}"
    if len(plain) <= _NAME_LIMIT:
        return plain
    digest = sha256(f"{tag} {cidr}".encode()).hexdigest()[:8]
    return f"{tag[: _NAME_LIMIT - 9].rstrip('-')}-{digest}"


def _tags(description: str) -> Mapping[str, str]:
    try:
        said = json.loads(description or "{}")
    except ValueError:
        return {}
    if not isinstance(said, dict):
        return {}
    return {str(key): str(value) for key, value in said.items()}
