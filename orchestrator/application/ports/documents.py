"""Port of the files that people write: matrices, manifests, policies, notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
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
    """Parses matrices, manifests and policies. Every method raises InvalidDocumentError."""

    def read_matrix(self, source: Source, name: str) -> Matrix:
        """Return a well-formed matrix, not checked for feasibility."""
        ...

    def sketch_matrix(self, source: Source, name: str) -> Matrix:
        """Return what can be read of a matrix, to find its payload before `check_matrix`.

        That one then tells errors of its form and of its values together.
        """
        ...

    def check_matrix(
        self,
        source: Source,
        name: str,
        *,
        manifest: Manifest,
        providers: Mapping[str, ProviderTraits],
        refused: Mapping[str, str] = MappingProxyType({}),
    ) -> Matrix:
        """Return a matrix that can be launched, given payload and providers.

        `refused` says by provider why it cannot be used here.
        """
        ...

    def refuse_matrix(self, source: Source, name: str, problems: Iterable[Problem]) -> None:
        """Raise InvalidDocumentError with lines and columns, if there are problems."""
        ...

    def read_manifest(self, text: str, name: str) -> Manifest:
        """Return a valid ``payload.toml``."""
        ...

    def read_ingest_notes(self, text: str, name: str) -> IngestNotes:
        """Return a valid ``ingest.yaml``."""
        ...

    def refuse_manifest(self, text: str, name: str, problems: Iterable[Problem]) -> None:
        """Raise InvalidDocumentError with lines and columns, if there are problems."""
        ...

    def refuse_ingest_notes(self, text: str, name: str, problems: Iterable[Problem]) -> None:
        """Raise InvalidDocumentError with lines and columns, if there are problems."""
        ...

    def read_annotations(
        self, text: str, name: str, *, cells: Sequence[str]
    ) -> tuple[Annotation, ...]:
        """Return valid signed annotations of a run with these cells."""
        ...

    def read_policy(self, source: Source, name: str) -> GatePolicy:
        """Return a valid policy of a gate."""
        ...

    def matrix_document(self, matrix: Matrix) -> dict[str, object]:
        """Return the document that parses as this matrix."""
        ...

    def matrix_text(self, matrix: Matrix) -> str:
        """Return the YAML text that parses as this matrix."""
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
