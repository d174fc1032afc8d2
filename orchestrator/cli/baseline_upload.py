"""The file that a matrix's baseline is: found, built or packed, ready to be uploaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.cli.wiring import RefusedError, Wiring
from orchestrator.domain.matrix import Matrix


@dataclass(frozen=True, slots=True)
class BaselineFile:
    """What benchmarks are paired with, where it has a file of its own."""

    shelf: str
    """Of the API: ``payloads`` or ``subjects``."""
    digest: str
    path: Path
    commit: str | None = None
    """What its revision is, where it was built from one."""

    @property
    def place(self) -> str:
        """Where it is uploaded to."""
        return f"/{self.shelf}/{self.digest}"


def find_baseline(
    wiring: Wiring, matrix: Matrix, *, base: Path, scratch: Path
) -> BaselineFile | None:
    """Find it below `base`, or make it in `scratch`; None for a package or without a baseline.

    Raises RefusedError and InvalidDocumentError.
    """
    baseline = matrix.baseline
    if baseline is None:
        return None
    own = scratch / "baseline"
    own.mkdir()
    if baseline.payload is not None:
        folder = base / baseline.payload.path
        if not folder.exists():
            raise RefusedError(f"there is no {folder}")
        packed = wiring.pack(folder, own)
        return BaselineFile("payloads", packed.digest, packed.archive)
    wheel = wiring.subject(baseline.as_subject(matrix.subject.name), base=base, scratch=own)
    return BaselineFile("subjects", wheel.digest, wheel.path, wheel.commit) if wheel else None
