"""The provider's verbs; importing this module imports Google's libraries."""

from __future__ import annotations

from collections.abc import Iterable

from google.cloud import tpu_v2

from orchestrator.domain.machine import (
    ConfigError,
    CredentialsError,
    LaunchRequest,
    Machine,
    Place,
    ProviderError,
    ProviderUnavailableError,
    whole_inventory,
)
from orchestrator.domain.matrix import Platform
from orchestrator.domain.prices import Price
from orchestrator.domain.quota import Demand, Quota, QuotaLevel
from runners.google.account import GoogleAccount
from runners.google.clients import COMPUTE, TPU, Clients, may_ask
from runners.google.firewall import Firewall, is_rule, required_ingress
from runners.provider_context import ProviderContext, after_checks
from runners.tpu.client import WRITE_TIMEOUT_S, TpuApi
from runners.tpu.launch import TpuLauncher
from runners.tpu.names import NODES, Handle, network_tag, parse
from runners.tpu.places import TpuPlaceFinder, TpuPriceReader, known
from runners.tpu.platform_config import parse_platform
from runners.tpu.quotas import TpuQuotaReader
from runners.tpu.status import TpuStatusReader

_Queue = tpu_v2.QueuedResourceState.State


class Deleter:
    """Deletes machines."""

    def __init__(self, tpu_api: TpuApi, status: TpuStatusReader) -> None:
        self._tpu_api = tpu_api
        self._status = status

    def terminate(self, machine_id: str) -> None:
        """Start to delete it; idempotent.

        Raises:
            ProviderError: The deletion could not be started.
        """
        handle = parse(machine_id)
        if handle is None:
            return
        if handle.collection == NODES:
            self._delete_node(handle)
        elif not self._delete_queued(handle):
            # Its node may have outlived it.
            self._delete_node(handle.beside(NODES))

    def _delete_queued(self, handle: Handle) -> bool:
        """Delete a queued resource and its node by force. Return False if it is missing."""
        # No request id: the API would answer a repetition with the first call's failure.
        request = tpu_v2.DeleteQueuedResourceRequest(
            name=handle.path(self._tpu_api.project), force=True
        )
        try:
            self._tpu_api.once(
                f"delete {handle.machine_id}",
                lambda client: client.delete_queued_resource(request, timeout=WRITE_TIMEOUT_S),
            )
        except ProviderError as error:
            if error.code == "NOT_FOUND":
                return False
            self._refuse(error, ended=self._is_queue_ending(handle, error))
        return True

    def _delete_node(self, handle: Handle) -> None:
        request = tpu_v2.DeleteNodeRequest(name=handle.path(self._tpu_api.project))
        try:
            self._tpu_api.once(
                f"delete {handle.machine_id}",
                lambda client: client.delete_node(request, timeout=WRITE_TIMEOUT_S),
            )
        except ProviderError as error:
            if error.code != "NOT_FOUND":
                self._refuse(error, ended=self._is_node_ending(handle, error))

    def _refuse(self, error: ProviderError, *, ended: bool) -> None:
        """Raise the error unless `ended`; FAILED_PRECONDITION becomes ProviderUnavailableError."""
        if ended:
            return
        if error.code == "FAILED_PRECONDITION":
            raise ProviderUnavailableError(str(error), code=error.code) from error
        raise error

    def _is_queue_ending(self, handle: Handle, error: ProviderError) -> bool:
        if error.code != "FAILED_PRECONDITION":
            return False
        queued = self._status.queued(handle)
        return queued is None or queued.state.state == _Queue.DELETING

    def _is_node_ending(self, handle: Handle, error: ProviderError) -> bool:
        if error.code != "FAILED_PRECONDITION":
            return False
        node = self._status.node(handle)
        return node is None or node.state == tpu_v2.Node.State.DELETING


