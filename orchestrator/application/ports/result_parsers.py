"""Port of the parsers of results: a dialect reads one format of results from an artifact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.domain.parsed_results import ParsedItem, ParsedMetric, Provenance

HEAD_BYTES = 65_536
TAIL_BYTES = 8_192


@dataclass(frozen=True, slots=True)
class Artifact:
    """An uploaded file, stored at a `path` that the controller chose."""

    name: str
    """The original file name."""
    path: Path
    size_bytes: int
    head: bytes
    """First bytes, at most `HEAD_BYTES`."""
    tail: bytes = b""
    """Last bytes, at most `TAIL_BYTES`."""


@dataclass(frozen=True, slots=True)
class SelfReport:
    """Failures and fallbacks that the output of a command reports."""

    failure: str = ""
    """The line that reports a failure; empty if there is none."""
    fallbacks: tuple[str, ...] = ()
    """The sentences that report a fallback."""
    nothing_passed: str = ""
    """The line of a test runner that says that no test passed; empty if there is none."""


class UnreadableError(Exception):
    """Raised if the artifact cannot be read in the format that its first bytes suggest."""


class Dialect(Protocol):
    """A format of results with its parser."""

    @property
    def name(self) -> str:
        """Name, as ``pytest-text``."""
        ...

    @property
    def version(self) -> int:
        """Version of the parser: increased when the same bytes would be parsed differently."""
        ...

    @property
    def provenance(self) -> Provenance:
        """Provenance of the results that the dialect parses."""
        ...

    def match(self, artifact: Artifact) -> float:
        """Return the confidence, from 0 to 1, that the bytes begin a document of the dialect."""
        ...

    def read(self, artifact: Artifact) -> Iterator[ParsedItem]:
        """Yield the parsed items of the artifact in their order, in bounded memory.

        Raises UnreadableError.
        """
        ...


class ReadMetrics(Protocol):
    """Reads the metrics of a job from one of its files."""

    def __call__(
        self, name: str, chunks: Iterable[bytes]
    ) -> tuple[tuple[ParsedMetric, ...], tuple[str, ...]]:
        """Return the metrics, and one sentence for each fault that makes them unreliable.

        Args:
            name: ``output`` for the job's standard output, else the file's name.
            chunks: The bytes of the file, in pieces.
        """
        ...


class Dialects(Protocol):
    """Chooses the dialect that fits an artifact best."""

    def best(self, artifact: Artifact) -> tuple[Dialect, float] | None:
        """Return the dialect of the highest confidence, and that confidence from 0 to 1.

        None if no dialect recognises the artifact.
        """
        ...
