"""Keep the raw files of an attempt: what the machine packed, and the evidence as it came."""

from __future__ import annotations

from orchestrator.application.ports.archives import UnpackBundle
from orchestrator.application.ports.blobs import Blobs
from orchestrator.application.ports.workspaces import Workspace
from orchestrator.store.cell_results import Artifact
from orchestrator.store.stores import Stores

RAW_EVENTS = "events.jsonl"


def collect_artifacts(
    workspace: Workspace, unpack: UnpackBundle, stores: Stores, blobs: Blobs, attempt_id: str
) -> None:
    """Fetch the attempt's bundle and store each file by digest.

    Raises MachineError or BundleError; files stored until then stay.
    """
    cell_id = stores.cells.attempt(attempt_id).cell_id
    kept = []
    bundle = workspace.bundle(attempt_id)
    for name, chunks in unpack([bundle] if bundle else []):
        digest, size = blobs.put(chunks)
        kept.append(Artifact(name, digest, size))
    stores.results.put_artifacts(cell_id, kept)


def keep_raw_evidence(stores: Stores, blobs: Blobs, attempt_id: str) -> None:
    """Store the attempt's events, byte for byte as they came, beside the other files."""
    attempt = stores.cells.attempt(attempt_id)
    digest, size = blobs.put(stores.evidence.raw_events(attempt_id))
    name = RAW_EVENTS if attempt.number == 1 else f"attempt-{attempt.number}.{RAW_EVENTS}"
    if size:
        stores.results.put_artifacts(attempt.cell_id, [Artifact(name, digest, size)])
