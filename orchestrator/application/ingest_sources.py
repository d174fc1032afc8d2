"""Files that were handed in, and what their dialects say of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence

from orchestrator.application.ports.dialects import Dialect, Dialects, UnreadableError
from orchestrator.application.ports.ingest_upload import Handed
from orchestrator.domain.assembly.results_pass import ForeignArtifact
from orchestrator.domain.parsed_results import ParsedProblem, Said

NOTES = ("ingest.yaml", "ingest.yml")
_STRANGE = re.compile(r"[^A-Za-z0-9._+-]+")
_REPORTS = re.compile(r"[A-Z-]+\.(md|html|json)|events\.jsonl|plots", re.IGNORECASE)
_LONGEST = 180

logger = logging.getLogger(__name__)


def foreign_files(dialects: Dialects, files: Sequence[Handed]) -> Iterator[ForeignArtifact]:
    """Each file with what the surest dialect says of it; the notes are no artifact."""
    for file in files:
        if file.name.lower() in NOTES:
            continue
        found = _best(dialects, file)
        if found is None:
            yield ForeignArtifact(file.name, file.digest, file.size_bytes, remarks=file.remarks)
            continue
        dialect, confidence = found
        yield ForeignArtifact(
            file.name,
            file.digest,
            file.size_bytes,
            dialect=f"{dialect.name} {dialect.version}",
            provenance=dialect.provenance,
            confidence=min(max(float(confidence), 0.0), 1.0),
            said=_said(dialect, file),
            remarks=file.remarks,
        )


def flat_names(names: Sequence[str]) -> list[str]:
    """A plain file name for each path, different from all others in any case of letters."""
    flat: list[str] = []
    taken: set[str] = set()
    for name in names:
        plain = _STRANGE.sub("-", name.replace("/", "-")).lstrip("-.") or "artifact"
        plain = plain[-_LONGEST:]
        if _REPORTS.fullmatch(plain):
            plain = f"raw-{plain}"
        wanted, number = plain, 1
        while plain.lower() in taken:
            number += 1
            plain = f"{number}-{wanted}"
        taken.add(plain.lower())
        flat.append(plain)
    return flat


def _best(dialects: Dialects, file: Handed) -> tuple[Dialect, float] | None:
    if not file.artifact.size_bytes:
        return None
    try:
        return dialects.best(file.artifact)
    except Exception:
        logger.exception("no dialect could look at %s", file.name)
        return None


def _said(dialect: Dialect, file: Handed) -> Iterator[Said]:
    """What it says; what stops it from being read is said last."""
    try:
        yield from dialect.read(file.artifact)
    except UnreadableError as error:
        yield ParsedProblem("error", f"it cannot be read any further: {error}")
    except Exception as error:
        logger.exception("%s failed on %s", dialect.name, file.name)
        what = f"{type(error).__name__}: {error}"[:200]
        yield ParsedProblem(
            "error", f"the dialect {dialect.name} failed on it ({what}); it is kept"
        )
