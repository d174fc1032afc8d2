"""Reads the metrics of a job's output and files with the readers of ingestion."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters.result_parsers.metric_json import json_lines
from orchestrator.adapters.result_parsers.metric_lines import MetricLines
from orchestrator.application.ports.result_parsers import (
    HEAD_BYTES,
    TAIL_BYTES,
    Artifact,
    Dialects,
    UnreadableError,
)
from orchestrator.domain.manifest import OUTPUT
from orchestrator.domain.parsed_results import ParsedMetric, ParsedProblem, Said

_LIMIT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """Implements `ReadMetrics`."""

    dialects: Dialects

    def __call__(
        self, name: str, chunks: Iterable[bytes]
    ) -> tuple[tuple[ParsedMetric, ...], tuple[str, ...]]:
        """See the port."""
        with tempfile.TemporaryDirectory(prefix="seatrial-metrics-") as folder:
            artifact, is_cut = _written(Path(folder) / "file", name, chunks)
            metrics: list[ParsedMetric] = []
            problems: list[str] = []
            if is_cut:
                problems.append(f"only its first {_LIMIT_BYTES // 2**20} MiB were read")
            try:
                for said in self._said(artifact):
                    if isinstance(said, ParsedMetric):
                        metrics.append(said)
                    elif isinstance(said, ParsedProblem) and name != OUTPUT:
                        problems.append(said.message)
            except UnreadableError as error:
                problems.append(str(error))
        if not metrics:
            problems.append("it holds no figure that can be read")
        return tuple(metrics), tuple(problems)

    def _said(self, artifact: Artifact) -> Iterator[Said]:
        """Read a job's output by lines, whatever program printed it."""
        if artifact.name == OUTPUT:
            yield from json_lines(artifact)
            yield from MetricLines().read(artifact)
            return
        found = self.dialects.best(artifact)
        if found is not None:
            yield from found[0].read(artifact)


def _written(path: Path, name: str, chunks: Iterable[bytes]) -> tuple[Artifact, bool]:
    """Return the stored file, at most `_LIMIT_BYTES` of it, and whether there was more."""
    is_cut = False
    with path.open("wb") as file:
        for chunk in chunks:
            room = _LIMIT_BYTES - file.tell()
            file.write(chunk[:room])
            is_cut = len(chunk) > room
            if is_cut:
                break
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        file.seek(max(path.stat().st_size - TAIL_BYTES, 0))
        return Artifact(name, path, path.stat().st_size, head, file.read(TAIL_BYTES)), is_cut
