"""Files that people write: matrices, payload manifests, policies of gates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from orchestrator.domain.annotation import Annotation
from orchestrator.domain.document_problems import Problem
from orchestrator.domain.gate.policy import GatePolicy
from orchestrator.domain.ingest_notes import IngestNotes
from orchestrator.domain.machine import ProviderTraits
from orchestrator.domain.manifest import Manifest
from orchestrator.domain.matrix import Matrix

Source = str | Mapping[str, object]
"""A file's text (YAML or JSON), or what a client sent as JSON already parsed."""


class Documents(Protocol):
    """Reads them. Each method raises InvalidDocumentError with every problem and its place."""

    def read_matrix(self, source: Source, name: str) -> Matrix:
        """A well-formed matrix; whether it is possible is not known yet."""
        ...

    def check_matrix(
        self,
        source: Source,
        name: str,
        *,
        manifest: Manifest,
        providers: Mapping[str, ProviderTraits],
    ) -> Matrix:
        """A matrix that can be launched, given the payload and the providers."""
        ...

    def refuse_matrix(self, source: Source, name: str, problems: Iterable[Problem]) -> None:
        """Raise InvalidDocumentError, with lines and columns, if there are problems."""
        ...

    def read_manifest(self, text: str, name: str) -> Manifest:
        """A whole and sensible ``payload.toml``."""
        ...

    def read_ingest_notes(self, text: str, name: str) -> IngestNotes:
        """A whole and sensible ``ingest.yaml``."""
        ...

    def refuse_ingest_notes(self, text: str, name: str, problems: Iterable[Problem]) -> None:
        """Raise InvalidDocumentError, with lines and columns, if there are problems."""
        ...

    def read_annotations(
        self, text: str, name: str, *, cells: Sequence[str]
    ) -> tuple[Annotation, ...]:
        """A file of signed, sensible annotations about a run that has these cells."""
        ...

    def read_policy(self, source: Source, name: str) -> GatePolicy:
        """A whole and sensible policy of a gate."""
        ...

    def matrix_document(self, matrix: Matrix) -> dict[str, object]:
        """The document that reads as this matrix."""
        ...

    def matrix_schema(self) -> dict[str, object]:
        """JSON Schema of a matrix file."""
        ...

    def manifest_schema(self) -> dict[str, object]:
        """JSON Schema of ``payload.toml``."""
        ...

    def policy_schema(self) -> dict[str, object]:
        """JSON Schema of a policy file."""
        ...
