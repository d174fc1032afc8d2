"""Giving back: a queued resource with its node, a node alone. Both linger until deleted."""

from __future__ import annotations

from google.cloud import tpu_v2

from orchestrator.domain.machine import ProviderError, ProviderUnavailableError
from runners.tpu.client import WRITE_TIMEOUT_S, TpuApi
from runners.tpu.names import NODES, Handle, parse
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
        """Delete it by force, with its node. Return False if it is missing."""
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
        """Raise, unless it is being deleted anyway; a state that forbids it will pass."""
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