class TpuProvider:
    """Rents Cloud TPU virtual machines with one host.

    The API has no expiry for a TPU: the guest's timer stops the work, not the bill. The janitor
    therefore terminates a machine that was not released.
    """

    def __init__(self, context: ProviderContext) -> None:
        settings = context.settings
        self._context = context
        account = GoogleAccount(settings, api=TPU)
        self._tpu_api = TpuApi(account, endpoint=settings.get(TPU, ""))
        self._clients = Clients(settings, account)
        project = settings.get("project") or "seatrial"
        self._status = TpuStatusReader(self._tpu_api, project=project, now=context.now)
        # An emulated TPU without an emulated Compute beside it has no network to guard.
        self._firewall = (
            Firewall(self._clients, provider="tpu", project=project, tag=network_tag(project))
            if may_ask(settings, COMPUTE)
            else None
        )
        self._launcher = TpuLauncher(
            self._tpu_api,
            self._status,
            self._firewall,
            settings=settings,
            templates=context.templates,
        )
        self._deleter = Deleter(self._tpu_api, self._status)
        self._finder = TpuPlaceFinder(self._tpu_api, prices=context.prices, now=context.now)
        self._quotas = TpuQuotaReader(self._tpu_api, self._status, self._clients, now=context.now)
        self._catalogue = TpuPriceReader(self._clients, now=context.now)

    def is_configured(self) -> bool:
        """Return whether a Google Cloud project to rent in is set."""
        return bool(self._context.settings.get("gcp_project"))

    def places(self, platform: Platform) -> tuple[Place, ...]:
        """Return zones x markets to try, in the matrix's order.

        Raises:
            ConfigError: The platform is impossible, or no network may connect to its machines.
            NotOfferedError: No zone offers the type.
            CredentialsError: Nobody is signed in.
        """
        is_public = parse_platform(platform).public
        ways = [lambda: required_ingress(self._context.settings)] if is_public else []
        return after_checks(lambda: self._offered(platform), *ways)

    def _offered(self, platform: Platform) -> tuple[Place, ...]:
        self._clients.require_account()
        return self._finder.places(platform)

    def listed_places(self, platform: Platform) -> tuple[Place, ...]:
        """Return places at known prices; Google is not asked. Raises ProviderError."""
        return self._finder.listed(platform)

    def launch(self, request: LaunchRequest) -> Machine:
        """Request a TPU; the same token returns the same one. Raises ProviderError."""
        return self._launcher.launch(request)

    def inspect(self, machine_id: str) -> Machine:
        """Return a TPU or firewall rule; TERMINATED if it is missing. Raises ProviderError."""
        if self._firewall is not None and is_rule(machine_id):
            return self._firewall.inspect(machine_id)
        return self._status.inspect(machine_id)

    def terminate(self, machine_id: str) -> None:
        """Begin to delete a TPU or firewall rule; idempotent. Raises ProviderError."""
        if self._firewall is not None and is_rule(machine_id):
            self._firewall.terminate(machine_id)
        else:
            self._deleter.terminate(machine_id)

    def inventory(self) -> Iterable[Machine]:
        """Return the project's TPUs and firewall rules. Raises ProviderError."""
        found, gaps = self._status.inventory()
        return whole_inventory((*found, *self._rules()), gaps)

    def read_prices(self) -> Iterable[Price]:
        """Return the current prices of Cloud TPU. Raises ProviderError."""
        return self._catalogue.read()

    def known_prices(self) -> Iterable[Price]:
        """Return the shipped prices, updated with refreshed ones."""
        return known(self._context.prices)

    def demands(self, platform: Platform, place: Place) -> tuple[Demand, ...]:
        """Return the demands of a machine at this place for each quota. Raises ConfigError."""
        return self._quotas.demands(platform, place)

    def level(self, quota: Quota) -> QuotaLevel:
        """Return a quota's limit and use; an unreadable value is unknown, with the reason."""
        return self._quotas.level(quota)

    def close(self) -> None:
        """Drop every connection."""
        self._tpu_api.close()
        self._clients.close()

    def _rules(self) -> tuple[Machine, ...]:
        if self._firewall is None:
            return ()
        try:
            return self._firewall.inventory()
        except (ConfigError, CredentialsError):
            if self._context.settings.get("ingress_cidr"):
                raise
            # Without an ingress network there are no rules, and the permission to read them may be
            # missing: TPUs have no expiry, so they must be swept nevertheless.
            return ()
