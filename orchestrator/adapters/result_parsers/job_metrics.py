"""Reads the metrics of a job's output and files with the readers of ingestion."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.adapters.result_parsers.metric_dialects import figure_lines, json_lines
from orchestrator.application.ports.result_parsers import (
    HEAD_BYTES,
    TAIL_BYTES,
    Artifact,
    Dialects,
    UnreadableError,
)
from orchestrator.domain.manifest import OUTPUT
from orchestrator.domain.parsed_results import ParsedItem, ParsedMetric, ParsedProblem

logger = logging.getLogger(__name__)

_LIMIT_BYTES = 64 * 1024 * 1024
"""Maximum bytes that are read from a file; the agent collects no larger file."""
_LINES = 2_000_000
_METRICS = 50_000
"""Maximum number of metrics of a file: as many lines as the agent takes from a job."""
_SAMPLES = 1_000_000
_PROBLEMS = 100
_PRINTED = '; print lines such as "latency: 8.1 ms" (docs/extending/job.md)'
_WRITTEN = '; write [{"name": "latency", "value": 8.1, "unit": "ms"}] (docs/extending/job.md)'


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """Reads the figures that a job printed or wrote to a file (`ReadMetrics`)."""

    dialects: Dialects

    def __call__(
        self, name: str, chunks: Iterable[bytes]
    ) -> tuple[tuple[ParsedMetric, ...], tuple[str, ...]]:
        """Return the metrics of a file, and its problems as sentences for a person."""
        with tempfile.TemporaryDirectory(prefix="seatrial-metrics-") as folder:
            artifact, cut = _written(Path(folder) / "file", name, chunks)
            found = _Found([], [cut] if cut else [], one_unit=name != OUTPUT)
            try:
                found.take(self._statements(artifact))
            except UnreadableError as error:
                found.problems.append(str(error))
            except Exception as error:
                logger.exception("the metrics in %s cannot be read", name)
                what = f"{type(error).__name__}: {error}"[:200]
                found.problems.append(f"its reader failed on it ({what})")
        if not found.metrics:
            example = "" if found.problems else _PRINTED if name == OUTPUT else _WRITTEN
            found.problems.append(f"it holds no figure that can be read{example}")
        return tuple(found.metrics), tuple(found.problems)

    def _statements(self, artifact: Artifact) -> Iterator[ParsedItem]:
        """Yield the metrics of the job's output, or of a file by its best dialect."""
        if artifact.name == OUTPUT:
            yield from json_lines(artifact)
            yield from figure_lines(artifact)
            return
        best = self.dialects.best(artifact)
        if best is not None:
            yield from best[0].read(artifact)


@dataclass(slots=True)
class _Found:
    """The metrics and problems of one file, within their limits."""

    metrics: list[ParsedMetric]
    problems: list[str]
    one_unit: bool
    """Whether a metric with two units is refused; a printed time may change its unit."""
    samples: int = 0
    units: dict[str, str] = field(default_factory=dict)
    """Unit of each metric by its name and parameters."""

    def take(self, statements: Iterable[ParsedItem]) -> None:
        """Store metrics and problems until a limit is reached."""
        for said in statements:
            if isinstance(said, ParsedMetric):
                full = self._add(said)
            else:
                full = self._note(said.message) if isinstance(said, ParsedProblem) else ""
            if full:
                self.problems.append(f"more than {full}: the rest of it is not read")
                return

    def _add(self, metric: ParsedMetric) -> str:
        if metric.refusal:
            return self._note(f"the metric {metric.name[:80]!r} is left out: {metric.refusal}")
        params = sorted(metric.params.items())
        unit = self.units.setdefault(repr((metric.name, params)), metric.unit)
        if self.one_unit and unit != metric.unit:
            both = f"{unit!r} and in {metric.unit!r}: name them differently"
            return self._note(f"the metric {metric.name[:80]!r} is in {both}")
        if len(self.metrics) == _METRICS:
            return f"{_METRICS:,} metrics"
        self.samples += len(metric.samples)
        if self.samples > _SAMPLES:
            return f"{_SAMPLES:,} samples"
        self.metrics.append(metric)
        return ""

    def _note(self, problem: str) -> str:
        if len(self.problems) == _PROBLEMS:
            return f"{_PROBLEMS} problems"
        self.problems.append(problem)
        return ""


def _written(path: Path, name: str, chunks: Iterable[bytes]) -> tuple[Artifact, str]:
    """Write the file up to its limits; return it, and a sentence about a cut-off rest, or empty."""
    lines, cut = 0, ""
    with path.open("wb") as file:
        for chunk in chunks:
            lines += chunk.count(b"\n") + chunk.count(b"\r")
            room = _LIMIT_BYTES - file.tell() if lines <= _LINES else 0
            file.write(chunk[:room])
            if len(chunk) > room:
                most = f"{_LINES:,} lines" if lines > _LINES else f"{_LIMIT_BYTES // 2**20} MiB"
                cut = f"only its first {most} were read"
                break
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        file.seek(max(path.stat().st_size - TAIL_BYTES, 0))
        return Artifact(name, path, path.stat().st_size, head, file.read(TAIL_BYTES)), cut
