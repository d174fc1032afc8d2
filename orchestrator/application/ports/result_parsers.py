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
    """An uploaded file; `path` is chosen by the controller, never by its author."""

    name: str
    """Its original name."""
    path: Path
    size_bytes: int
    head: bytes
    """First bytes, at most `HEAD_BYTES`."""
    tail: bytes = b""
    """Last bytes, at most `TAIL_BYTES`."""


@dataclass(frozen=True, slots=True)
class SelfReport:
    """What the output of a command says against it."""

    failure: str = ""
    """The line in which it reports a failure; empty without one."""
    fallbacks: tuple[str, ...] = ()
    """The sentences in which it tells of a fallback."""
    nothing_passed: str = ""
    """The line in which its test runner says that nothing passed; empty where something did."""


class UnreadableError(Exception):
    """The artifact does not match its first bytes, or was rejected; the text says why."""


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
    """Reads the figures of a job."""

    def __call__(
        self, name: str, chunks: Iterable[bytes]
    ) -> tuple[tuple[ParsedMetric, ...], tuple[str, ...]]:
        """Return the figures, and what keeps a person from relying on them.

        Args:
            name: ``output`` for what the job printed, else the file's name.
            chunks: The bytes.
        """
        ...


class Dialects(Protocol):
    """All dialects."""

    def best(self, artifact: Artifact) -> tuple[Dialect, float] | None:
        """Return the dialect of highest confidence with that.

        None if none recognises the artifact.
        """
        ...
