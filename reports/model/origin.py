"""The origin of results: the cell's machine, ingested files, and where else they ran."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.cell import PlacementDecision
from orchestrator.domain.ingested import Disagreement, Source, SourceState
from reports.model.values import Absent

_VERSION = re.compile(r"^v?(?P<version>\d\S*)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Origin:
    """All files that were ingested for one cell."""

    files: int
    """Derived: sources that are listed, and those that are not."""
    kinds: tuple[tuple[str, int], ...]
    """Files by provenance. Derived: their sum is ``files``."""
    sources: tuple[Source, ...]
    hidden: int
    """Files that are not listed; none of them is inconsistent."""
    disputed: tuple[Disagreement, ...]
    disputed_hidden: int
    repeated: int
    """Number of tests that are in more than one file."""
    remarks: tuple[tuple[str, tuple[str, ...]], ...]
    """What the files remark, and which of them do; without those that are inconsistent."""
    stamps: tuple[tuple[str, str], ...]
    """(file, tested version that it names) if that is not the subject of this report."""
    dated_at: datetime
    is_dated: bool
    ingested_at: datetime

    @property
    def inconsistent(self) -> tuple[Source, ...]:
        """Files whose own figures do not agree."""
        return tuple(source for source in self.sources if source.state is SourceState.INCONSISTENT)


@dataclass(frozen=True, slots=True)
class Catalogued:
    """The platform catalogue's accelerator; the actual one was not probed."""

    device: str
    memory_gb: int | Absent
    """The round figure that it is sold by."""
    memory_bytes: int | Absent
    compute_capability: str | Absent
    architecture: str | Absent
    """Derived from the compute capability."""


@dataclass(frozen=True, slots=True)
class JobInOtherCells:
    """A job that other cells of the run have, and this one has not."""

    kind: str
    title: str
    cells: tuple[str, ...]
    """That have it."""


def letters(name: str) -> str:
    """Return the letters and digits of a name, for comparison without spelling."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def bare(version: str) -> str:
    """Return a version without a leading ``v``."""
    match = _VERSION.match(version)
    return match["version"] if match else version


@dataclass(frozen=True, slots=True)
class AttestedDevice:
    """An accelerator as the machine's own tool names it."""

    name: str
    uuid: str | Absent
    compute_capability: str | Absent
    driver: str | Absent


@dataclass(frozen=True, slots=True)
class Attested:
    """The attested facts of provider and machine."""

    facts: tuple[tuple[str, str], ...]
    """The provider's: instance, image, zone, market."""
    devices: tuple[AttestedDevice, ...]
    torch: str | Absent
    mismatch: str
    """How it differs from what the matrix asked for; empty when it does not."""


@dataclass(frozen=True, slots=True)
class CellProvenance:
    """The place and the machine of a cell, and why it ran there."""

    simulated: bool
    """The machine is an emulation: no gate accepts its results."""
    undeclared: str
    """Says how many packages jobs could import that the payload does not name; empty without."""
    attested: Attested | Absent
    decisions: tuple[PlacementDecision, ...]
    decisions_hidden: int
