"""Reading foreign artifacts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.domain.parsed_results import Provenance, Said

HEAD_BYTES = 65_536
TAIL_BYTES = 8_192


@dataclass(frozen=True, slots=True)
class Artifact:
    """An uploaded file; `path` is chosen by us, never by its author."""

    name: str
    """As it was called where it came from."""
    path: Path
    size_bytes: int
    head: bytes
    """Its first bytes, at most `HEAD_BYTES`."""
    tail: bytes = b""
    """Its last bytes, at most `TAIL_BYTES`."""


class UnreadableError(Exception):
    """The artifact is not what its first bytes promised, or is refused; the text says why."""


class Dialect(Protocol):
    """One way of writing results down."""

    @property
    def name(self) -> str:
        """``pytest-text``."""
        ...

    @property
    def version(self) -> int:
        """Version of the parser: increased when the same bytes would be parsed differently."""
        ...

    @property
    def provenance(self) -> Provenance:
        """How reliable what it parses is."""
        ...

    def match(self, artifact: Artifact) -> float:
        """How sure it is, from 0 (no) to 1 (its maker's own mark), from the first bytes alone."""
        ...

    def read(self, artifact: Artifact) -> Iterator[Said]:
        """Parse the artifact into statements, in order, in bounded memory.

        Raises UnreadableError.
        """
        ...


class Dialects(Protocol):
    """All of them."""

    def best(self, artifact: Artifact) -> tuple[Dialect, float] | None:
        """The surest dialect and how sure it is; None where none knows the artifact."""
        ...
