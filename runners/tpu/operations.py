"""Operations: where a create that was accepted and then failed says why.

A failed create of a plain node leaves no node, and nobody here remembers operations. The API
lists them by zone, with what they were about, so the reason is looked up when nothing is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from google.cloud import tpu_v2
from google.longrunning import operations_pb2  # type: ignore[import-untyped]

from runners.tpu.client import READ_TIMEOUT_S, TpuApi, status_answer
from runners.tpu.errors import Answer, classify
from runners.tpu.names import NODES, Handle, location

VISIBLE_AFTER_S = 60.0
PAGES = 5
"""Old operations are forgotten by the API; beyond so many pages nobody looks."""


class Outcome(Enum):
    """Of a create that did not fail."""

    UNKNOWN = "unknown"
    UNDER_WAY = "under way"
    JUST_DONE = "just done"
    """So what it made may not be shown yet."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Failed:
    """A create that was accepted and then failed."""

    ended: str
    detail: str


def outcome_of(tpu_api: TpuApi, handle: Handle, *, now: datetime) -> Outcome | Failed:
    """How the newest create of this id went, unless it was deleted since. Raises ProviderError."""
    # A queue entry's node may have been deleted by itself, after its entry had vanished.
    paths = {handle.path(tpu_api.project), handle.beside(NODES).path(tpu_api.project)}
    found: tuple[float, Outcome | Failed] = (0.0, Outcome.UNKNOWN)
    for operation, metadata in _operations(tpu_api, location(tpu_api.project, handle.zone)):
        if metadata.target not in paths:
            continue
        made = metadata.create_time.timestamp() if metadata.create_time else 0.0
        if made >= found[0]:
            is_create = metadata.verb.lower().startswith("create")
            found = (made, _read(operation) if is_create else Outcome.UNKNOWN)
    made, outcome = found
    is_young = now.timestamp() - made < VISIBLE_AFTER_S
    return Outcome.JUST_DONE if outcome is Outcome.DONE and is_young else outcome


def error_of(operation: operations_pb2.Operation) -> Answer | None:
    """Why it failed; None where it did not, or has not yet."""
    if not operation.HasField("error"):
        return None
    return status_answer(operation.error.code, operation.error.message, operation.error.details)


def _read(operation: operations_pb2.Operation) -> Outcome | Failed:
    answer = error_of(operation)
    if answer is not None:
        words = " ".join(answer.words.split())
        return Failed(classify(answer).ended, f"its creation failed: {answer.code}: {words}")
    return Outcome.DONE if operation.done else Outcome.UNDER_WAY


def _operations(
    tpu_api: TpuApi, parent: str
) -> list[tuple[operations_pb2.Operation, tpu_v2.OperationMetadata]]:
    found: list[tuple[operations_pb2.Operation, tpu_v2.OperationMetadata]] = []
    token = ""
    for _ in range(PAGES):
        request = operations_pb2.ListOperationsRequest(name=parent, page_size=500, page_token=token)

        def listed(
            client: tpu_v2.TpuClient, request: operations_pb2.ListOperationsRequest = request
        ) -> operations_pb2.ListOperationsResponse:
            return client.list_operations(request, timeout=READ_TIMEOUT_S)

        page = tpu_api.read(f"list the operations of {parent}", listed)
        found += [(one, _metadata(one)) for one in page.operations]
        token = page.next_page_token
        if not token:
            break
    return found


def _metadata(operation: operations_pb2.Operation) -> tpu_v2.OperationMetadata:
    read: tpu_v2.OperationMetadata = tpu_v2.OperationMetadata.deserialize(operation.metadata.value)
    return read
